"""What disturbed a measurement: drift, throttling, a busy neighbour, said in sentences.

The evidence is one kernel that is the same in every round, and what the machine itself tells. Did
its row of times change its level: in a step, in a drift, or not at all? The times are condensed to
medians of neighbours, so that single wild rounds and short waves do not count. A trend is tested as
Mann (1945) and Kendall (1975) do and sized as Theil (1950) and Sen (1968) do; a step is found and
tested as Pettitt (1979) does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import erfc, exp, log, log1p, sqrt
from statistics import fmean, median

from backend.counted import counted
from backend.measure.verdict import likeness, quartiles, swelling

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
    changes = [
        change
        for change in (_step(times, condensed), _drift(condensed))
        if change and abs(change.size) >= log1p(WORTH)
    ]
    return min(changes, key=lambda change: _misfit(times, change), default=None)


def mann_kendall(values: Sequence[float], waves: float = 1.0) -> float:
    """Two-sided p of no trend, from how many later values are higher than earlier ones.

    `waves` is the factor by which neighbours that are alike swell the variance.
    """
    count = len(values)
    score = sum((later > earlier) - (later < earlier) for earlier, later in combinations(values, 2))
    variance = waves * count * (count - 1) * (2 * count + 5) / 18
    return erfc(max(0, abs(score) - 1) / sqrt(2 * variance))


def theil_sen(values: Sequence[float]) -> float:
    """Slope a step: the median slope of all pairs."""
    pairs = combinations(enumerate(values), 2)
    return median((later - earlier) / (at - start) for (start, earlier), (at, later) in pairs)


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


SLOW = 1.5
"""A round that took this many times as long as a quiet one was disturbed."""
SLOW_SHARE, SLOW_LEAST = 0.05, 3
"""Share and number of such rounds from which on they are told."""
CPU_SHARE = 0.9
"""A measuring thread that computes has the CPU for more of the time than this, if left alone."""
SWITCHES = 20.0
"""Involuntary context switches a second that show another process on the same core."""


@dataclass(frozen=True, slots=True)
class Signs:
    """What the machine tells of the time in which was measured; None is not known.

    `seconds` is wall-clock time and `cpu_seconds` the CPU time of the measuring thread in it (leave
    it out where that thread sleeps until a GPU is done). `load` is the load average, own work
    included, on `cores` cores. `switches` counts involuntary context switches. `clocks` are the
    device's clock in MHz, in the order of time.
    """

    seconds: float | None = None
    cpu_seconds: float | None = None
    load: float | None = None
    cores: int | None = None
    switches: int | None = None
    clocks: tuple[float, ...] = ()


def disturbances(reference: Sequence[float], signs: Signs | None = None) -> tuple[str, ...]:
    """Sentences on what disturbed a measurement, none if nothing did.

    `reference` are the milliseconds of the reference kernel, one a round, all above 0.
    """
    signs = signs or Signs()
    change = find_change([log(ms) for ms in reference])
    sentences = [_change_sentence(change)] if change else []
    if clock := _clock_sentence(signs.clocks):
        sentences.append(clock)
    after = change.after if change else None
    neighbour = _neighbour_sentence(slow_share(reference, after), signs)
    return tuple([*sentences, neighbour] if neighbour else sentences)


def slow_share(reference: Sequence[float], after: int | None = None) -> float:
    """Share of disturbed rounds; 0 where they are too few to tell.

    A quiet round is the lower quartile, before and after round `after` by itself.
    """
    parts = [reference] if after is None else [reference[:after], reference[after:]]
    slow = sum(_slow_rounds(part) for part in parts if part)
    share = slow / max(1, len(reference))
    return share if slow >= SLOW_LEAST and share >= SLOW_SHARE else 0.0


def _slow_rounds(times: Sequence[float]) -> int:
    quiet, _ = quartiles(times)
    return sum(ms > SLOW * quiet for ms in times)


def _change_sentence(change: Change) -> str:
    percent = 100 * abs(exp(change.size) - 1)
    way = "slower" if change.size > 0 else "faster"
    what = f"the reference kernel became {percent:.1f} % {way}"
    if change.after is None:
        return f"drift: {what} from start to end"
    cause = "throttling or a new neighbour" if change.size > 0 else "speed-up"
    return f"{cause}: {what} after round {change.after} and stayed so"


def _clock_sentence(clocks: Sequence[float]) -> str:
    """How the clock changed from the first to the last quarter of the time."""
    quarter = len(clocks) // 4
    if not quarter:
        return ""
    first, last = median(clocks[:quarter]), median(clocks[-quarter:])
    if first <= 0 or abs(last / first - 1) < WORTH:
        return ""
    verb = "fell" if last < first else "rose"
    return f"clock: the device's clock {verb} from {first:.0f} to {last:.0f} MHz"


def _neighbour_sentence(slow: float, signs: Signs) -> str:
    """Slow rounds or a lack of CPU time accuse; load and switches only bear witness."""
    accused, witnesses = [], []
    if slow:
        accused.append(f"{100 * slow:.0f} % of the rounds took more than {SLOW:g} x a quiet round")
    if signs.load is not None and signs.cores and signs.load > signs.cores + 1:
        witnesses.append(f"the load was {signs.load:.1f} on {counted(signs.cores, 'core')}")
    if signs.seconds:
        share = 1.0 if signs.cpu_seconds is None else signs.cpu_seconds / signs.seconds
        if share < CPU_SHARE:
            accused.append(f"the measuring thread had the CPU for {100 * share:.0f} % of the time")
        switches = (signs.switches or 0) / signs.seconds
        if switches > SWITCHES:
            witnesses.append(f"it was put aside {counted(round(switches), 'time')} a second")
    return f"busy neighbour: {', '.join(accused + witnesses)}" if accused else ""
