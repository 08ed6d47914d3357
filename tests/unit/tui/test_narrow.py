"""80 columns: a list without a line says all of why, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocm_tui.tui.telling import brief
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


def test_a_notice_has_the_first_words_of_a_long_reason() -> None:
    assert brief("the worker was killed") == "the worker was killed"
    long = "none of the choices that this torch offers for these sizes " * 9
    assert len(brief(long)) <= 160 and brief(long).endswith(" …")
    assert long.startswith(brief(long).removesuffix(" …"))
