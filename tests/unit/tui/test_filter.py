"""The filter of Watch: what is offered while it is typed, past and saved ones, on real files."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import events
from textual.widgets import Input

from rocm_tui.tui.widgets.filter_bar import order_in
from tests.support.screen_lab import (
    SIZES,
    panes_of,
    running,
    screen_text,
    typed,
    until,
    write_cache,
)
from tests.support.terminal_lab import table

BF16 = """AUTOTUNE addmm(8x64, 64x64)
strides: [64, 1], [64, 1]
dtypes: torch.bfloat16, torch.bfloat16
  addmm 0.0100 ms 100.0%
  triton_mm_1 0.0200 ms 50.0% BLOCK_M=16, num_warps=4
SingleProcess AUTOTUNE benchmarking takes 1.5000 seconds and 0.5000 seconds precompiling for 2 choices
"""  # noqa: E501


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def sources(folder: Path) -> Path:
    """Three products of float32 in the cache, one of bfloat16 in a log."""
    write_cache(folder, 2, 8, 32)
    log = folder / "train.log"
    log.write_text(BF16)
    return log


@pytest.mark.parametrize("size", SIZES)
async def test_tab_completes_fields_and_the_values_that_are_there(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    log = sources(tmp_path)
    async with running(tmp_path, tmp_path, log, size=size) as (app, pilot):
        panes = await panes_of(app, pilot, 4)
        await pilot.press("slash")
        await until(pilot, lambda: "op:" in screen_text(panes.offers))
        entry = app.screen.query_one(Input)
        await pilot.press("d", "t")
        await until(pilot, lambda: "type of the operands" in screen_text(panes.offers))
        assert len(panes.table.rows) == 4, "half a field hides nothing"
        await until(pilot, lambda: entry._suggestion == "dtype:")
        await pilot.press("right")
        await until(pilot, lambda: entry.value == "dtype:")
        await until(pilot, lambda: "bf16" in screen_text(panes.offers))
        assert "3 tunings" in screen_text(panes.offers) and len(panes.table.rows) == 4
        await pilot.press("b")
        await until(pilot, lambda: "f32" not in screen_text(panes.offers))
        assert len(panes.table.rows) == 4, "nor half a value"
        await pilot.press("tab")
        await until(pilot, lambda: len(panes.table.rows) == 1)
        assert entry.value == "dtype:bf16" and not panes.offers.display
        await pilot.press("enter")
        await until(pilot, lambda: app.screen.focused is panes.table)
        assert "filter active: dtype:bf16  1 of 4" in screen_text(app.screen)


async def test_a_click_takes_an_offer_and_down_goes_through_them(tmp_path: Path) -> None:
    log = sources(tmp_path)
    async with running(tmp_path, tmp_path, log) as (app, pilot):
        panes = await panes_of(app, pilot, 4)
        await pilot.press("slash")
        await typed(pilot, "op:")
        await until(pilot, lambda: "addmm" in screen_text(panes.offers))
        entry = app.screen.query_one(Input)
        await pilot.press("down")
        await until(pilot, lambda: (entry.value, len(panes.table.rows)) == ("op:mm", 3))
        await pilot.press("down", "down")
        await until(pilot, lambda: (entry.value, len(panes.table.rows)) == ("op:addmm", 1))
        await pilot.press("up", "up")
        await until(pilot, lambda: entry.value == "op:")
        await pilot.click("#offers", offset=(3, 1))
        await until(pilot, lambda: entry.value == "op:addmm" and app.screen.focused is entry)
        await pilot.press("enter")
        await until(pilot, lambda: len(panes.table.rows) == 1)


async def test_a_fault_is_said_and_blanks_nothing(tmp_path: Path) -> None:
    log = sources(tmp_path)
    async with running(tmp_path, tmp_path, log) as (app, pilot):
        panes = await panes_of(app, pilot, 4)
        await pilot.press("slash")
        await typed(pilot, "dtpe:bf16", "enter")
        await until(pilot, lambda: "did you mean dtype?" in screen_text(panes.offers))
        assert len(panes.table.rows) == 4 and app.screen.focused is app.screen.query_one(Input)
        await pilot.press("home", "right", "right", "y", "end", "enter")
        await until(pilot, lambda: len(panes.table.rows) == 1)
        await until(pilot, lambda: app.screen.focused is panes.table)
        assert not panes.offers.display


async def test_past_filters_and_saved_ones_are_there_again(tmp_path: Path) -> None:
    log = sources(tmp_path)
    async with running(tmp_path, tmp_path, log) as (app, pilot):
        panes = await panes_of(app, pilot, 4)
        for text in ("op:mm", "shape:32"):
            await pilot.press("slash")
            await typed(pilot, text, "enter")
            await until(pilot, lambda: app.screen.focused is panes.table)
            await pilot.press("escape")
        await pilot.press("slash")
        await typed(pilot, "op:mm shape:8 save eight")
        await until(pilot, lambda: "enter saves it as @eight" in screen_text(app.screen))
        assert [row.tuning.shapes[0][0] for row in panes.table.rows] == [8]
        await pilot.press("enter")
        await until(pilot, lambda: app.screen.focused is panes.table)
        assert "filter active: op:mm shape:8  1 of 4" in screen_text(app.screen)
    async with running(tmp_path, tmp_path, log) as (app, pilot):  # another day
        panes = await panes_of(app, pilot, 4)
        await pilot.press("slash")
        entry = app.screen.query_one(Input)
        for past in ("op:mm shape:8", "shape:32", "op:mm", "op:mm"):
            await pilot.press("up")
            await until(pilot, lambda: entry.value == past)  # noqa: B023
        await until(pilot, lambda: len(panes.table.rows) == 3)
        await pilot.press("down", "down", "down")
        await until(pilot, lambda: not entry.value)
        await pilot.press("@", "e")
        await until(pilot, lambda: "op:mm shape:8" in screen_text(panes.offers))
        await pilot.press("tab", "enter")
        await until(pilot, lambda: len(panes.table.rows) == 1)
        titles = {command.title for command in app.get_system_commands(app.screen)}
        assert "tunings: Filter @eight" in titles
        await pilot.press("slash")
        await typed(pilot, " forget eight", "enter")
        await until(pilot, lambda: not panes.saved_filters)


async def test_new_rows_pass_the_filter_too(tmp_path: Path) -> None:
    log = sources(tmp_path)
    async with running(tmp_path, tmp_path, log) as (app, pilot):
        panes = await panes_of(app, pilot, 4)
        await pilot.press("slash")
        await typed(pilot, "!dtype:f32 op:*mm", "enter")
        await until(pilot, lambda: len(panes.table.rows) == 1)
        with log.open("a") as file:
            file.write(table(64) + BF16.replace("8x64", "16x64"))
        await until(pilot, lambda: panes.table.total == 6)
        shown = [(row.tuning.op, row.tuning.shapes[0][0]) for row in panes.table.rows]
        assert ("addmm", 16) in shown


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("op:mm save mine", ("op:mm", "save", "mine")),
        ("op:mm save @mine", ("op:mm", "save", "mine")),
        ("op:mm save", ("op:mm", "save", "")),
        ("forget mine", ("", "forget", "mine")),
        ("save", ("save", "", "")),
        ("op:mm save m(", ("op:mm save m(", "", "")),
        ("", ("", "", "")),
    ],
)
def test_orders_at_the_end(text: str, order: tuple[str, str, str]) -> None:
    assert order_in(text) == order


async def test_keys_in_one_burst_are_taken_as_typed(tmp_path: Path) -> None:
    log = sources(tmp_path)
    async with running(tmp_path, tmp_path, log) as (app, pilot):
        panes = await panes_of(app, pilot, 4)
        await pilot.press("slash")
        entry = app.screen.query_one(Input)
        for key, char in [*((c, c) for c in "op:add"), ("tab", "\t"), ("enter", "\r")]:
            app.post_message(events.Key(key, char))
        await until(pilot, lambda: app.screen.focused is panes.table)
        await until(pilot, lambda: len(panes.table.rows) == 1)
        assert entry.value == "op:addmm"
