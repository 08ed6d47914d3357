"""Sessions: the processes that tuned or are tuning, and what each does."""

from __future__ import annotations

import time
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from backend.counted import counted
from rocm_tui.compare.comparison import of_sessions
from rocm_tui.harmless import plain
from rocm_tui.render.sessions import SESSIONS, ended_text, words_text
from rocm_tui.render.table import cells
from rocm_tui.report.sessions import SessionRow, session_rows
from rocm_tui.tui.base import BaseScreen
from rocm_tui.tui.keys import key
from rocm_tui.tui.screens.watch import back_to_watch
from rocm_tui.tui.widgets.grid import Grid
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import OneLine

WHY_NONE = "A graph that Inductor loads from its cache tunes nothing again."


class SessionsScreen(BaseScreen):
    """The latest first; the processes of one run are together."""

    PLACE = "Sessions"
    CSS_PATH = "lists.tcss"
    AUTO_FOCUS = "#sessions"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("enter", "open", "sessions.open", "its tunings, in Watch", footer="its tunings"),
        key("e", "report", "sessions.report", "the report of this session alone",
            footer="its report"),
        key("o", "output", "sessions.output", "the output of its program, if a screen started it",
            footer="its output"),
        key("y", "copy", "sessions.copy", "copy the session's id", footer="copy id"),
        key("escape", "app.pop_screen", "sessions.back", "back"),
    ]  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[SessionRow] = []

    def compose_body(self) -> ComposeResult:
        nothing = "No session yet: `rocm-tui run -- CMD` records one; plain logs name none."
        yield Grid(SESSIONS, nothing, id="sessions")
        yield OneLine(id="about")

    def on_mount(self) -> None:
        self.update()

    @property
    def _grid(self) -> Grid:
        return self.query_one("#sessions", Grid)

    @property
    def current(self) -> SessionRow | None:
        """The session under the cursor."""
        return self._grid.pick(self._rows)

    def update(self) -> None:
        """The model has changed."""
        if self.app.screen is not self:
            return
        self._rows = session_rows(self.program.feed.model)
        self._paint()
        self._describe()

    def _paint(self) -> None:
        names = [row.session.id for row in self._rows]
        self._grid.put([cells(SESSIONS, row) for row in self._rows], names)

    def on_screen_resume(self) -> None:
        self.update()

    def tick(self) -> None:
        """Time has passed."""
        if any(row.activity.state == "waiting" for row in self._rows):
            self._paint()  # they state durations
        self._describe()

    @on(LineView.CursorMoved)
    def _describe(self) -> None:
        rows = self._rows
        live = sum(row.activity.lives for row in rows)
        facts = [counted(len(rows), "session")]
        facts += [f"{live} alive"] if live else []
        self.show_title(facts)
        row, text = self.current, " Sessions"
        if row is not None:
            text = f" {ended_text(row, time.time())} · {words_text(row.session.argv)}"
        self.query_one("#about", OneLine).put(((text, "head"),))
        self.sync_keys()

    def applies(self, action: str) -> bool:
        """An output needs a program started by a screen."""
        return self.current is not None and (action != "output" or self.program.programs.any_known)

    def _ids(self, row: SessionRow) -> list[str]:
        """Return the session's id; for the row of a whole run the ids of all its processes."""
        run = row.process.run
        if row.member or not run:
            return [row.session.id]
        return [other.session.id for other in self._rows if other.process.run == run]

    # Keys.

    @on(LineView.Chosen)
    def action_open(self) -> None:
        """Show only its rows in Watch."""
        if (row := self.require(self.current, "session")) is not None:
            ids = self._ids(row)
            if not of_sessions(row.name, ids, self.program.feed.model).rows:
                self.program.warn(f"{plain(row.name)} recorded no tuning. {WHY_NONE}")
                return
            name = row.process.run if len(ids) > 1 else row.name
            back_to_watch(self.app).filter_by(f"session:{name}")

    def action_report(self) -> None:
        if (row := self.require(self.current, "session")) is not None:
            self.program.open_screen("report", row.name, self._ids(row))

    def action_output(self) -> None:
        if (row := self.require(self.current, "session")) is None:
            return
        if self.program.programs.choose(row.process.run or row.session.id):
            self.program.open_screen("output")
        else:
            self.program.warn("Its output is not kept: `rocm-tui watch -- CMD` keeps a program's.")

    def action_copy(self) -> None:
        if (row := self.require(self.current, "session")) is not None:
            self.program.copy(plain(row.name), "the session's id, for compare, ls and session:")
