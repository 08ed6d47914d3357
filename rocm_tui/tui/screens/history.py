"""History: every time the problem under the cursor was tuned, measured or pinned, by day."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from rocm_tui.actions.sources import HistoryFiles, read_history_files
from rocm_tui.harmless import plain
from rocm_tui.render import detail
from rocm_tui.render.history import HISTORY, HistoryLine, chart, entries, title
from rocm_tui.render.table import Line, cells
from rocm_tui.session.history import History, cache_files, history
from rocm_tui.session.model import Row
from rocm_tui.tui.base import BaseScreen
from rocm_tui.tui.keys import key
from rocm_tui.tui.screens.watch import back_to_watch
from rocm_tui.tui.widgets.grid import Grid
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import OneLine


class Chart(LineView, can_focus=False):
    """The winner's time by event, as high as the widget is."""

    def __init__(self) -> None:
        super().__init__(id="chart")
        self._history: History | None = None

    def put(self, history: History) -> None:
        self._history = history
        self.sync()

    def heading(self, width: int) -> list[Line]:
        return [] if self._history is None else chart(self._history, width, self.size.height)

    def empty(self, width: int) -> list[Line]:
        no_points = self._history is not None and not self._head
        return [(("  No source has both a date and a time.", "dim"),)] if no_points else []


class HistoryScreen(BaseScreen):
    """The plot above, the list below; enter goes to the tuning in Watch."""

    PLACE = "History"
    CSS_PATH = "lists.tcss"
    AUTO_FOCUS = "#events"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("enter", "choose", "history.choose", "the tuning, in Watch", footer="in Watch"),
        key("y", "copy", "history.copy", "copy the choice under the cursor", footer="copy"),
        key("escape,i", "app.pop_screen", "history.back", "back"),
    ]

    def __init__(self, row: Row) -> None:
        super().__init__()
        self._row = row
        self._beside: HistoryFiles | None = None
        self._entries: list[HistoryLine] = []

    def compose_body(self) -> ComposeResult:
        yield OneLine(id="problem")
        yield Chart()
        yield Grid(HISTORY, "No source lists this problem any more.", id="events")

    def on_mount(self) -> None:
        self.query_one("#problem", OneLine).put(detail.title(self._row))
        self.run_worker(self._look_beside())

    async def _look_beside(self) -> None:
        files = cache_files(self.program.feed.model, self._row)
        self._beside = await self.in_thread(read_history_files, self.program.layout, files)
        self.update()

    @property
    def current(self) -> HistoryLine | None:
        """The event under the cursor."""
        return self.query_one("#events", Grid).pick(self._entries)

    def update(self) -> None:
        """Show the current state; the latest event is at the top."""
        beside = self._beside
        if beside is None:
            return
        events = history(self.program.feed.model, self._row, beside.pins, beside.versions)
        dated = [entry for entry in entries(events) if entry.number is not None]
        undated = [entry for entry in entries(events) if entry.number is None]
        self._entries = [*reversed(dated), *undated]
        rows = [cells(HISTORY, entry) for entry in self._entries]
        names = [e.number or -at for at, e in enumerate(self._entries)]
        self.query_one("#events", Grid).put(rows, names)
        self.query_one(Chart).put(events)
        self.show_title([title(events)])
        self.sync_keys()

    @on(LineView.Chosen, "#events")
    def action_choose(self) -> None:
        if (entry := self.require(self.current, "event")) is None:
            return
        if entry.event.row is None:
            self.program.warn("That event has no row in Watch: it is no tuning.")
        else:
            back_to_watch(self.app).go_to(entry.event.row)

    def applies(self, action: str) -> bool:
        """A pin has a choice to copy, but no row in Watch."""
        entry = self.current
        if entry is None:
            return False
        return action == "copy" or entry.event.row is not None

    @on(LineView.CursorMoved, "#events")
    def _moved(self) -> None:
        self.sync_keys()

    def action_copy(self) -> None:
        entry = self.current
        if entry is not None and (name := entry.event.hash or entry.event.label):
            self.program.copy(name, f"the choice {plain(entry.event.label)}")
