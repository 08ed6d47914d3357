"""Sources: every file that is read, how far, and what could not be used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import BindingType

from backend.counted import counted
from backend.model.session import Fault
from rocm_tui.harmless import plain
from rocm_tui.ingest.records import SourceStatus
from rocm_tui.render.problems import Trouble, troubles
from rocm_tui.render.table import Field, cells
from rocm_tui.session import numbers as fmt
from rocm_tui.tui import tunableop
from rocm_tui.tui.base import BaseScreen
from rocm_tui.tui.keys import footer_keys, key
from rocm_tui.tui.widgets.grid import Grid
from rocm_tui.tui.widgets.one_line import OneLine

if TYPE_CHECKING:  # types only: it is loaded with the first device
    from rocm_tui.tui.widgets.device_strip import DeviceStrip

_EVERY = 1.0
"""Seconds between two updates of how far each source has been read, while this screen is open."""

_MOST = 1000
"""The maximum number of listed problems: nobody reads more, and each takes time whenever another is
added."""

_STATE: dict[str, str] = {
    "following": "accent",
    "reading": "strong",
    "waiting": "dim",
    "not read": "dim",
    "unreadable": "bad",
}


def _lag(status: SourceStatus) -> int:
    return 0 if status.state == "not read" else max(0, status.size - status.read)


def _lag_text(status: SourceStatus) -> str:
    """Return the lag; empty for a file that is not read at all."""
    return "" if status.state == "not read" else fmt.size(_lag(status)) if _lag(status) else "none"


def _where(trouble: Trouble) -> str:
    problem = trouble.problem
    name = problem.source.rsplit("/", 1)[-1]
    return plain(name if problem.line is None else f"{name}:{problem.line}")


SOURCES: tuple[Field[SourceStatus], ...] = (
    Field(
        "state", "STATE", 10, 10, text=lambda source: source.state,
        style=lambda source: _STATE.get(source.state, ""),
        about="reading, following its end, waiting for it to appear, not read (its format), "
        "unreadable",
    ),
    Field(
        "format", "FORMAT", 9, 14, good=14, text=lambda source: source.format or "unknown",
        about="which log, cache or table it is",
    ),
    Field(
        "size", "SIZE", 8, 8, drop=3, right=True, style="dim",
        text=lambda source: "" if source.format == "folder" else fmt.size(source.size),
        about="bytes of the file",
    ),
    Field(
        "lag", "LAG", 8, 8, right=True,
        text=_lag_text,
        style=lambda source: "warn" if _lag(source) else "dim",
        about="bytes that have not been read yet",
    ),
    Field(
        "problems", "PROBLEMS", 8, 8, drop=2, right=True,
        text=lambda source: str(source.problems or ""), style="warn",
        about="parts of the file that could not be used; listed below",
    ),
    Field(
        "by", "BY", 7, 7, drop=5, text=lambda source: source.watched_by, style="dim",
        about="how changes are noticed: reported by the system, or polled",
    ),
    Field(
        "path", "PATH", 20, 120, good=30, text=lambda source: plain(source.path),
        about="where it is",
    ),
    Field(
        "words", "SEARCHED", 16, 90, drop=1, text=lambda source: plain(source.words), style="dim",
        about="how much of a folder is read, what is left out, and why",
    ),
)  # fmt: skip
"""The columns of a source."""
PROBLEMS: tuple[Field[Trouble], ...] = (
    Field("where", "WHERE", 16, 32, text=_where, style="dim", about="file and line"),
    Field(
        "what", "PROBLEM", 30, 200, text=lambda trouble: trouble.what,
        about="what could not be used, and why",
    ),
)  # fmt: skip


class SourcesScreen(BaseScreen):
    """The sources above, the problems below."""

    PLACE = "Sources"
    CSS_PATH = "lists.tcss"
    AUTO_FOCUS = "#sources"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("tab", "app.focus_next", "sources.other", "between the sources and the problems",
            footer="problems"),
        key("y", "copy", "sources.copy", "copy the path or the problem", footer="copy"),
        key("t", "tune", "sources.tune",
            "tune the products that a log says tuned tables lack; asks first"),
        key("escape", "back", "sources.back", "back"),
    ]  # fmt: skip

    def compose_body(self) -> ComposeResult:
        nothing = "No file yet: `rocm-tui watch FILE` reads logs, caches and tables."
        yield Grid(SOURCES, nothing, wraps=("words",), id="sources")
        yield OneLine(id="about")
        yield Grid(PROBLEMS, "No problem.", wraps=("where", "what"), id="problems")

    def on_mount(self) -> None:
        self._statuses: list[SourceStatus] = []
        self._problems: list[Trouble] = []
        self.update()
        self.set_interval(_EVERY, self.update)

    def update(self) -> None:
        """Show how far everything has been read."""
        self._statuses = list(self.program.feed.watcher.sources())
        names = [status.path for status in self._statuses]
        self._sources.put([cells(SOURCES, status) for status in self._statuses], names)
        missed = [Fault(log.path, log.line) for log in self.program.missed]
        problems = troubles([*missed, *self._device_problems()])
        problems += troubles(self.program.feed.model.problems)[::-1]
        if problems != self._problems:
            self._problems = problems
            self._trouble.put([cells(PROBLEMS, trouble) for trouble in problems[:_MOST]])
        tune = [("t", "tune missed", "tune")] if self.program.missed else []
        self.show_keys([*footer_keys(self.BINDINGS), *tune])
        count = len(self._statuses)
        self.show_title([counted(count, "source")])
        self._describe()

    def _device_problems(self) -> list[Fault]:
        """Return the faults of devices that the strip on another screen cannot read."""
        strips = (strip for screen in self.app.screen_stack for strip in screen.query("#devices"))
        return [fault for strip in strips for fault in cast("DeviceStrip", strip).troubles()]

    @property
    def _sources(self) -> Grid:
        return self.query_one("#sources", Grid)

    @property
    def _trouble(self) -> Grid:
        return self.query_one("#problems", Grid)

    @property
    def _source(self) -> SourceStatus | None:
        """The source under the cursor."""
        return self._sources.pick(self._statuses)

    @property
    def _problem(self) -> Trouble | None:
        """The problem under the cursor, if the problems have the focus."""
        return self._trouble.pick(self._problems) if self.focused is self._trouble else None

    def _describe(self) -> None:
        count = len(self._problems)
        text = f"{counted(count, 'problem')}, newest first" if count else "Problems"
        text += f", {_MOST} shown" if count > _MOST else ""
        self.query_one("#about", OneLine).put(((f" {text}", "head"),))

    def action_tune(self) -> None:
        """The misses of the log under the cursor, or of the only log that has any."""
        place = self._problem.problem.source if self._problem else ""
        place = place or (self._source.path if self._source is not None else "")
        missed = self.program.missed
        here = [log for log in missed if Path(log.path).absolute() == Path(place).absolute()]
        if not missed:
            self.program.warn("No log here says that a tuned table lacked a product.")
        elif here or len(missed) == 1:
            self.program.act(tunableop.tune_missed, (here or missed)[0])
        else:
            self.program.warn("Several logs missed products: go to the line of one (tab).")

    def action_copy(self) -> None:
        if self._problem is not None:
            self.program.copy(self._problem.what, "the problem")
        elif self._source is not None:
            self.program.copy(self._source.path, "the path")
