"""Report: what all that is watched says together, and how much of the hardware it uses.

Its pages, the line of their names, and the roofline above the table of points.
"""

from __future__ import annotations

from asyncio import sleep, to_thread
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from textwrap import wrap
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from rocm_tui.compare.comparison import of_sessions, whole
from rocm_tui.compare.types import Part
from rocm_tui.harmless import plain
from rocm_tui.render import detail as detail_lines
from rocm_tui.render import pages as report_cells
from rocm_tui.render import plot
from rocm_tui.render.pages import PAGES, Page
from rocm_tui.render.plot import Axis, Curve, Mark
from rocm_tui.render.table import Column, Line, Span
from rocm_tui.report.job import report
from rocm_tui.report.roofline import Point, Roofline, rooflines
from rocm_tui.session.model import Row
from rocm_tui.session.numbers import throughput
from rocm_tui.session.peaks import MathKind, NoPeak, Peak, TunedDevice, attainable
from rocm_tui.session.systems import device_names
from rocm_tui.tui.keys import key
from rocm_tui.tui.screens.base import BaseScreen
from rocm_tui.tui.widgets.line_view import Grid, LineView
from rocm_tui.tui.widgets.one_line import Key
from rocm_tui.tui.widgets.page_bar import PageBar


class ReportPage(Grid):
    """A table below sentences; columns without content are left out."""

    def __init__(self, columns: Sequence[Column], *, id: str) -> None:
        super().__init__(columns, "", id=id)
        self._page: Page | None = None

    def show(self, page: Page) -> None:
        self._page = page
        self.put(page.cells)

    @property
    def current(self) -> Row | None:
        """The tuning that the line under the cursor is about."""
        page = self._page
        return page.rows[self.at] if page and self.at < len(page.rows) else None

    def wants(self) -> dict[str, int]:
        return {key: want for key, want in super().wants().items() if want}

    def heading(self, width: int) -> list[Line]:
        if self._page is None:
            return []
        sentences: list[Line] = []
        for text, style in self._page.sentences:
            sentences += [((f" {part}", style),) for part in wrap(text, width - 2)]
        above: list[Line] = [(), *sentences, ()] if sentences else []
        return [*above, *super().heading(width)] if self._page.cells else above

    def empty(self, width: int) -> list[Line]:
        return [(), (("  Reading…", "dim"),)] if self._page is None else []


WORDS: dict[MathKind, str] = {
    "fp64": "fp64",
    "fp32": "fp32",
    "tf32": "tf32",
    "half": "fp16/bf16",
    "fp8": "fp8",
    "int8": "int8",
}


