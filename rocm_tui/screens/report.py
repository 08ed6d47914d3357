"""Report: what all that is watched says together, and how much of the hardware it uses."""

from __future__ import annotations

from asyncio import sleep, to_thread
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from rocm_tui.compare.comparison import whole
from rocm_tui.compare.types import Part
from rocm_tui.render import pages as report_cells
from rocm_tui.render.pages import PAGES, Page
from rocm_tui.report.job import report
from rocm_tui.report.roofline import Machine, NoPeak, Peak, Point, Roofline, rooflines
from rocm_tui.screens.base import BaseScreen
from rocm_tui.screens.watch import WatchScreen
from rocm_tui.session.cache_headers import device_names
from rocm_tui.widgets.line_view import LineView
from rocm_tui.widgets.one_line import Key, KeyBar
from rocm_tui.widgets.report_page import PageBar, ReportPage
from rocm_tui.widgets.roofline_view import RooflineView

if TYPE_CHECKING:
    from rocm_tui.session.model import Row

_EVERY = 1.0
"""Seconds between two reports while tunings keep coming."""


@dataclass(frozen=True, slots=True)
class _Found:
    pages: Mapping[str, Page]
    points: tuple[tuple[Roofline, Point], ...]


def _look(part: Part, measured: Mapping[Machine, Peak]) -> _Found:
    headers = device_names({source for row in part.rows for source in row.tuning.sources})
    found = rooflines(part.rows, part.sessions, measured, headers)
    points = report_cells.by_share(found)
    return _Found(report_cells.pages(report(part), points), tuple(points))


class ReportScreen(BaseScreen):
    """A page for each question; the report is made off the event loop, and anew with the model."""

    CSS_PATH = "report.tcss"
    AUTO_FOCUS = "#saved"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(at), f"page('{name}')", name.capitalize(), show=False, id=f"report.{name}")
            for at, name in enumerate(PAGES, start=1)
        ),
        Binding("tab,l,right", "turn(1)", "Next page", show=False, id="report.next"),
        Binding("shift+tab,h,left", "turn(-1)", "Page before", show=False, id="report.before"),
        Binding("m", "measure", "Measure the roof", id="report.measure"),
        Binding("y", "copy", "Copy the tuning's id", id="report.copy"),
        Binding("escape", "app.pop_screen", "Back", id="report.back"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._page = "saved"
        self._points: tuple[tuple[Roofline, Point], ...] = ()
        self._counts: dict[str, int] = {}
        self._busy = self._stale = False

    def compose_body(self) -> ComposeResult:
        yield PageBar(id="pages")
        yield RooflineView(id="plot")
        for name, columns in PAGES.items():
            yield ReportPage(columns, id=name)

    def on_mount(self) -> None:
        self.action_page(self._page)
        self.update()

    def page(self, name: str) -> ReportPage:
        return self.query_one(f"#{name}", ReportPage)

    def update(self) -> None:
        """The model has changed."""
        if self._busy:
            self._stale = True
        else:
            self._busy = True
            self.run_worker(self._follow(), group="report")

    async def _follow(self) -> None:
        while True:
            self._stale = False
            part = whole("", self.program.feed.model)
            measured = dict(self.program.peaks)
            found = await to_thread(_look, Part("", part.rows, dict(part.sessions)), measured)
            self._show(found)
            if not self._stale:
                break
            await sleep(_EVERY)
        self._busy = False

    def _show(self, found: _Found) -> None:
        self._points = found.points
        for name, page in found.pages.items():
            self.page(name).show(page)
            self._counts[name] = page.count
        self._describe()

    def _describe(self) -> None:
        rows = self.program.feed.model.rows()
        self.show_title("Report", [f"{len(rows)} tunings" if len(rows) != 1 else "1 tuning"])
        pages: list[Key] = [
            (str(at), f"{name} {self._counts.get(name, '')}".strip(), f"page('{name}')")
            for at, name in enumerate(PAGES, start=1)
        ]
        self.query_one("#pages", PageBar).open(f"page('{self._page}')", pages)
        keys: list[Key] = [("tab", "next page", "turn(1)"), ("enter", "in Watch", "open")]
        keys += [("m", "measure the roof", "measure")] if self._unmeasured else []
        keys += [("y", "copy id", "copy"), ("esc", "back", "app.pop_screen")]
        keys += [("?", "help", "app.help"), ("q", "quit", "app.quit")]
        self.query_one("#keys", KeyBar).show(keys)
        self._plot()

    def _plot(self) -> None:
        shown = self._current
        plot = self.query_one("#plot", RooflineView)
        plot.display = self._page == "roofline" and shown is not None
        if shown is not None:
            plot.put(*shown)

    @property
    def _current(self) -> tuple[Roofline, Point] | None:
        """The tuning under the cursor of the roofline's table."""
        at = self.page("roofline").cursor
        return self._points[at] if at < len(self._points) else None

    @property
    def _unmeasured(self) -> Machine | None:
        """The device of the open page whose roof is not known."""
        shown = self._current if self._page == "roofline" else None
        return shown[0].machine if shown and isinstance(shown[0].peak, NoPeak) else None

    @on(LineView.CursorMoved, "#roofline")
    def _moved(self) -> None:
        self._describe()

    # Keys.

    def action_page(self, name: str) -> None:
        """Open this page."""
        self._page = name
        for other in PAGES:
            self.page(other).display = other == name
        self.set_focus(self.page(name))
        self._describe()

    def action_turn(self, by: int) -> None:
        names = list(PAGES)
        self.action_page(names[(names.index(self._page) + by) % len(names)])

    @on(LineView.Chosen)
    def action_open(self) -> None:
        """Go to the tuning in Watch."""
        row = self.page(self._page).current
        if row is not None:
            self.app.pop_screen()
            watch = self.app.screen
            if isinstance(watch, WatchScreen):
                watch.go_to(row)

    def action_copy(self) -> None:
        row: Row | None = self.page(self._page).current
        if row is not None:
            self.program.copy(row.id, "the tuning's id, for show, pin and verify")

    def action_measure(self) -> None:
        machine = self._unmeasured
        if machine is not None:
            from rocm_tui.screens.measuring_peak import measure_peak

            # A worker of the program: the result counts even if this screen is left meanwhile.
            self.program.run_worker(measure_peak(self.program, machine), group="peak")
