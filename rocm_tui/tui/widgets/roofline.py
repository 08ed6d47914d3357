"""The roofline of a device: its roofs, its tunings, and the one under the cursor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from backend.wire.jobs import CacheLevel
from rocm_tui.harmless import plain
from rocm_tui.render import plot
from rocm_tui.render.plot import Axis, Curve, Mark
from rocm_tui.render.table import Line, Span, filled
from rocm_tui.report.roofline import Point, Roofline
from rocm_tui.session.devices import MathKind, NoPeak, Peak, attainable
from rocm_tui.session.numbers import flops, throughput
from rocm_tui.tui.widgets.line_view import LineView

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
        heads = [filled(about(roofline, self._point), width)]
        heads += [*doubt(roofline, self._point)]
        room = self.size.height - len(heads) - plot.BESIDES
        if not roofline.points or room < 3:
            return heads
        return [*heads, *_plot(roofline, self._point, width - plot.PADDING, room)]


def about(roofline: Roofline, point: Point | None) -> Line:
    """The device, its peaks for the arithmetic in question, and who says so."""
    line: list[Span] = [(f" {plain(roofline.machine.label)}", "title")]
    if isinstance(roofline.peak, NoPeak):
        return (*line, (f"   no roof: {plain(roofline.peak.reason)}", "head"))
    flat = roofline.peak.tflops.get(point.kind) if point else None
    if point is not None and flat is not None:
        line.append((f"   {throughput(flat)} {WORDS[point.kind]}", "head"))
    facts = [f"memory {_bandwidth(roofline.peak.gbs)}"]
    if point is not None and point.cache is not None:
        facts.append(_holds(point.cache))
    source = f" · {' · '.join(facts)} · {plain(roofline.peak.source)}"
    return (*line, (source, "head"))


def doubt(roofline: Roofline, point: Point | None) -> Iterator[Line]:
    """Why the point cannot stand above every roof, and what tells."""
    if point is None or point.wrong is None or point.share is None:
        return
    over = f" {point.share * 100:.0f} % of the roof cannot be: "
    measured = isinstance(roofline.peak, Peak) and roofline.peak.measured
    if point.wrong == "time":
        why = "the time was taken once and is too short; m in Watch measures it"
    elif measured:
        why = "the peak was measured too low, perhaps on a busy machine; m measures it again"
    else:
        why = "the time was measured, so the published peak is not this device's"
    yield ((over, "warn"), (why, ""))


def _bandwidth(gbs: float) -> str:
    return f"{gbs / 1e3:.1f} TB/s" if gbs >= 1e3 else f"{gbs:.0f} GB/s"


def _holds(cache: CacheLevel) -> str:
    """`L2 of 8 MiB 6963 GB/s`."""
    size = f"{plain(cache.name)} of {cache.bytes / (1 << 20):g} MiB"
    return f"{size} {_bandwidth(cache.gbs)}" if cache.gbs else size


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
        curves += _cache_curves(roofline.peak, roofline.points, kinds)
    x, y = plot.axis(across, width), plot.axis(up, height, 1.6)
    marks = [Mark(other.intensity, other.tflops, "•", "dim") for other in roofline.points]
    if point is not None:
        marks = [*_room(y, point), *marks, Mark(point.intensity, point.tflops, "◆", "accent")]
    left = (
        f"; {roofline.left_out} left out, whose operations are not known"
        if roofline.left_out
        else ""
    )
    return plot.draw(x, y, curves, marks, f"FLOP/s against FLOP/byte{left}", _rate)


def _rate(tflops: float) -> str:
    """`500 M`, `20 G`, as in the table below."""
    number, unit = flops(tflops).split(" ")
    return f"{float(number):g} {unit}"


def _cache_curves(peak: Peak, points: Sequence[Point], kinds: Sequence[MathKind]) -> list[Curve]:
    """The roofs of the caches that give a point its roof."""
    used = dict.fromkeys(point.cache for point in points if point.cache and point.cache.gbs)
    return [
        Curve(partial(attainable, peak, kinds[0], cache=cache), "rail") for cache in used if kinds
    ]


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
