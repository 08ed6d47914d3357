"""The command palette: `group: Verb object`, only what applies now."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from textual.app import SystemCommand
from textual.screen import Screen

from rocm_tui.tui.screens.base import BaseScreen
from rocm_tui.tui.screens.watch import WatchScreen
from rocm_tui.tui.widgets.one_line import KeyBar

if TYPE_CHECKING:
    from rocm_tui.tui.app import RocmTui


def commands(app: RocmTui, screen: Screen[object]) -> Iterator[SystemCommand]:
    """What a person can do on `screen` at this moment."""
    if isinstance(screen, WatchScreen):
        yield from _of_watch(app, screen)
    elif isinstance(screen, BaseScreen):
        yield from _of_keys(screen)
    yield SystemCommand("view: Show pins", "State, history, undo", app.action_pins)
    yield SystemCommand("view: Show report", "Of all that is watched", app.action_report)
    yield SystemCommand("view: Show jobs", "Progress, results, logs", app.action_jobs)
    yield SystemCommand("view: Show sources", "What is being read", app.action_sources)
    yield SystemCommand("view: Show help", "Every key and column", app.action_help)
    yield SystemCommand("app: Change theme", "Colours", app.action_change_theme)
    yield SystemCommand("app: Quit", "Leave; reading ends with it", app.action_quit)


def _of_keys(screen: BaseScreen) -> Iterator[SystemCommand]:
    """What the line of keys of another screen offers at this moment."""
    for key, label, action in screen.query_one("#keys", KeyBar).keys:
        if not action.startswith("app."):
            run = partial(screen.run_action, action)
            yield SystemCommand(f"here: {label.capitalize()}", f"Key {key}", run)


def _of_watch(app: RocmTui, screen: WatchScreen) -> Iterator[SystemCommand]:
    row, panes = screen.row, screen.panes
    if panes is not None:
        from rocm_tui.tui.widgets.tunings import SORTS

        yield SystemCommand("tunings: Filter by words", "Key /", screen.action_filter)
        for name in SORTS:
            if name != panes.table.sort:
                yield SystemCommand(
                    f"tunings: Sort by {name}", "Key s", partial(panes.sort_by, name)
                )
    if row is None:
        return
    if row.tuning.choices:
        yield SystemCommand("pin: Pin choice", "Key p; asks first", screen.action_pin)
        yield SystemCommand("tuning: Compare choices", "Key c", screen.action_compare)
    if row.pin is not None:
        yield SystemCommand("pin: Take back pin", "Key u; asks first", screen.action_unpin)
    yield SystemCommand("job: Tune again", "Key t; asks what to try", screen.action_tune)
    yield SystemCommand("job: Measure choices", "Key m; those marked", screen.action_measure)
    if panes is not None and panes.inside:
        yield SystemCommand("tuning: Mark choice", "Key space", screen.action_mark)
    if app.unfinished:
        yield SystemCommand("job: Cancel job of tuning", "Key x", screen.action_cancel)
    yield SystemCommand("tuning: Copy id", "Key y", screen.action_copy)
