"""Watch on a box with several devices: a row of a problem opens into its devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocm_tui.ingest import devices
from rocm_tui.tui.screens.pins import PinsScreen
from tests.support.device_modules import write_box
from tests.support.screen_lab import (
    SIZES,
    asked,
    panes_of,
    running,
    screen_text,
    until,
)

APART = {0: (0.010, 0.012), 1: (0.013, 0.011)}


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    devices._hashes_of.cache_clear()


@pytest.mark.parametrize("size", SIZES)
async def test_a_row_opens_into_its_devices(tmp_path: Path, size: tuple[int, int]) -> None:
    hashes = write_box(tmp_path, APART)
    async with running(tmp_path, size=size) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        shown = screen_text(panes.table)
        assert "differs (2)" in shown and "└" not in shown
        detail = screen_text(panes.detail)
        assert f"cuda:0  {hashes[0][0][:18]}" in detail and "~10.0 µs" in detail
        assert f"cuda:1  {hashes[1][1][:18]}" in detail and "~11.0 µs" in detail
        await pilot.press("enter")
        assert len(panes.table.entries) == 3 and not panes.inside
        await until(pilot, lambda: "└ cuda:1" in screen_text(panes.table))
        assert "└ cuda:0" in screen_text(panes.table)
        await pilot.press("down", "down")
        row = panes.table.current
        assert row is not None and row.tuning.device_index == 1
        assert panes.detail.row == row and "cuda:1" in screen_text(panes.detail)
        assert panes.chosen is not None and panes.chosen.hash == hashes[1][1]
        await pilot.press("enter")
        assert panes.inside, "a device has nothing to open"
        await pilot.press("h", "up", "up", "space")
        assert len(panes.table.entries) == 1


@pytest.mark.parametrize("size", SIZES)
async def test_the_dialog_and_the_list_of_pins_name_the_devices(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    hashes = write_box(tmp_path, APART)
    async with running(tmp_path, size=size) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        await pilot.press("enter", "down", "down", "p")
        await asked(app, pilot)
        told = " ".join(str(widget.render()) for widget in app.screen.query("Static"))
        assert "moved aside for devices 0-1" in told
        await pilot.press("enter")
        await until(pilot, lambda: app.feed.pins)
        assert app.feed.pins[0].pin.hash == hashes[1][1]
        await until(pilot, lambda: "differs" not in screen_text(panes.table))
        await pilot.press("3")
        await until(pilot, lambda: isinstance(app.screen, PinsScreen))
        await until(pilot, lambda: "active on 0-1" in screen_text(app.screen.query_one("#pins")))
