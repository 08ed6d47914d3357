"""Sessions: the processes that tuned or are tuning, what each does, and a comparison of two."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from backend.counted import counted
from rocm_tui.compare.comparison import compare, of_sessions
from rocm_tui.compare.types import TuningSet
from rocm_tui.harmless import plain
from rocm_tui.render.compare import PAIRS, pairs_shown, summary
from rocm_tui.render.pages import Page
from rocm_tui.render.sessions import SESSIONS, ended_text, moment, words_text
from rocm_tui.render.table import Cells, cells
from rocm_tui.report.sessions import SessionRow, session_rows
from rocm_tui.session.model import Row
from rocm_tui.tui.base import BaseScreen
from rocm_tui.tui.keys import key
from rocm_tui.tui.screens.report import ReportPage
from rocm_tui.tui.screens.watch import back_to_watch
from rocm_tui.tui.widgets.grid import Grid
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import OneLine

_MARK = "✓ "
_PAIRS = PAIRS[1:]
"""What the screen shows of them: `enter` opens the tuning, so the id is left out."""
Named = tuple[str, Sequence[str]]
"""The name of a session or run, and the ids of its processes."""

WHY_NONE = "A graph that Inductor loads from its cache tunes nothing again."


class SessionsScreen(BaseScreen):
    """The latest first; the processes of one run are together."""

    PLACE = "Sessions"
    CSS_PATH = "lists.tcss"
    AUTO_FOCUS = "#sessions"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("enter", "open", "sessions.open", "its tunings, in Watch", footer="its tunings"),
        key("space", "mark", "sessions.mark", "mark the session, to compare it", footer="mark"),
        key("c", "compare", "sessions.compare",
            "compare two that are marked, or the marked one with this", footer="compare"),
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
        self._marked: list[str] = []

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
        self._grid.put([self._cells(row) for row in self._rows], names)

    def on_screen_resume(self) -> None:
        self.update()

    def tick(self) -> None:
        """Time has passed."""
        if any(row.activity.state == "waiting" for row in self._rows):
            self._paint()  # they state durations
        self._describe()

    def _cells(self, row: SessionRow) -> Cells:
        line = cells(SESSIONS, row)
        if row.session.id not in self._marked:
            return line
        text, _ = line["name"]
        return {**line, "name": (f"{_MARK}{text}", "accent")}

    @on(LineView.CursorMoved)
    def _describe(self) -> None:
        rows = self._rows
        live = sum(row.activity.lives for row in rows)
        facts = [counted(len(rows), "session")]
        facts += [f"{live} alive"] if live else []
        facts += [f"{len(self._marked)} marked"] if self._marked else []
        self.show_title(facts)
        row, text = self.current, " Sessions"
        if row is not None:
            text = f" {ended_text(row, time.time())} · {words_text(row.session.argv)}"
        self.query_one("#about", OneLine).put(((text, "head"),))
        self.sync_keys()

    def applies(self, action: str) -> bool:
        """Comparing needs two sessions; an output needs a program started by a screen."""
        row = self.current
        if row is None:
            return False
        if action == "compare":
            return len(self._marked) == 2 or (
                len(self._marked) == 1 and row.session.id not in self._marked
            )
        return self.program.programs.any_known if action == "output" else True

    def _ids(self, row: SessionRow) -> list[str]:
        """Return the session's id; for the row of a whole run the ids of all its processes."""
        run = row.process.run
        if row.member or not run:
            return [row.session.id]
        return [other.session.id for other in self._rows if other.process.run == run]

    def _named(self, row: SessionRow) -> Named:
        """Return the session, or for the row of a whole run the run, as a command takes it."""
        ids = self._ids(row)
        return (row.process.run if len(ids) > 1 else row.name), ids

    # Keys.

    @on(LineView.Chosen)
    def action_open(self) -> None:
        """Show only its rows in Watch."""
        if (row := self.require(self.current, "session")) is not None:
            ids = self._ids(row)
            if not of_sessions(row.name, ids, self.program.feed.model).rows:
                self.program.warn(f"{plain(row.name)} recorded no tuning. {WHY_NONE}")
                return
            back_to_watch(self.app).filter_by(f"session:{self._named(row)[0]}")

    def action_mark(self) -> None:
        if (row := self.require(self.current, "session")) is None:
            return
        id_ = row.session.id
        if id_ in self._marked:
            self._marked.remove(id_)
        else:
            self._marked = [*self._marked[-1:], id_]
        self._grid.action_move(1)
        self.update()

    def action_compare(self) -> None:
        """Compare the two; the earlier one is A."""
        marked = [row for row in self._rows if row.session.id in self._marked]
        here = self.current
        if len(marked) == 1 and here is not None and here not in marked:
            marked.append(here)
        if len(marked) != 2:
            self.program.warn("Mark two sessions with space, then compare them.")
            return
        a, b = sorted(marked, key=lambda row: row.session.started)
        self.app.push_screen(SessionComparisonScreen(self._named(a), self._named(b)))

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


