"""The roofline of the device whose tuning is under the cursor of the table below it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rocm_tui.harmless import plain
from rocm_tui.render import detail as detail_lines
from rocm_tui.render import plot as log_plot
from rocm_tui.render.plot import Axis, Curve, Mark
from rocm_tui.report.roofline import Kind, NoPeak, Peak, Point, Roofline, attainable
from rocm_tui.session.numbers import throughput
from rocm_tui.widgets.line_view import Line, LineView, Span

WORDS: dict[Kind, str] = {
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
        found = self._roofline
        if found is None:
            return []
        head = detail_lines.filled(about(found, self._point), width)
        room = self.size.height - 1 - log_plot.BESIDES
        if not found.points or room < 3:
            return [head]
        return [head, *_plot(found, self._point, width - log_plot.PADDING, room)]


def about(found: Roofline, point: Point | None) -> Line:
    """The device, its peaks for the arithmetic in question, and who says so."""
    line: list[Span] = [(f" {plain(found.machine.label)}", "title")]
    if isinstance(found.peak, NoPeak):
        return (*line, (f"   no roof: {plain(found.peak.reason)}", "head"))
    flat = found.peak.tflops.get(point.kind) if point else None
    if point is not None and flat is not None:
        line.append((f"   {throughput(flat)} TFLOP/s {WORDS[point.kind]}", "head"))
    told = f" · {_bandwidth(found.peak)} · {plain(found.peak.source)}"
    return (*line, (told, "head"))


def _bandwidth(peak: Peak) -> str:
    return f"{peak.gbs / 1e3:.1f} TB/s" if peak.gbs >= 1e3 else f"{peak.gbs:.0f} GB/s"


def _plot(found: Roofline, point: Point | None, width: int, height: int) -> list[Line]:
    across = [one.intensity for one in found.points]
    up = [one.tflops for one in found.points]
    curves: list[Curve] = []
    if isinstance(found.peak, Peak):
        kinds = _kinds(found.points, point)
        flats = [flat for kind in kinds if (flat := found.peak.tflops.get(kind))]
        up += flats
        across += [flat * 1e3 / found.peak.gbs for flat in flats]
        curves = [Curve(partial(attainable, found.peak, kind), "rail") for kind in kinds]
        curves[:1] = [Curve(curve.value, "") for curve in curves[:1]]
    x, y = log_plot.axis(across, width), log_plot.axis(up, height, 1.6)
    marks = [Mark(one.intensity, one.tflops, "•", "dim") for one in found.points]
    if point is not None:
        marks = [*_room(y, point), *marks, Mark(point.intensity, point.tflops, "◆", "good")]
    left = f"; {found.left_out} left out, whose operations are not known" if found.left_out else ""
    return log_plot.draw(x, y, curves, marks, f"TFLOP/s against FLOP/byte{left}")


def _room(y: Axis, point: Point) -> list[Mark]:
    """What the point lacks to its roof, as a dotted line."""
    if point.roof is None or point.roof <= point.tflops:
        return []
    rows = range(y.cell(point.tflops) + 1, y.cell(point.roof))
    return [Mark(point.intensity, y.value(row + 0.5), "┊", "rail") for row in rows]


def _kinds(points: Sequence[Point], point: Point | None) -> list[Kind]:
    """The kinds of arithmetic of the points, that of the highlighted one first."""
    first = [point.kind] if point else []
    return list(dict.fromkeys([*first, *(one.kind for one in points)]))
