"""Plots and bars in cells of text. Pure functions.

A plot has two axes, a curve of Braille dots, and marks. Each cell is a span of a line in a style of
the screen's palette, so that a moved cursor repaints two marks; a charting library repaints the
whole plot, in colours of its own.

A bar shows how much longer than the best a choice takes, all choices on one scale:

│━━━━━━├─●─┤       measured: a bar to the median ratio, and its 95 % interval
┼─●─┤              measured: its interval holds the best, so they are tied or unclear
│──────────○       one number only
│───────────────▸  beyond the scale
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, log10

from backend.model.choice import MeasuredChoice
from rocm_tui.render.table import Line, Span

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bits of a Braille cell: two columns of four dots."""
_SPAN = 8
"""Cells of the longest span: a `LineView` repaints whole spans."""
_LABEL = 7
"""Cells left of the vertical axis."""


Curve = Callable[[float], float | None]
"""The value of an x, or None where there is none."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A point; later ones cover earlier ones."""

    x: float
    y: float
    text: str
    style: str


@dataclass(frozen=True, slots=True)
class Even:
    """From `low` to `high`, which differ, in equal steps over `cells`; `whole` has ticks at whole
    numbers alone."""

    low: float
    high: float
    cells: int
    whole: bool = False

    def place(self, value: float) -> float:
        """0 at the low end, `cells` at the high end."""
        return (value - self.low) / (self.high - self.low) * self.cells

    def cell(self, value: float) -> int:
        return max(0, min(self.cells - 1, floor(self.place(value))))

    def value(self, place: float) -> float:
        return self.low + (self.high - self.low) * place / self.cells

    def ticks(self, apart: int) -> list[float]:
        """Return round values at least `apart` cells apart, as dense as that allows."""
        least = (self.high - self.low) / self.cells * apart
        power = 10.0 ** floor(log10(least))
        step = next(times * power for times in (1, 2, 5, 10) if times * power >= least * 0.999)
        step = max(1.0, step) if self.whole else step
        first = ceil(self.low / step)
        return [at * step for at in range(first, floor(self.high / step) + 1)]


@dataclass(frozen=True, slots=True)
class Axis(Even):
    """In equal factors; both ends are positive."""

    def place(self, value: float) -> float:
        return log10(value / self.low) / log10(self.high / self.low) * self.cells

    def value(self, place: float) -> float:
        return float(self.low * (self.high / self.low) ** (place / self.cells))

    def ticks(self, apart: int) -> list[float]:
        for steps in ((1, 2, 5), (1,)):
            values = [
                step * 10.0**power
                for power in range(floor(log10(self.low)), floor(log10(self.high)) + 1)
                for step in steps
                if self.low <= step * 10.0**power <= self.high
            ]
            places = [self.place(value) for value in values]
            if all(right - left >= apart for left, right in pairwise(places)):
                break
        return values


def axis(values: Sequence[float], cells: int) -> Axis:
    """Return an axis of all values, with a factor of two on both sides, and at least a decade."""
    low, high = min(values) / 2, max(values) * 2
    if high / low < 10:
        middle = (low * high) ** 0.5
        low, high = middle / 10**0.5, middle * 10**0.5
    return Axis(low, high, max(1, cells))


def _tick(value: float) -> str:
    """At most six characters: `0.05`, `20`, `1.02`, `1000`, `0.0001`, `5e-05`."""
    if value == 0:
        return "0"
    if not 1e-4 <= value < 1e6:
        return f"{value:.0e}"
    if value < 1:
        return f"{value:.4f}".rstrip("0")
    return f"{value:.0f}" if value == round(value) else f"{value:.5g}"


def draw(x: Even, y: Even, curve: Curve | None, marks: Sequence[Mark], title: str) -> list[Line]:
    """The plot: a title line, `y.cells` lines, and two for the horizontal axis."""
    dots = _curve(x, y, curve) if curve else {}
    points = {(x.cell(mark.x), y.cell(mark.y)): mark for mark in marks}
    labels = {y.cell(value): _tick(value) for value in y.ticks(2)}
    lines: list[Line] = [((" " * _LABEL + title, "dim"),)]
    for row in reversed(range(y.cells)):
        label = labels.get(row, "")
        line: list[Span] = [(f"{label:>{_LABEL - 1}} {'┤' if label else '│'}", "dim")]
        line += _cells(row, x.cells, dots, points)
        lines.append(tuple(line))
    return [*lines, *_below(x)]


def _cells(
    row: int,
    count: int,
    dots: Mapping[tuple[int, int], int],
    points: Mapping[tuple[int, int], Mark],
) -> list[Span]:
    spans: list[Span] = []
    for column in range(count):
        mark = points.get((column, row))
        if mark is not None:
            span = (mark.text, mark.style)
        elif (column, row) in dots:
            span = (chr(0x2800 + dots[column, row]), "dim")
        else:
            span = (" ", "")
        if column % _SPAN and spans[-1][1] == span[1]:
            spans[-1] = (spans[-1][0] + span[0], span[1])
        else:
            spans.append(span)
    return spans


