"""Report: what all that is watched says together, and how much of the hardware it uses."""

from __future__ import annotations

from asyncio import sleep, to_thread
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from rocm_tui.compare.comparison import whole
from rocm_tui.compare.types import Part
from rocm_tui.render import pages as report_cells
from rocm_tui.render.pages import PAGES, Page
from rocm_tui.report.job import report
from rocm_tui.report.roofline import NoPeak, Peak, Point, Roofline, TunedDevice, rooflines
from rocm_tui.session.cache_headers import device_names
from rocm_tui.tui.keys import key
from rocm_tui.tui.screens.base import BaseScreen
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import Key
from rocm_tui.tui.widgets.report_page import PageBar, ReportPage, RooflineView

_EVERY = 1.0
"""Seconds between two reports while tunings keep coming."""


@dataclass(frozen=True, slots=True)
class _Contents:
    pages: Mapping[str, Page]
    points: tuple[tuple[Roofline, Point], ...]


def _look(part: Part, measured: Mapping[TunedDevice, Peak]) -> _Contents:
    headers = device_names({source for row in part.rows for source in row.tuning.sources})
    curves = rooflines(part.rows, part.sessions, measured, headers)
    points = report_cells.by_share(curves)
    return _Contents(report_cells.pages(report(part), points), tuple(points))


class ReportScreen(BaseScreen):
    """A page for each question; the report is made off the event loop, and anew with the model."""

    CSS_PATH = "lists.tcss"
    AUTO_FOCUS = "#saved"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            key(str(at), f"page('{name}')", f"report.{name}", f"the page: {name}")
            for at, name in enumerate(PAGES, start=1)
        ),
        key("tab,l,right", "turn(1)", "report.next", "the next page"),
        key("shift+tab,h,left", "turn(-1)", "report.before", "the page before"),
        key(
            "m",
            "measure",
            "report.measure",
            "measure a roof that is not known",
        ),
        key("y", "copy", "report.copy", "copy the tuning's id"),
        key("escape", "app.pop_screen", "report.back", "back"),
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
            contents = await to_thread(_look, Part("", part.rows, dict(part.sessions)), measured)
            self._show(contents)
            if not self._stale:
                break
            await sleep(_EVERY)
        self._busy = False

    def _show(self, contents: _Contents) -> None:
        self._points = contents.points
        for name, page in contents.pages.items():
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
        self.show_keys([*keys, ("y", "copy id", "copy"), ("esc", "back", "app.pop_screen")])
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
    def _unmeasured(self) -> TunedDevice | None:
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
            self.program.show_row(row)

    def action_copy(self) -> None:
        row = self.page(self._page).current
        if row is not None:
            self.program.copy(row.id, "the tuning's id, for show, pin and verify")

    def action_measure(self) -> None:
        machine = self._unmeasured
        if machine is not None:
            self.program.ask.measure_peak(machine)
