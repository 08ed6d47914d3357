"""80 columns: a list without a line says all of why, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.screen_lab import panes_of, running, screen_text, until, write_cache


@pytest.mark.parametrize(
    ("key", "last"), [("J", "tries it."), ("P", "under the cursor."), ("S", "No problem.")]
)
async def test_an_empty_list_is_told_to_the_end(tmp_path: Path, key: str, last: str) -> None:
    write_cache(tmp_path, 8)
    async with running(tmp_path, size=(80, 24)) as (app, pilot):
        await panes_of(app, pilot, 1)
        await pilot.press(key)
        await until(pilot, lambda: last in screen_text(app.screen))
