"""Sessions: the processes that tuned or do so now, what each does, and two of them compared."""

from __future__ import annotations

import time
from asyncio import to_thread
from collections.abc import Sequence
from textwrap import wrap
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from backend.counted import counted
from rocm_tui.compare.comparison import compare, of_sessions
from rocm_tui.compare.types import Comparison, Pair, TuningSet
from rocm_tui.harmless import plain
from rocm_tui.render.compare import PAIRS, pairs_shown, summary
from rocm_tui.render.sessions import SESSIONS, command_text, ended_text, moment, words_text
from rocm_tui.render.table import Cells, Line, cells
from rocm_tui.report.sessions import SessionRow, session_rows
from rocm_tui.session.model import Row
from rocm_tui.tui.base import BaseScreen
from rocm_tui.tui.keys import key
from rocm_tui.tui.screens.watch import back_to_watch
from rocm_tui.tui.widgets.grid import Grid
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import OneLine

_MARK = "✓ "
Named = tuple[str, Sequence[str]]
"""The name of a session or run, and the ids of its processes."""


class SessionsScreen(BaseScreen):
    """The latest first; the processes of one run stand together."""

    CSS_PATH = "lists.tcss"
    AUTO_FOCUS = "#sessions"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("enter", "open", "sessions.open", "its tunings, in Watch", footer="its tunings"),
        key("space", "mark", "sessions.mark", "mark the session, to compare it", footer="mark"),
        key("c", "compare", "sessions.compare",
            "compare two that are marked, or the marked one with this", footer="compare"),
        key("e", "report", "sessions.report", "the report of this session alone", footer="report"),
        key("O", "output", "sessions.output", "the output of its program, if a screen started it",
            footer="output"),
        key("y", "copy", "sessions.copy", "copy the session's id", footer="copy id"),
        key("escape", "app.pop_screen", "sessions.back", "back"),
    ]  # fmt: skip

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
        """Return its session id; for the row of a whole run the ids of all its processes."""
        run = row.process.run
        if row.member or not run:
            return [row.session.id]
        return [other.session.id for other in self._rows if other.process.run == run]

    # Keys.

    @on(LineView.Chosen)
    def action_open(self) -> None:
        """Show its rows alone in Watch."""
        row = self.require(self.current, "session")
        if row is not None:
            whole = len(self._ids(row)) > 1
            name = row.process.run if whole else row.name
            back_to_watch(self.app).filter_by(f"session:{name}")

    def action_mark(self) -> None:
        row = self.require(self.current, "session")
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
        named = [(session.name, self._ids(session)) for session in (a, b)]
        self.app.push_screen(SessionComparisonScreen(*named))

    def action_report(self) -> None:
        row = self.require(self.current, "session")
        if row is not None:
            self.program.open_screen("report", row.name, self._ids(row))

    def action_output(self) -> None:
        row = self.require(self.current, "session")
        if row is None:
            return
        if self.program.programs.choose(row.process.run or row.session.id):
            self.program.open_screen("output")
        else:
            self.program.warn("Its output is not kept: `rocm-tui watch -- CMD` keeps a program's.")

    def action_copy(self) -> None:
        row = self.require(self.current, "session")
        if row is not None:
            self.program.copy(plain(row.name), "the session's id, for compare, ls and session:")


class PairsTable(Grid):
    """The pairs below what can be said of all of them."""

    def __init__(self) -> None:
        super().__init__(PAIRS, "", id="pairs")
        self._names: list[str] = []
        self._sentences: list[str] = ["Comparing…"]
        self.pairs: list[Pair] = []

    def head(self, names: list[str]) -> None:
        """Set the lines that describe A and B."""
        self._names = names
        self.sync()

    def show(self, comparison: Comparison) -> None:
        self._sentences = summary(comparison)
        self.pairs = pairs_shown(comparison)
        self.put([cells(PAIRS, pair) for pair in self.pairs])

    def heading(self, width: int) -> list[Line]:
        lines: list[Line] = [(), *((("  " + name, "strong"),) for name in self._names), ()]
        for text in self._sentences:
            lines += [((f"  {part}", ""),) for part in wrap(text, width - 2)]
        return [*lines, (), *(super().heading(width) if self.pairs else ())]

    def empty(self, width: int) -> list[Line]:
        return []


class SessionComparisonScreen(BaseScreen):
    """The problems that became slower from session A to B; compared once, off the event loop."""

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
        yield PairsTable()

    def on_mount(self) -> None:
        self.show_title("Compare", [f"A {plain(self._a[0])} · B {plain(self._b[0])}"])
        model = self.program.feed.model
        sides = [(self._a, "A"), (self._b, "B")]
        self.query_one(PairsTable).head([self._about(label, named) for named, label in sides])
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
        comparison = await to_thread(compare, a, b)
        for table in self.query(PairsTable):  # none where this screen was left
            table.show(comparison)

    @property
    def current(self) -> Row | None:
        table = self.query_one(PairsTable)
        pair = table.pick(table.pairs)
        return pair.b.row if pair is not None else None

    @on(LineView.Chosen)
    def action_open(self) -> None:
        """Go to the tuning in Watch."""
        row = self.require(self.current, "tuning")
        if row is not None:
            back_to_watch(self.app).go_to(row)

    def action_copy(self) -> None:
        self.program.copy(f"rocm-tui compare {self._a[0]} {self._b[0]}", "the command")
