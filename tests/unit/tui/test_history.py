"""The history of a problem on the screen, of real logs, a real cache and a real pin."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rocm_tui.tui.screens.history import HistoryScreen
from rocm_tui.tui.screens.watch import WatchScreen
from rocm_tui.tui.widgets.grid import Grid
from tests.support.history_lab import KEY, write_week
from tests.support.screen_lab import SIZES, panes_of, running, screen_text, until


@pytest.mark.parametrize("size", SIZES)
async def test_history(tmp_path: Path, size: tuple[int, int]) -> None:
    write_week(tmp_path)
    async with running(tmp_path, size=size) as (app, pilot):
        panes = await panes_of(app, pilot, 4)
        rows = panes.table.rows
        at = next(n for n, row in enumerate(rows) if row.id == KEY.id and row.occurrence == 2)
        panes.table.move_cursor(at)
        await pilot.press("i")
        await until(pilot, lambda: isinstance(app.screen, HistoryScreen))
        await until(pilot, lambda: "5 events" in screen_text(app.screen))
        await until(pilot, lambda: "torch → 2.13.0" in screen_text(app.screen))
        text = screen_text(app.screen)
        assert "┊torch" in text and "● " in text and "pin by" in text
        assert all(len(line) <= size[0] for line in text.splitlines())
        events = app.screen.query_one("#events", Grid)
        own = screen_text(events).replace("▌", " ")
        title, *_ = own.splitlines()
        for times in ("▼150.0 ~140.0 ~80.0", "▲~80.0 ~140.0 150.0"):
            await pilot.click("#events", offset=(title.index("TIME"), 0))
            await until(pilot, lambda: f"TIME{times[0]}" in screen_text(events))  # noqa: B023
            shown = re.findall(r"(\S+) µs", screen_text(events))
            assert shown == times[1:].split(), "what has no time stands below"
        await pilot.press("y")
        assert app.clipboard == "triton_mm-aa", "the line under the cursor is what is shown there"
        await pilot.click("#events", offset=(title.index("TIME"), 0))
        await until(pilot, lambda: screen_text(events).replace("▌", " ") == own)
        await pilot.press("end")  # the oldest
        await pilot.press("y")
        assert app.clipboard == "mm-bb"
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, WatchScreen))
        current = panes.table.current
        assert current is not None and (current.id, current.occurrence) == (KEY.id, 1)
        await pilot.press("i", "escape")
        await until(pilot, lambda: isinstance(app.screen, WatchScreen))
