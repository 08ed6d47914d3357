"""The report's pages, the line of their names, and the roofline above the table of points."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from textwrap import wrap

from rocm_tui.harmless import plain
from rocm_tui.render import detail as detail_lines
from rocm_tui.render import plot
from rocm_tui.render.pages import Page
from rocm_tui.render.plot import Axis, Curve, Mark
from rocm_tui.render.table import Column, Line, Span
from rocm_tui.report.roofline import MathKind, NoPeak, Peak, Point, Roofline, attainable
from rocm_tui.session.model import Row
from rocm_tui.session.numbers import throughput
from rocm_tui.tui.widgets.grid import Grid
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import Key, KeyBar


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
        return page.rows[self.cursor] if page and self.cursor < len(page.rows) else None

    def wants(self) -> dict[str, int]:
        return {key: want for key, want in super().wants().items() if want}

    def heading(self, width: int) -> list[Line]:
        if self._page is None:
            return []
        sentences: list[Line] = []
        for text, style in self._page.said:
            sentences += [((f" {part}", style),) for part in wrap(text, width - 2)]
        above: list[Line] = [(), *sentences, ()] if sentences else []
        return [*above, *super().heading(width)] if self._page.cells else above

    def empty(self, width: int) -> list[Line]:
        return [(), (("  Reading…", "dim"),)] if self._page is None else []


class PageBar(KeyBar):
    """The names of the pages, each with its key and how much it holds; one of them is open."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._open = ""

    def open(self, action: str, keys: Sequence[Key]) -> None:
        """Show these pages; the one with this action is open."""
        self._open = action
        self.show(keys)

    def heading(self, width: int) -> list[Line]:
        line: list[Span] = []
        for key, label, action in self.keys:
            here = action == self._open
            line += [("▌" if here else " ", "title"), (key, "title" if here else "head")]
            line.append((f" {label} ", "title" if here else "head"))
        return [(*line, (" " * width, "head"))]

    def _fitting(self, width: int) -> tuple[Key, ...]:
        return self.keys


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
        line.append((f"   {throughput(flat)} TFLOP/s {WORDS[point.kind]}", "head"))
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
        marks = [*_room(y, point), *marks, Mark(point.intensity, point.tflops, "◆", "good")]
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
