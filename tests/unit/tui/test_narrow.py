"""80 columns: a list without a line says all of why, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocm_tui.tui.app import brief
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


async def test_an_op_below_hundreds_of_others_is_not_cut(tmp_path: Path) -> None:
    """The width of a column is taken from the first rows."""
    rival = "  addmm 0.2 ms 100.0%\n  triton_mm_1 0.3 ms 66.7%\n"
    ends = "SingleProcess AUTOTUNE benchmarking takes 1 seconds and 1 seconds precompiling\n"
    log = tmp_path / "train.log"
    with log.open("w") as file:
        file.write(f"AUTOTUNE scaled_mm(7x64, 64x64)\n{rival}{ends}")
        for m in range(8, 308):
            file.write(f"AUTOTUNE mm({m}x64, 64x64)\n{rival}{ends}")
    async with running(tmp_path / "cache", log, size=(60, 15)) as (app, pilot):
        await panes_of(app, pilot, 301)
        await pilot.press("G")
        await until(pilot, lambda: "7×64×64" in screen_text(app.screen))
        assert "scaled_mm" in screen_text(app.screen)


def test_a_notice_has_the_first_words_of_a_long_reason() -> None:
    assert brief("the worker was killed") == "the worker was killed"
    long = "none of the choices that this torch offers for these sizes " * 9
    assert len(brief(long)) <= 160 and brief(long).endswith(" …")
    assert long.startswith(brief(long).removesuffix(" …"))
