"""Sources: every file that is read, how far, and what could not be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import DescendantFocus

from rocm_tui.harmless import plain
from rocm_tui.render.problems import Trouble, troubles
from rocm_tui.render.table import Column
from rocm_tui.screens.base import BaseScreen
from rocm_tui.widgets.grid import Cells, Grid
from rocm_tui.widgets.line_view import LineView, Span
from rocm_tui.widgets.one_line import Key, OneLine

if TYPE_CHECKING:
    from rocm_tui.ingest.records import SourceStatus

_EVERY = 1.0
"""Seconds between two looks at how far each source has been read, while this screen is open."""

_MOST = 1000
"""Problems that are listed: nobody reads more, and each costs time whenever one comes."""

_SOURCES = (
    Column("state", "STATE", 10, 10),
    Column("format", "FORMAT", 9, 14),
    Column("size", "SIZE", 8, 8, drop=2, right=True),
    Column("lag", "LAG", 8, 8, right=True),
    Column("problems", "PROBLEMS", 8, 8, drop=1, right=True),
    Column("by", "BY", 7, 7, drop=3),
    Column("path", "PATH", 20, 120),
)
_PROBLEMS = (
    Column("where", "WHERE", 16, 60),
    Column("what", "PROBLEM", 30, 200),
)
_STATE: dict[str, str] = {
    "following": "accent",
    "reading": "strong",
    "waiting": "dim",
    "unreadable": "bad",
}


class SourcesScreen(BaseScreen):
    """The sources above, the problems below."""

    CSS_PATH = "lists.tcss"
    AUTO_FOCUS = "#sources"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "copy", "Copy the path or the problem", id="sources.copy"),
        Binding("tab", "app.focus_next", "Other list", show=False),
        Binding("escape", "app.pop_screen", "Back", id="sources.back"),
    ]
    KEYS: ClassVar[tuple[Key, ...]] = (
        ("tab", "problems", "app.focus_next"),
        ("y", "copy", "copy"),
        ("esc", "back", "app.pop_screen"),
        ("?", "help", "app.help"),
        ("q", "quit", "app.quit"),
    )

    def compose_body(self) -> ComposeResult:
        yield Grid(_SOURCES, "No file yet.", id="sources")
        yield OneLine(id="about")
        yield Grid(_PROBLEMS, "No problem.", id="problems")

    def on_mount(self) -> None:
        self._statuses: list[SourceStatus] = []
        self._problems: list[Trouble] = []
        self.update()
        self.set_interval(_EVERY, self.update)

    def update(self) -> None:
        """Show how far everything has been read."""
        here = self._source
        self._statuses = list(self.program.feed.watcher.sources())
        places = (at for at, one in enumerate(self._statuses) if here and one.path == here.path)
        self._sources.put([_source_cells(s) for s in self._statuses], next(places, None))
        problems = troubles(self.program.feed.model.problems)[::-1]
        if problems != self._problems:
            self._problems = problems
            self._trouble.put([_problem_cells(p) for p in problems[:_MOST]])
        count = len(self._statuses)
        self.show_title("Sources", [f"{count} files" if count != 1 else "1 file"])
        self._tell()

    @property
    def _sources(self) -> Grid:
        return self.query_one("#sources", Grid)

    @property
    def _trouble(self) -> Grid:
        return self.query_one("#problems", Grid)

    @property
    def _source(self) -> SourceStatus | None:
        """The source under the cursor."""
        at = self._sources.cursor
        return self._statuses[at] if at < len(self._statuses) else None

    @property
    def _problem(self) -> Trouble | None:
        """The problem under the cursor, for a person who is among the problems."""
        at = self._trouble.cursor
        there = self.focused is self._trouble and at < len(self._problems)
        return self._problems[at] if there else None

    @on(LineView.CursorMoved)
    @on(DescendantFocus)
    def _moved(self) -> None:
        self._tell()

    def _tell(self) -> None:
        """What the list cuts, in full; else how many problems there are."""
        count = len(self._problems)
        told = f"{count} problem{'s' * (count != 1)}, newest first" if count else "Problems"
        told += f", {_MOST} shown" if count > _MOST else ""
        if self._problem is not None:
            told = self._problem.what
        self.query_one("#about", OneLine).put(((f" {plain(told)}", "head"),))

    def action_copy(self) -> None:
        if self._problem is not None:
            self.program.copy(self._problem.what, "the problem")
        elif self._source is not None:
            self.program.copy(self._source.path, "the path")


def _source_cells(status: SourceStatus) -> Cells:
    lag = max(0, status.size - status.read)
    problems: Span = (str(status.problems), "warn" if status.problems else "dim")
    return {
        "state": (status.state, _STATE.get(status.state, "")),
        "format": (status.format or "unknown", ""),
        "size": ("" if status.format == "folder" else _bytes(status.size), "dim"),
        "lag": (_bytes(lag) if lag else "none", "warn" if lag else "dim"),
        "problems": problems,
        "by": (status.watched_by, "dim"),
        "path": (plain(status.path), ""),
    }


def _problem_cells(trouble: Trouble) -> Cells:
    problem = trouble.problem
    name = problem.source.rsplit("/", 1)[-1]
    where = name if problem.line is None else f"{name}:{problem.line}"
    return {"where": (plain(where), "dim"), "what": (trouble.what, "")}


def _bytes(size: int) -> str:
    """Bytes in powers of 1024: `512 B`, `3.4 KiB`."""
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
