"""80 columns: a list without a line says all of why, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocm_tui.errors import RocmTuiError
from rocm_tui.jobs.queue import Order
from rocm_tui.render.table import Column
from rocm_tui.tui.app import brief
from rocm_tui.tui.widgets.grid import Grid
from rocm_tui.tui.widgets.one_line import OneLine
from tests.support import sample_job
from tests.support.screen_lab import keys_of, panes_of, running, screen_text, until, write_cache


@pytest.mark.parametrize(
    ("key", "last"), [("4", "tunes it again."), ("3", "under the cursor."), ("7", "No problem.")]
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


async def test_the_report_has_its_table_first_and_its_sentences_below(tmp_path: Path) -> None:
    sample_job.write(tmp_path)
    async with running(tmp_path, size=(80, 24)) as (app, pilot):
        await panes_of(app, pilot, 10)
        await pilot.press("5")
        await until(pilot, lambda: "Tuning saves" in screen_text(app.screen))
        lines = screen_text(app.screen).splitlines()
        table = next(at for at, line in enumerate(lines) if "SAVED" in line)
        sentence = next(at for at, line in enumerate(lines) if "Tuning saves" in line)
        assert table == 2 and lines[table + 1].startswith("▌mm") and sentence == 11
        await pilot.press("G", "y")
        await until(pilot, lambda: app._notifications)
        (notice,) = app._notifications
        assert notice.message == "No tuning is under the cursor.", "but a sentence is"


async def test_the_result_of_a_job_is_whole(tmp_path: Path) -> None:
    why = "no worker could be started, since the Python of this environment has no torch at all"

    def fails(run: object) -> str:
        raise RocmTuiError(why)

    async with running(tmp_path, size=(80, 24)) as (app, pilot):
        await pilot.press("4")
        app.jobs.submit(Order("measure", "mm 8x64x64", "0", fails))
        await until(pilot, lambda: "could be started" in screen_text(app.screen.query_one("#jobs")))
        shown = screen_text(app.screen.query_one("#jobs")).splitlines()
        column = shown[0].index("RESULT")
        assert " ".join(" ".join(line[column:] for line in shown[1:]).split()) == why
        assert "LEFT" not in shown[0] and "PROGRESS" not in shown[0]


def test_the_cursor_goes_from_row_to_row_however_many_lines_each_has() -> None:
    columns = (Column("a", "A", 3, 3), Column("b", "B", 5, 10))
    grid = Grid(columns, "", wraps=("b",))
    rows = [{"a": (str(n), ""), "b": ("one two three " * n, "")} for n in range(1, 5)]
    grid.put(rows, [1, 2, 3, 4])
    grid.heading(17)
    heights = [2, 3, 5, 6]
    assert grid.count() == sum(heights)
    firsts = [sum(heights[:n]) for n in range(4)]
    for first in firsts:
        assert grid.cursor == first and grid.pick(rows) is rows[firsts.index(first)]
        assert [index in grid.cursor_lines for index in (first - 1, first)] == [False, True]
        grid.action_move(1)
    grid.move_cursor(firsts[2] + 1)
    assert grid.cursor == firsts[2], "a click on a further line of a row goes to its first"
    grid.put(rows[1:], [2, 3, 4])
    assert grid.pick(rows[1:]) is rows[2], "the cursor stays on its row"
    grid.put([], [])
    assert grid.count() == 0 and grid.pick([]) is None


def test_columns_without_a_value_and_headings_without_a_row_are_left_out() -> None:
    grid = Grid((Column("op", "OP", 3, 9), Column("left", "LEFT", 6, 6)), "Nothing.")

    def head() -> str:
        return "".join(text for line in grid.heading(40) for text, _ in line)

    grid.put([{"op": ("mm", ""), "left": ("–", "")}, {"op": ("bmm", ""), "left": ("", "")}])
    assert head().split() == ["OP"]
    grid.put([{"op": ("mm", ""), "left": ("–", "")}, {"op": ("bmm", ""), "left": ("3 s", "")}])
    assert head().split() == ["OP", "LEFT"]
    grid.put([])
    assert head() == ""


async def test_the_lines_above_a_table_are_never_cut_within_a_fact(tmp_path: Path) -> None:
    sample_job.write(tmp_path)
    async with running(tmp_path, size=(80, 24)) as (app, pilot):
        await panes_of(app, pilot, 10)
        await pilot.press("G", "tab", "c")
        await until(pilot, lambda: "saves 215.0 µs" in screen_text(app.screen))
        verdict = " ".join(screen_text(app.screen).split())
        assert "saves 215.0 µs a call · 585 TFLOP/s" in verdict


async def test_a_source_without_text_has_no_keys_for_one(tmp_path: Path) -> None:
    sample_job.write(tmp_path)
    async with running(tmp_path, size=(80, 24)) as (app, pilot):
        await panes_of(app, pilot, 10)
        await pilot.press("G", "o")
        await until(pilot, lambda: "names no source" in screen_text(app.screen))
        assert not keys_of(app) & {"search", "find(1)"}
        assert not app.screen.query_one("#pages").display


async def test_a_group_keeps_whole_facts(tmp_path: Path) -> None:
    sample_job.write(tmp_path)
    async with running(tmp_path, size=(80, 24)) as (app, pilot):
        panes = await panes_of(app, pilot, 10)
        await pilot.press("b")
        await until(pilot, lambda: "▾" in screen_text(panes.table))
        groups = [line for line in screen_text(panes.table).splitlines() if "▾" in line]
        assert all(line.rstrip("┃ ").endswith("measured faster than ATen") for line in groups)


async def test_a_bar_has_one_ground_whatever_its_text_says(tmp_path: Path) -> None:
    async with running(tmp_path, size=(80, 24)) as (app, pilot):
        await pilot.press("8")
        await until(pilot, lambda: "No compiled graph yet" in screen_text(app.screen))
        bar = app.screen.query_one("#about", OneLine)
        bar.put(((" improve: 5.0 % faster", "good"), (", 1 pin proposed (p)", "head")))
        await until(pilot, lambda: "5.0 %" in bar.render_line(0).text)
        grounds = {part.style.bgcolor for part in bar.render_line(0) if part.style is not None}
        assert len(grounds) == 1


async def test_a_reason_that_is_cut_ends_with_a_sign(tmp_path: Path) -> None:
    sample_job.write(tmp_path)
    async with running(tmp_path, size=(80, 24)) as (app, pilot):
        panes = await panes_of(app, pilot, 10)
        await pilot.press("j")
        await until(pilot, lambda: " failed " in screen_text(panes.detail))
        lines = screen_text(panes.detail).splitlines()
        (failed,) = (line.rstrip() for line in lines if " failed " in line and "triton" in line)
        assert "out of" in failed and failed.endswith("…")
