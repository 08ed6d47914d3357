"""What was done from the screen, newest first, with the command that does the same."""

from __future__ import annotations

from asyncio import to_thread
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from backend.counted import counted
from backend.errors import StoreError
from rocm_tui.actions.commands import Done, list_done
from rocm_tui.harmless import plain
from rocm_tui.render.pins import moment
from rocm_tui.render.table import Field, cells
from rocm_tui.tui.keys import key
from rocm_tui.tui.screens.base import BaseScreen
from rocm_tui.tui.widgets.grid import Grid
from rocm_tui.tui.widgets.one_line import Key

DONE: tuple[Field[Done], ...] = (
    Field(
        "when", "WHEN", 16, 16, text=lambda one: moment(one.when), style="dim",
        about="when it was done, or its job ended",
    ),
    Field(
        "command", "COMMAND", 24, 90, text=lambda one: plain(one.command), style="accent",
        about="the command that does the same; y copies it",
    ),
    Field(
        "outcome", "OUTCOME", 20, 200, drop=1, text=lambda one: plain(one.outcome),
        style=lambda one: "" if one.ok else "warn", about="what came of it",
    ),
    Field(
        "who", "WHO", 4, 14, drop=2, text=lambda one: plain(one.who), style="dim",
        about="who did it",
    ),
)  # fmt: skip


class DoneScreen(BaseScreen):
    """A list; `y` copies a command."""

    CSS_PATH = "lists.tcss"
    AUTO_FOCUS = "#done"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("y", "copy", "done.copy", "copy the command"),
        key("escape", "back", "done.back", "back"),
    ]
    KEYS: ClassVar[tuple[Key, ...]] = (("y", "copy", "copy"),)

    def compose_body(self) -> ComposeResult:
        yield Grid(DONE, "Nothing was done from a screen of this cache dir yet.", id="done")

    def on_mount(self) -> None:
        self._done: list[Done] = []
        self.show_title("Done", [])
        self.run_worker(self._load(), group="done", exclusive=True)

    async def _load(self) -> None:
        try:
            known = await to_thread(list_done, self.program.layout)
        except (StoreError, OSError) as error:
            self.program.refuse(str(error))
            return
        self._done = list(reversed(known))
        for grid in self.query("#done").results(Grid):  # none where this screen was left
            grid.put([cells(DONE, one) for one in self._done])
        failed = sum(not one.ok for one in known)
        facts = [counted(len(known), "action")]
        self.show_title("Done", facts + ([f"{failed} with trouble"] if failed else []))

    def action_copy(self) -> None:
        cursor = self.query_one("#done", Grid).cursor
        if cursor < len(self._done):
            self.program.copy(self._done[cursor].command, "the command")
