"""Report: a summary of everything that is watched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from backend.counted import counted
from rocm_tui.compare.comparison import inductors, of_sessions
from rocm_tui.compare.types import TuningSet
from rocm_tui.harmless import plain
from rocm_tui.render.pages import PAGES, Page, pages
from rocm_tui.render.table import Column, Line, wrapped
from rocm_tui.report.job import report, scopes
from rocm_tui.session.model import Row
from rocm_tui.tui.base import BaseScreen
from rocm_tui.tui.keys import Key, key
from rocm_tui.tui.screens.watch import back_to_watch
from rocm_tui.tui.widgets.grid import Grid
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import PageBar


class ReportPage(Grid):
    """A table and, in the lines below its rows, the sentences about it."""

    def __init__(self, columns: Sequence[Column], *, id: str) -> None:
        super().__init__(columns, "", id=id)
        self._page: Page | None = None
        self._sentences: list[Line] = []

    def show(self, page: Page) -> None:
        self._page = page
        self.put(page.cells)

    @property
    def current(self) -> Row | None:
        """The tuning of the line under the cursor."""
        return self.pick(self._page.rows) if self._page else None

    def heading(self, width: int) -> list[Line]:
        if self._page is None:
            return []
        sentences = self._page.sentences
        self._sentences = [()] if self._page.cells and sentences else []
        for text, style in sentences:
            self._sentences += [((part, style),) for part in wrapped(text, width - 3)]
        return super().heading(width)

    def count(self) -> int:
        return super().count() + len(self._sentences)

    def line(self, index: int, width: int) -> Line:
        rows = super().count()
        return super().line(index, width) if index < rows else self._sentences[index - rows]

    @property
    def hides_sentences(self) -> bool:
        """Whether some of the sentences are below what is seen."""
        return bool(self._sentences) and self.top + self.room < self.count()

    def on_resize(self) -> None:
        """Let the screen name the keys again: the sentences may be in view now, or no longer."""
        super().on_resize()
        self.post_message(self.CursorMoved(self))

    def empty(self, width: int) -> list[Line]:
        return [(), (("  Reading…", "dim"),)] if self._page is None else []


_EVERY = 1.0
"""Seconds between two reports while tunings keep arriving."""


_About = tuple[str, str]
"""The kind and the name of a report's subject."""


@dataclass(frozen=True, slots=True)
class _Contents:
    pages: Mapping[str, Page]
    tunings: int
    scopes: tuple[_About, ...]


def scope_facts(at: _About, every: Sequence[_About]) -> list[str]:
    """Return `session 2 of 3` for the report of one session; else the count of each kind."""
    kinds = {"system": "machine", "session": "session"}
    if at[0] in kinds:
        alike = [scope for scope in every if scope[0] == at[0]]
        where = alike.index(at) + 1 if at in alike else 0
        return [f"{kinds[at[0]]} {where:,} of {len(alike):,}"] if where else []
    numbers = {kind: sum(scope[0] == kind for scope in every) for kind in kinds}
    return [counted(number, kinds[kind]) for kind, number in numbers.items() if number]


def _look(whole: TuningSet, about: _About) -> _Contents:
    parts = scopes(whole)
    part = next((s.part for s in parts if (s.kind, s.name) == about), whole)
    every = tuple((scope.kind, scope.name) for scope in parts)
    return _Contents(pages(report(part)), len(part.rows), every)


_SCOPES = "the report of another machine or session, or of all"