def _curve(x: Even, y: Even, curve: Curve) -> dict[tuple[int, int], int]:
    """The dots of a curve by cell. Steep parts are filled up, so that the line does not break."""
    dots: dict[tuple[int, int], int] = {}
    before: int | None = None
    for dot in range(x.cells * 2):
        value = curve(x.value((dot + 0.5) / 2))
        if value is None or value <= 0:
            before = None
            continue
        here = floor(y.place(value) * 4)
        start = here if before is None else before + (here > before) - (here < before)
        for high in range(min(start, here), max(start, here) + 1):
            row, rest = divmod(high, 4)
            if 0 <= row < y.cells:
                cell = (dot // 2, row)
                dots[cell] = dots.get(cell, 0) | _DOTS[dot % 2][3 - rest]
        before = here
    return dots


def _below(x: Even) -> list[Line]:
    """The horizontal axis: its ticks and their values."""
    ticks = {x.cell(value): _tick(value) for value in x.ticks(8)}
    rule = "".join("┬" if at in ticks else "─" for at in range(x.cells))
    values = [" "] * (x.cells + 8)
    for at, text in ticks.items():
        start = max(0, at - len(text) // 2)
        values[start : start + len(text)] = text
    blank = " " * _LABEL
    return [((f"{blank}└{rule}", "dim"),), ((f"{blank} {''.join(values).rstrip()}", "dim"),)]


PADDING = _LABEL + 1
"""Cells beside the plot itself; the lines besides it are the title's and the axis' two."""
BESIDES = 3


def bar(share: float, width: int) -> str:
    """`share` (0 to 1) of `width` cells, filled up with blanks; never quite empty above zero."""
    share = max(0.0, min(1.0, share))
    halves = round(share * width * 2)
    if share > 0:
        halves = max(1, halves)
    full, rest = divmod(halves, 2)
    return ("━" * full + ("╸" if rest else "")).ljust(width)


_ENDS = (0.02, 0.05, 0.1, 0.15, 0.25)
"""How much longer than the best the right end of a scale may be. The smallest keeps choices apart
by nothing from looking far apart; beyond the largest an arrow is drawn."""
_LEFT = 0.05
"""How much less than the best a scale shows at most."""
_FAR = (*_ENDS, 0.5, 1.0, 2.0, 4.0, 9.0)
"""The ends of scales of times that were taken once, of which nobody has picked the near ones."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Ratios from `low` to `high` on `width` cells, linear; 1 is the best choice."""

    low: float
    high: float
    width: int

    def cell(self, ratio: float) -> int:
        """The cell of a ratio; the first or the last one for what lies outside."""
        inside = max(self.low, min(self.high, ratio))  # an end of an interval may be infinite
        share = (inside - self.low) / (self.high - self.low)
        return round(share * (self.width - 1))

    @property
    def title(self) -> str:
        """`0` below the best choice's line, the extra time at the right end: `0   +25 % slower`."""
        end, room = f"+{(self.high - 1) * 100:.0f} %", self.width - self.cell(1.0) - 1
        word = " slower"
        return " " * self.cell(1.0) + "0" + (end + word * (room > len(end + word))).rjust(room)


def scale_of(choices: Sequence[MeasuredChoice], width: int, least: float = 1.0) -> Scale:
    """A scale on which all intervals can be seen, as far as they are not far off.

    `least` is the smallest ratio among choices of which only one number is known.
    """
    extra = max((choice.ratio_high for choice in choices), default=1.0) - 1.0
    end = next((limit for limit in _ENDS if extra <= limit), _ENDS[-1])
    less = 1.0 - min((least, *(choice.ratio_low for choice in choices)))
    return Scale(1.0 - max(0.0, min(less, _LEFT)), 1.0 + end, width)


def scale_of_single(middle: float, width: int) -> Scale:
    """A scale for times that were taken once: half of them are no more than `middle` of the best's,
    and can be seen."""
    end = next((limit for limit in _FAR if middle <= 1.0 + limit), _FAR[-1])
    return Scale(1.0, 1.0 + end, width)


def interval(scale: Scale, choice: MeasuredChoice) -> str:
    """A measured choice: bar, interval, median."""
    cells = _with_bar(scale, choice.ratio)
    low, high = scale.cell(choice.ratio_low), scale.cell(choice.ratio_high)
    best = scale.cell(1.0)
    if choice.ratio_low <= scale.high:
        for at in range(low, high + 1):
            cells[at] = "┼" if at == best else "─"
        if low != best:
            cells[low] = "├"
        if high != best and choice.ratio_high <= scale.high:
            cells[high] = "┤"
    if choice.ratio <= scale.high:
        cells[scale.cell(choice.ratio)] = "●"
    return "".join(cells)


def single(scale: Scale, ratio: float) -> str:
    """A choice of which only one number is known."""
    cells = _with_bar(scale, ratio)
    if ratio <= scale.high:
        cells[scale.cell(ratio)] = "○"
    return "".join(cells).replace("━", "─")


def _with_bar(scale: Scale, ratio: float) -> list[str]:
    cells = [" "] * scale.width
    best, end = scale.cell(1.0), scale.cell(ratio)
    for at in range(best, end):
        cells[at] = "━"
    cells[best] = "│"
    if ratio > scale.high:
        cells[-2:] = "━▸"
    return cells