class SessionComparisonScreen(BaseScreen):
    """The problems that became slower from session A to B; compared once, outside of the event
    loop."""

    PLACE = "Two sessions"
    CSS_PATH = "lists.tcss"
    AUTO_FOCUS = "#pairs"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("enter", "open", "session_comparison.open", "the tuning, in Watch", footer="in Watch"),
        key("y", "copy", "session_comparison.copy", "copy the command that prints this",
            footer="copy command"),
        key("escape", "app.pop_screen", "session_comparison.back", "back"),
    ]  # fmt: skip

    def __init__(self, a: Named, b: Named) -> None:
        super().__init__()
        self._a, self._b = a, b

    def compose_body(self) -> ComposeResult:
        yield ReportPage(_PAIRS, id="pairs")

    def on_mount(self) -> None:
        self.show_title([f"A {plain(self._a[0])} · B {plain(self._b[0])}"])
        model = self.program.feed.model
        a, b = (of_sessions(name, set(ids), model) for name, ids in (self._a, self._b))
        self.run_worker(self._compare(a, b))

    def _about(self, label: str, named: Named) -> str:
        """`A  vm-5163  2.13.0  python train.py`."""
        name, ids = named
        session = self.program.feed.model.sessions.get(next(iter(ids), ""))
        if session is None:
            return f"{label}  {plain(name)}"
        when = moment(session.started, time.time())
        torch = f"torch {plain(session.torch)}" if session.torch else ""
        facts = (plain(name), when, torch, words_text(session.argv))
        return f"{label}  {'   '.join(filter(None, facts))}"

    async def _compare(self, a: TuningSet, b: TuningSet) -> None:
        comparison = await self.in_thread(compare, a, b)
        pairs = pairs_shown(comparison)
        sides = ((self._about(label, named), "strong") for label, named in self._sides)
        page = Page(
            (*sides, *((text, "") for text in summary(comparison))),
            tuple(cells(_PAIRS, pair) for pair in pairs),
            tuple(pair.b.row for pair in pairs),
            len(pairs),
        )
        self.query_one(ReportPage).show(page)
        self.sync_keys()

    @property
    def _sides(self) -> tuple[tuple[str, Named], ...]:
        return ("A", self._a), ("B", self._b)

    @property
    def current(self) -> Row | None:
        """The tuning of B that the line under the cursor is about."""
        return self.query_one(ReportPage).current

    def applies(self, action: str) -> bool:
        """Watch has a row only for a pair."""
        return action != "open" or self.current is not None

    @on(LineView.CursorMoved)
    def _moved(self) -> None:
        self.sync_keys()

    @on(LineView.Chosen)
    def action_open(self) -> None:
        """Go to the tuning in Watch."""
        if (row := self.require(self.current, "tuning")) is not None:
            back_to_watch(self.app).go_to(row)

    def action_copy(self) -> None:
        line = self.program.shell.line("compare", self._a[0], self._b[0])
        self.program.copy(line, "the command")
