"""Bars and whiskers in cells of text. Pure functions.

They show how much longer than the best each choice takes, all on one scale: a longer
one is slower, wherever there are any.

│━━━━━━├─●─┤       measured: a bar to the median ratio, and its 95 % interval
┼─●─┤              measured: its interval holds the best, so they are not told apart
│──────────○       one number only
│───────────────▸  beyond the scale
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backend.model.choice import MeasuredChoice


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
