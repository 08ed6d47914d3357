"""Whether a row of times changed its level, and how: a step, a drift, or neither. Pure functions.

The times are condensed to medians of neighbours, so that single wild rounds and short waves do not
count. A trend is tested as Mann (1945) and Kendall (1975) do and sized as Theil (1950) and Sen
(1968) do; a step is found and tested as Pettitt (1979) does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import erfc, exp, log1p, sqrt
from statistics import fmean, median

from backend.measure.robust import likeness, swelling

FEWEST = 16
"""Rounds below which no change is looked for."""
GROUPS = 24
"""Medians that the rounds are condensed to, at most."""
ERROR = 0.01
"""Chance of each test to see a change where there is none."""
WORTH = 0.02
"""The smallest relative change that is told."""
SURE = 3.5
"""Standard errors that a step must have; 1 % by chance, sought at any place (Andrews 1993)."""
SHORTEST = 4
"""Rounds that a level must last."""


@dataclass(frozen=True, slots=True)
class Change:
    """By how much the log time changed, and after which round, if at once (None: bit by bit)."""

    size: float
    after: int | None = None

    def at(self, share: float, round: int) -> float:
        """What of it has happened by a round that lies at this share of the time."""
        if self.after is None:
            return self.size * share
        return self.size if round >= self.after else 0.0


def find_change(times: Sequence[float]) -> Change | None:
    """The step or the trend in a row of log times, whichever fits better, if there is one."""
    if len(times) < FEWEST:
        return None
    condensed = _condensed(times)
    found = [
        change
        for change in (_step(times, condensed), _drift(condensed))
        if change and abs(change.size) >= log1p(WORTH)
    ]
    return min(found, key=lambda change: _misfit(times, change), default=None)


def mann_kendall(values: Sequence[float], waves: float = 1.0) -> float:
    """Two-sided p of no trend, from how many later values are higher than earlier ones.

    `waves` is the factor by which neighbours that are alike swell the variance.
    """
    count = len(values)
    score = sum((later > one) - (later < one) for one, later in combinations(values, 2))
    variance = waves * count * (count - 1) * (2 * count + 5) / 18
    return erfc(max(0, abs(score) - 1) / sqrt(2 * variance))


def theil_sen(values: Sequence[float]) -> float:
    """Slope a step: the median slope of all pairs."""
    pairs = combinations(enumerate(values), 2)
    return median((later - one) / (at - start) for (start, one), (at, later) in pairs)


def pettitt(values: Sequence[float]) -> tuple[int, float]:
    """After how many values the level most likely changes, and the p of no change at all."""
    count, score, scores = len(values), 0.0, []
    for rank in _ranks(values)[:-1]:
        score += 2 * rank - (count + 1)
        scores.append(abs(score))
    most = max(scores)
    return scores.index(most) + 1, min(1.0, 2 * exp(-6 * most**2 / (count**3 + count**2)))


def _condensed(times: Sequence[float]) -> list[float]:
    groups = min(GROUPS, len(times) // 2)
    bounds = [len(times) * group // groups for group in range(groups + 1)]
    return [median(times[low:high]) for low, high in pairwise(bounds)]


def _ranks(values: Sequence[float]) -> list[float]:
    """1 for the smallest; equal values share the mean of their ranks."""
    places: dict[float, list[int]] = {}
    for place, value in enumerate(sorted(values), 1):
        places.setdefault(value, []).append(place)
    return [fmean(places[value]) for value in values]


def _drift(condensed: Sequence[float]) -> Change | None:
    slope = theil_sen(condensed)
    waves = swelling(likeness([value - slope * at for at, value in enumerate(condensed)]))
    if mann_kendall(condensed, waves) >= ERROR:
        return None
    return Change(slope * (len(condensed) - 1))


def _step(times: Sequence[float], condensed: Sequence[float]) -> Change | None:
    """A change of level that stands out from the waves around it, and lasts."""
    at, p = pettitt(condensed)
    if p >= ERROR or abs(_height(condensed, at)) < SURE * _error_of_height(condensed, at):
        return None
    after, _ = pettitt(times)
    if min(after, len(times) - after) < SHORTEST or not _lasts(times, after):
        return None
    return Change(_height(times, after), after)


def _height(values: Sequence[float], at: int) -> float:
    return median(values[at:]) - median(values[:at])


def _error_of_height(values: Sequence[float], at: int) -> float:
    """Standard error of a step's height, from the median distance to its two levels."""
    residuals = [value - median(part) for part in (values[:at], values[at:]) for value in part]
    scatter = 1.4826 * median(map(abs, residuals))
    return scatter * sqrt(swelling(likeness(residuals)) * (1 / at + 1 / (len(values) - at)))


def _lasts(times: Sequence[float], after: int) -> bool:
    """Whether both halves of either level lie on their own side of the middle."""
    before, behind, size = times[:after], times[after:], _height(times, after)
    middle = median(before) + size / 2
    return all(
        (median(half) - middle) * way > 0
        for part, way in ((before, -size), (behind, size))
        for half in (part[: len(part) // 2], part[len(part) // 2 :])
    )


def _misfit(times: Sequence[float], change: Change) -> float:
    """Mean absolute distance of the rounds from a line or a step."""
    flat = [time - change.at(place / (len(times) - 1), place) for place, time in enumerate(times)]
    level = median(flat)
    return fmean(abs(time - level) for time in flat)