class RooflineView(LineView, can_focus=False):
    """A plot that fills the widget: the roofs of one device, its tunings, and one of them."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._roofline: Roofline | None = None
        self._point: Point | None = None

    def put(self, roofline: Roofline | None, point: Point | None) -> None:
        """Show this device, with `point` highlighted."""
        self._roofline, self._point = roofline, point
        self.sync()

    def count(self) -> int:
        return 0

    def heading(self, width: int) -> list[Line]:
        roofline = self._roofline
        if roofline is None:
            return []
        head = detail_lines.filled(about(roofline, self._point), width)
        room = self.size.height - 1 - plot.BESIDES
        if not roofline.points or room < 3:
            return [head]
        return [head, *_plot(roofline, self._point, width - plot.PADDING, room)]


def about(roofline: Roofline, point: Point | None) -> Line:
    """The device, its peaks for the arithmetic in question, and who says so."""
    line: list[Span] = [(f" {plain(roofline.machine.label)}", "title")]
    if isinstance(roofline.peak, NoPeak):
        return (*line, (f"   no roof: {plain(roofline.peak.reason)}", "head"))
    flat = roofline.peak.tflops.get(point.kind) if point else None
    if point is not None and flat is not None:
        line.append((f"   {throughput(flat)} {WORDS[point.kind]}", "head"))
    source = f" · {_bandwidth(roofline.peak)} · {plain(roofline.peak.source)}"
    return (*line, (source, "head"))


def _bandwidth(peak: Peak) -> str:
    return f"{peak.gbs / 1e3:.1f} TB/s" if peak.gbs >= 1e3 else f"{peak.gbs:.0f} GB/s"


def _plot(roofline: Roofline, point: Point | None, width: int, height: int) -> list[Line]:
    across = [other.intensity for other in roofline.points]
    up = [other.tflops for other in roofline.points]
    curves: list[Curve] = []
    if isinstance(roofline.peak, Peak):
        kinds = _kinds(roofline.points, point)
        flats = [flat for kind in kinds if (flat := roofline.peak.tflops.get(kind))]
        up += flats
        across += [flat * 1e3 / roofline.peak.gbs for flat in flats]
        curves = [Curve(partial(attainable, roofline.peak, kind), "rail") for kind in kinds]
        curves[:1] = [Curve(curve.value, "") for curve in curves[:1]]
    x, y = plot.axis(across, width), plot.axis(up, height, 1.6)
    marks = [Mark(other.intensity, other.tflops, "•", "dim") for other in roofline.points]
    if point is not None:
        marks = [*_room(y, point), *marks, Mark(point.intensity, point.tflops, "◆", "accent")]
    left = (
        f"; {roofline.left_out} left out, whose operations are not known"
        if roofline.left_out
        else ""
    )
    return plot.draw(x, y, curves, marks, f"TFLOP/s against FLOP/byte{left}")


def _room(y: Axis, point: Point) -> list[Mark]:
    """What the point lacks to its roof, as a dotted line."""
    if point.roof is None or point.roof <= point.tflops:
        return []
    rows = range(y.cell(point.tflops) + 1, y.cell(point.roof))
    return [Mark(point.intensity, y.value(row + 0.5), "┊", "rail") for row in rows]


def _kinds(points: Sequence[Point], point: Point | None) -> list[MathKind]:
    """The kinds of arithmetic of the points, that of the highlighted one first."""
    first = [point.kind] if point else []
    return list(dict.fromkeys([*first, *(other.kind for other in points)]))


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
        key("escape", "back", "report.back", "back"),
    ]

    def __init__(self, name: str = "", ids: Sequence[str] = ()) -> None:
        """Of these sessions, which are called `name`; else of all that is watched."""
        super().__init__()
        self._called, self._ids = name, frozenset(ids)
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
            part = self._part
            measured = dict(self.program.peaks)
            contents = await to_thread(_look, Part("", part.rows, dict(part.sessions)), measured)
            self._show(contents)
            if not self._stale:
                break
            await sleep(_EVERY)
        self._busy = False

    @property
    def _part(self) -> Part:
        model = self.program.feed.model
        return of_sessions(self._called, self._ids, model) if self._ids else whole("", model)

    def _show(self, contents: _Contents) -> None:
        self._points = contents.points
        for name, page in contents.pages.items():
            self.page(name).show(page)
            self._counts[name] = page.count
        self._describe()

    def _describe(self) -> None:
        rows = self._part.rows
        facts = [f"{len(rows)} tunings" if len(rows) != 1 else "1 tuning"]
        facts[:0] = [f"session {plain(self._called)}"] if self._called else []
        self.show_title("Report", facts)
        pages: list[Key] = [
            (str(at), f"{name} {self._counts.get(name, '')}".strip(), f"page('{name}')")
            for at, name in enumerate(PAGES, start=1)
        ]
        self.query_one("#pages", PageBar).open(f"page('{self._page}')", pages)
        keys: list[Key] = [("tab", "next page", "turn(1)"), ("enter", "in Watch", "open")]
        keys += [("m", "measure the roof", "measure")] if self._unmeasured else []
        self.show_keys([*keys, ("y", "copy id", "copy")])
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
        at = self.page("roofline").at
        return self._points[at] if at < len(self._points) else None

    @property
    def _unmeasured(self) -> TunedDevice | None:
        """The device of the open page whose roof is not known, if any source names it."""
        shown = self._current if self._page == "roofline" else None
        unknown = shown is not None and isinstance(shown[0].peak, NoPeak)
        return shown[0].machine if shown and unknown and shown[0].machine.name else None

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
