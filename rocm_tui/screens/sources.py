"""Sources: every file that is read, how far, and what could not be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from rocm_tui.format import plain
from rocm_tui.screens.base import BaseScreen
from rocm_tui.widgets.columns import Column
from rocm_tui.widgets.grid import Cells, Grid
from rocm_tui.widgets.line_view import Span
from rocm_tui.widgets.one_line import Key, OneLine

if TYPE_CHECKING:
    from backend.records import Problem
    from rocm_tui.ingest.records import SourceStatus

_EVERY = 1.0
"""Seconds between two looks at how far each source has been read, while this screen is open."""

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
        Binding("y", "copy", "Copy the path", id="sources.copy"),
        Binding("tab", "app.focus_next", "Other list", show=False),
        Binding("escape", "app.pop_screen", "Back", id="sources.back"),
    ]
    KEYS: ClassVar[tuple[Key, ...]] = (
        ("tab", "problems", "app.focus_next"),
        ("y", "copy path", "copy"),
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
        self.update()
        self.set_interval(_EVERY, self.update)

    def update(self) -> None:
        """Show how far everything has been read."""
        self._statuses = list(self.program.feed.watcher.sources())
        self.query_one("#sources", Grid).put([_source_cells(s) for s in self._statuses])
        problems = self.program.feed.model.problems[::-1]
        self.query_one("#problems", Grid).put([_problem_cells(p) for p in problems])
        told = f" {len(problems)} problems, newest first" if problems else " Problems"
        self.query_one("#about", OneLine).put(((told, "head"),))
        count = len(self._statuses)
        self.show_title("Sources", [f"{count} files" if count != 1 else "1 file"])

    def action_copy(self) -> None:
        cursor = self.query_one("#sources", Grid).cursor
        if cursor < len(self._statuses):
            self.program.copy(self._statuses[cursor].path, "the path")


def _source_cells(status: SourceStatus) -> Cells:
    lag = max(0, status.size - status.read)
    problems: Span = (str(status.problems), "warn" if status.problems else "dim")
    return {
        "state": (status.state, _STATE.get(status.state, "")),
        "format": (status.format or "unknown", ""),
        "size": (_bytes(status.size), "dim"),
        "lag": (_bytes(lag) if lag else "none", "warn" if lag else "dim"),
        "problems": problems,
        "by": (status.watched_by, "dim"),
        "path": (plain(status.path), ""),
    }


def _problem_cells(problem: Problem) -> Cells:
    name = problem.source.rsplit("/", 1)[-1]
    where = name if problem.line is None else f"{name}:{problem.line}"
    return {"where": (plain(where), "dim"), "what": (plain(problem.what), "")}


def _bytes(size: int) -> str:
    """Bytes in powers of 1024: `512 B`, `3.4 KiB`."""
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