class ReportScreen(BaseScreen):
    """A page for each question; the report is computed outside of the event loop, again whenever
    the model changes."""

    PLACE = "Report"
    CSS_PATH = "lists.tcss"
    AUTO_FOCUS = "#saved"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            key(f"alt+{at}", f"page('{name}')", f"report.{name}", f"open the page {name}")
            for at, name in enumerate(PAGES, start=1)
        ),
        key("tab,l,right", "turn(1)", "report.next", "the next page"),
        key("shift+tab,h,left", "turn(-1)", "report.before", "the page before"),
        key("right_square_bracket", "scope(1)", "report.scope", _SCOPES),
        key("left_square_bracket", "scope(-1)", "report.scope_before", _SCOPES),
        key("y", "copy", "report.copy", "copy the tuning's id"),
        key("escape", "back", "report.back", "back"),
    ]  # fmt: skip

    def __init__(self, name: str = "", ids: Sequence[str] = ()) -> None:
        """Report on these sessions, called `name`; without any, on everything that is watched."""
        super().__init__()
        self._called, self._ids = name, frozenset(ids)
        self._scope: _About = ("all", "")
        self._scopes: tuple[_About, ...] = (self._scope,)
        self._page = "saved"
        self._counts: dict[str, int] = {}
        self._count = 0

    def compose_body(self) -> ComposeResult:
        yield PageBar(id="pages")
        for name, columns in PAGES.items():
            yield ReportPage(columns, id=name)

    def on_mount(self) -> None:
        self.action_page(self._page)
        self.update()

    def page(self, name: str) -> ReportPage:
        return self.query_one(f"#{name}", ReportPage)

    def update(self) -> None:
        """Compute the report again after the model has changed."""
        self.read_latest(self._compute, pause=_EVERY)

    async def _compute(self) -> None:
        part = self._part
        frozen = TuningSet("", part.rows, dict(part.sessions), took=part.took)
        self._show(await self.in_thread(_look, frozen, self._scope))

    @property
    def _part(self) -> TuningSet:
        model = self.program.feed.model
        return of_sessions(self._called, self._ids, model) if self._ids else inductors("", model)

    def _show(self, contents: _Contents) -> None:
        self._count, self._scopes = contents.tunings, contents.scopes
        for name, page in contents.pages.items():
            self.page(name).show(page)
            self._counts[name] = page.count
        self._describe()

    @on(LineView.CursorMoved)
    def _describe(self) -> None:
        kind, name = self._scope
        about = f"{'session ' * (kind == 'session')}{plain(name, 60)}" if name else ""
        about = about or (f"session {plain(self._called)}" if self._called else "")
        facts = [counted(self._count, "tuning")]
        facts += scope_facts(self._scope, self._scopes)
        self.show_title(facts, about)
        pages: list[Key] = [
            ("", f"{name} {self._counts.get(name, '')}".strip(), f"page('{name}')")
            for name in PAGES
        ]
        self.query_one("#pages", PageBar).open(f"page('{self._page}')", pages)
        page = self.page(self._page)
        keys: list[Key] = [("tab", "next page", "turn(1)")]
        keys += [("enter", "show in Watch", "open")] if page.current is not None else []
        keys += [("[ ]", "by session", "scope(1)")] if len(self._scopes) > 1 else []
        keys += [("G", "summary", "summary")] if page.hides_sentences else []
        keys += [("y", "copy id", "copy")] if page.current is not None else []
        self.show_keys(keys)

    # Keys.

    def action_page(self, name: str) -> None:
        """Open this page."""
        self._page = name
        for other in PAGES:
            self.page(other).display = other == name
        self.set_focus(self.page(name))
        self._describe()

    def action_summary(self) -> None:
        """Go to the sentences below the table."""
        self.page(self._page).action_move_to(-1)

    def action_turn(self, by: int) -> None:
        names = list(PAGES)
        self.action_page(names[(names.index(self._page) + by) % len(names)])

    @on(LineView.Chosen)
    def action_open(self) -> None:
        """Go to the tuning in Watch."""
        if (row := self.require(self.page(self._page).current, "tuning")) is not None:
            back_to_watch(self.app).go_to(row)

    def action_scope(self, by: int) -> None:
        """Report on the next machine or session, or on all."""
        if len(self._scopes) < 2:
            self.program.warn("There is one machine and one session: the report is about all.")
            return
        at = self._scopes.index(self._scope) if self._scope in self._scopes else 0
        self._scope = self._scopes[(at + by) % len(self._scopes)]
        self._describe()
        self.update()

    def action_copy(self) -> None:
        if (row := self.require(self.page(self._page).current, "tuning")) is not None:
            self.program.copy(row.id, "the tuning's id, for show, pin and verify")
