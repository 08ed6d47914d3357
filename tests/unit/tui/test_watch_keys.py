"""The table of Watch's keys: what does nothing on this row is dim, and says why."""

from __future__ import annotations

from pathlib import Path

from rocm_tui.tui.screens.watch import WatchScreen
from rocm_tui.tui.watch_keys import KEYS
from rocm_tui.tui.widgets.one_line import KeyBar
from tests.support.screen_lab import panes_of, running, screen_text, until, write_cache
from tests.support.terminal_lab import table

ABOUT = {"pin", "unpin", "verify", "cancel", "mark", "tune", "measure", "compare", "read"}
"""Keys whose reasons are told here."""


def idle(app: object) -> set[str]:
    """The ids of the dim keys."""
    bar = app.screen.query_one("#keys", KeyBar)  # type: ignore[attr-defined]
    return {entry.id for entry in KEYS if entry.action in bar.idle} & ABOUT


def test_each_entry_has_its_action_and_its_own_id() -> None:
    assert len({entry.id for entry in KEYS}) == len(KEYS)
    for entry in KEYS:
        assert callable(getattr(WatchScreen, f"action_{entry.id}")), entry.id


async def test_keys_that_do_nothing_on_this_row_are_dim_and_say_why(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    log = tmp_path / "train.log"
    log.write_text(table(16))
    async with running(tmp_path, tmp_path, log, size=(200, 30)) as (app, pilot):
        panes = await panes_of(app, pilot, 2)
        logged = [row.tuning.key is None for row in panes.table.rows]
        panes.table.move_cursor(logged.index(True))
        await until(pilot, lambda: "pin" in idle(app))
        assert idle(app) == {"pin", "unpin", "verify", "cancel", "mark", "measure", "read"}
        for key in "pmg":
            app.clear_notifications()
            await pilot.press(key)
            await until(pilot, lambda: any("log only" in n.message for n in app._notifications))
        assert isinstance(app.screen, WatchScreen)

        panes.table.move_cursor(logged.index(False))
        await until(pilot, lambda: "pin" not in idle(app))
        assert idle(app) == {"unpin", "verify", "cancel", "mark"}
        await pilot.press("tab")
        await until(pilot, lambda: idle(app) == {"unpin", "verify", "cancel"})
        await pilot.press("G")  # the choice that failed
        await until(pilot, lambda: idle(app) == {"pin", "unpin", "verify", "cancel"})
        offered = {command.title for command in app.get_system_commands(app.screen)}
        assert "job: Measure choices" in offered and "pin: Pin choice" not in offered


async def test_dim_keys_give_way_first(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    async with running(tmp_path, size=(80, 24)) as (app, pilot):
        await panes_of(app, pilot, 1)
        await until(pilot, lambda: "p pin" in screen_text(app.screen))
        line = screen_text(app.screen.query_one("#keys", KeyBar))
        assert "u unpin" not in line and "c compare" in line and "q quit" in line
