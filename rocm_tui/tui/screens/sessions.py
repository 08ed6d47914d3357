"""Sessions: the processes that tuned or do so now, what each does, and the way to its rows."""

from __future__ import annotations

import time
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from backend.counted import counted
from rocm_tui.harmless import plain
from rocm_tui.render.sessions import SESSIONS, command_text, ended_text
from rocm_tui.render.table import Cells, cells
from rocm_tui.report.sessions import SessionRow, session_rows
from rocm_tui.tui.keys import key
from rocm_tui.tui.screens.base import BaseScreen
from rocm_tui.tui.widgets.grid import Grid
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import Key, OneLine

_MARK = "✓ "


class SessionsScreen(BaseScreen):
    """The latest first; the processes of one run stand together."""

    CSS_PATH = "lists.tcss"
    AUTO_FOCUS = "#sessions"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("space", "mark", "sessions.mark", "mark the session, to compare it"),
        key(
            "c",
            "compare",
            "sessions.compare",
            "compare two that are marked, or the marked one with this",
        ),
        key("e", "report", "sessions.report", "the report of this session alone"),
        key("O", "output", "sessions.output", "the output of its program, if a screen started it"),
        key("y", "copy", "sessions.copy", "copy the session's id"),
        key("escape", "app.pop_screen", "sessions.back", "back"),
    ]
    KEYS: ClassVar[tuple[Key, ...]] = (
        ("enter", "its tunings", "open"),
        ("space", "mark", "mark"),
        ("c", "compare", "compare"),
        ("e", "report", "report"),
        ("O", "output", "output"),
        ("y", "copy id", "copy"),
    )

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[SessionRow] = []
        self._marked: list[str] = []

    def compose_body(self) -> ComposeResult:
        nothing = "No session yet: `rocm-tui run -- CMD` records one. Plain logs tell of none."
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
        at = self._grid.at
        return self._rows[at] if at < len(self._rows) else None

    def update(self) -> None:
        """The model has changed."""
        if self.app.screen is not self:
            return
        self._rows = session_rows(self.program.feed.model)
        self._paint()
        self._describe()

    def _paint(self) -> None:
        names = [row.session.id for row in self._rows]
        self._grid.put([self._cells(row) for row in self._rows], names)

    def on_screen_resume(self) -> None:
        self.update()

    def tick(self) -> None:
        """Time has passed."""
        if any(row.activity.state == "waiting" for row in self._rows):
            self._paint()  # they say how long
        self._describe()

    def _cells(self, row: SessionRow) -> Cells:
        line = cells(SESSIONS, row)
        if row.session.id not in self._marked:
            return line
        text, _ = line["name"]
        return {**line, "name": (f"{_MARK}{text}", "accent")}

    def _describe(self) -> None:
        rows = self._rows
        live = sum(row.activity.lives for row in rows)
        facts = [counted(len(rows), "session")]
        facts += [f"{live} alive"] if live else []
        facts += [f"{len(self._marked)} marked"] if self._marked else []
        self.show_title("Sessions", facts)
        row, text = self.current, " Sessions"
        if row is not None:
            text = f" {ended_text(row, time.time())} · {command_text(row)}"
        self.query_one("#about", OneLine).put(((text, "head"),))

    @on(LineView.CursorMoved)
    def _moved(self) -> None:
        self._describe()

    def _ids(self, row: SessionRow) -> list[str]:
        """Its own; of the one that stands for a run, those of all its processes."""
        run = row.process.run
        if row.member or not run:
            return [row.session.id]
        return [other.session.id for other in self._rows if other.process.run == run]

    # Keys.

    def _session(self) -> SessionRow | None:
        """The session under the cursor; says so where none is."""
        if self.current is None:
            self.program.warn("No session is under the cursor.")
        return self.current

    @on(LineView.Chosen)
    def action_open(self) -> None:
        """Show its rows alone in Watch."""
        row = self._session()
        if row is not None:
            whole = len(self._ids(row)) > 1
            self.program.show_filtered(f"session:{row.process.run if whole else row.name}")

    def action_mark(self) -> None:
        row = self._session()
        if row is None:
            return
        id_ = row.session.id
        if id_ in self._marked:
            self._marked.remove(id_)
        else:
            self._marked = [*self._marked[-1:], id_]
        self._grid.action_move(1)
        self.update()

    def action_compare(self) -> None:
        """The earlier of the two is A."""
        marked = [row for row in self._rows if row.session.id in self._marked]
        here = self.current
        if len(marked) == 1 and here is not None and here not in marked:
            marked.append(here)
        if len(marked) != 2:
            self.program.warn("Mark two sessions with space, then compare them.")
            return
        a, b = sorted(marked, key=lambda row: row.session.started)
        self.program.compare_sessions((a.name, self._ids(a)), (b.name, self._ids(b)))

    def action_report(self) -> None:
        row = self._session()
        if row is not None:
            self.program.report_on(row.name, self._ids(row))

    def action_output(self) -> None:
        row = self._session()
        if row is not None and not self.program.show_output(row.process.run or row.session.id):
            self.program.warn("Its output is not kept: `rocm-tui watch -- CMD` keeps a program's.")

    def action_copy(self) -> None:
        row = self._session()
        if row is not None:
            self.program.copy(plain(row.name), "the session's id, for compare, ls and session:")
