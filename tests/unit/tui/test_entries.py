"""The screen of other tuners' entries: all of them, those that have words, and where they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input

from backend.tables.model import TableDevice
from rocm_tui.actions import lint
from rocm_tui.tui.screens import entries
from rocm_tui.tui.screens.entries import EntriesGrid, EntriesScreen, EntryDetail
from tests.support import sample_tables
from tests.support.screen_lab import all_text, running, screen_text, typed, until

HEAD = "Validator,PT_VERSION,2.9.0\nValidator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-\n"


def write(folder: Path, count: int) -> Path:
    path = folder / "results0.csv"
    rows = (
        f"GemmTunableOp_Half_TN,tn_{n}_64_128,Gemm_Hipblaslt_{n % 7},0.{n % 9 + 1}\n"
        for n in range(1, count + 1)
    )
    path.write_text(HEAD + "".join(rows) + "GemmTunableOp_Half_TN,tn_8_8_8,\x1b[31mred,0.1\n")
    return path


async def test_rows_are_found_as_words_are_typed(tmp_path: Path) -> None:
    path = write(tmp_path, 2000)
    async with running(tmp_path, path, size=(120, 30)) as (app, pilot):
        await pilot.press("9")
        await until(pilot, lambda: "lint: 1 error" in all_text(app))
        assert "1 table, 2,001 entries" in all_text(app) and "gfx942" in all_text(app)
        await pilot.press("G")
        assert "tn_8_8_8" in all_text(app) and ":2003" in all_text(app)
        await pilot.press("slash")
        await until(pilot, lambda: app.screen.query(Input))
        await typed(pilot, "Gemm_Hipblaslt_3 tn_1999")
        await until(pilot, lambda: "No entry has that" in all_text(app))
        await typed(pilot, "", "backspace", "backspace")
        await until(pilot, lambda: "entries have Gemm_Hipblaslt_3 tn_19" in all_text(app))
        await pilot.press("enter", "y")
        (note,) = app._notifications
        assert f"{path}:" in note.message and not app.screen.query(Input)
        assert "Gemm_Hipblaslt_3" in screen_text(app.screen.query_one(EntryDetail))
        await pilot.press("escape")
        assert not isinstance(app.screen, EntriesScreen)


async def test_what_a_file_says_is_data_and_no_table_is_said_to_be_none(tmp_path: Path) -> None:
    async with running(tmp_path) as (app, pilot):
        await pilot.press("9")
        await until(pilot, lambda: "No other tuner's table" in all_text(app))
    path = write(tmp_path, 3)
    async with running(tmp_path, path, size=(80, 24)) as (app, pilot):
        await pilot.press("9")
        await until(pilot, lambda: "4 entries" in all_text(app) and " red " in all_text(app))
        assert "\x1b" not in all_text(app)
        write(tmp_path, 0)
        await pilot.press("r", "r", "r")  # held down, it still comes to an end
        await until(pilot, lambda: "1 table, 1 entry" in all_text(app))


async def test_what_lint_finds_is_marked_told_and_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lint, "device_here", lambda: TableDevice("gfx942", 304))
    folder = tmp_path / "tables"
    sample_tables.write(folder)
    async with running(tmp_path, folder, size=(200, 40)) as (app, pilot):
        await pilot.press("9")
        await until(
            pilot, lambda: "lint for gfx942:304: 3 warnings, 3 notes" in screen_text(app.screen)
        )
        text = screen_text(app.screen)
        assert all(rule in text for rule in ("! duplicate", "· other-device", "! unused-row"))
        await pilot.press("slash")
        await until(pilot, lambda: app.screen.query(Input))
        await typed(pilot, "lint:warning", "enter")
        await until(pilot, lambda: "3 entries have lint:warning" in screen_text(app.screen))
        await pilot.press("j", "j", "enter")
        await until(pilot, lambda: "the first of two stages" in screen_text(app.screen))
        details = screen_text(app.screen.query_one(EntryDetail))
        assert "! unused-row  row for a number of tokens that no call is rounded to" in details
        told = [line.split()[:3] for line in details.splitlines()]
        assert ["us1", "118.4", "µs"] in told and ["bw", "7069.03", "GB/s"] in told
        await pilot.press("slash")
        await typed(pilot, "lint:warning tuner:tunableop", "enter")
        await until(pilot, lambda: "1 entry has lint:warning" in screen_text(app.screen))
        assert "PyTorch keeps the first one (as line 8)" in screen_text(
            app.screen.query_one(EntryDetail)
        )


async def test_a_table_that_is_written_is_read_again_and_cursor_and_search_stay(
    tmp_path: Path,
) -> None:
    path, other = write(tmp_path, 300), tmp_path / "results1.csv"
    twice = "GemmTunableOp_Half_TN,tn_8_8_8,Gemm_Rocblas_1,0.1\n"
    other.write_text(HEAD + twice + twice)
    async with running(tmp_path, path, other, size=(160, 30)) as (app, pilot):
        await pilot.press("9")
        await until(pilot, lambda: "lint: 2 errors" in all_text(app))
        await pilot.press("slash")
        await until(pilot, lambda: app.screen.query(Input))
        await typed(pilot, "Hipblaslt_3")
        await until(pilot, lambda: "43 entries have" in all_text(app))
        await pilot.press("enter", *["j"] * 9)
        grid = app.screen.query_one(EntriesGrid)
        before = grid.current
        assert before is not None and before.entry.key == (("params", "tn_66_64_128"),)
        # one more row above it, some below it, none without a time
        rows = path.read_text().splitlines(keepends=True)
        rows.insert(2, "GemmTunableOp_Half_TN,tn_9999_64_128,Gemm_Hipblaslt_3,0.1\n")
        rows[-1:] = ["GemmTunableOp_Half_TN,tn_7777_64_128,Gemm_Hipblaslt_3,0.1\n"]
        path.write_text("".join(rows))
        await until(pilot, lambda: "45 entries have Hipblaslt_3" in all_text(app))
        now = grid.current
        assert now is not None and now.entry.key == before.entry.key
        assert now.entry.line == before.entry.line + 1
        assert (grid.cursor, grid.top) == (10, 1)  # its line of the screen, too
        await until(pilot, lambda: "lint: 2 errors" in all_text(app))
        await pilot.press("slash")
        await typed(pilot, "lint:duplicate", "enter")
        await until(pilot, lambda: "1 entry has lint:duplicate" in all_text(app))
        other.write_text(HEAD + twice)
        await until(pilot, lambda: "No entry has that" in all_text(app))
        await until(pilot, lambda: "written since" not in all_text(app))
        other.unlink()
        other.mkdir()
        await until(pilot, lambda: "1 table, 302 entries" in all_text(app))


@pytest.mark.parametrize("most_sorted", [5000, 500])
async def test_a_sorted_list_may_be_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_sorted: int
) -> None:
    monkeypatch.setattr(entries, "_SLICE", 0.0)  # many slices, so the first matches come early
    path = write(tmp_path, 2000)
    async with running(tmp_path, path, size=(140, 30)) as (app, pilot):
        await pilot.press("9")
        await until(pilot, lambda: "lint: 1 error" in all_text(app))
        grid = app.screen.query_one(EntriesGrid)
        await pilot.click(grid, offset=(screen_text(grid).splitlines()[0].index("SOLUTION"), 0))
        assert "SOLUTION▲" in screen_text(grid).splitlines()[0]
        monkeypatch.setattr(entries, "MOST_SORTED", most_sorted)
        await pilot.press("slash")
        await until(pilot, lambda: app.screen.query(Input))
        await typed(pilot, "Gemm_Hipblaslt Half", "enter")
        await until(pilot, lambda: "2,000 entries have Gemm_Hipblaslt Half " in all_text(app))
        await until(pilot, lambda: "so far" not in all_text(app))
        await pilot.press("G")
        await until(pilot, lambda: grid.cursor == 1999)
        last = grid.current
        assert last is not None
        sorts = most_sorted == 5000
        assert last.entry.solution == ("Gemm_Hipblaslt_6" if sorts else "Gemm_Hipblaslt_5")
        assert ("SOLUTION▲" in screen_text(grid)) == sorts
