"""Whether a problem became slower: the verdict on two times and the sentence behind it.

A machine is now slower, now faster: its clocks, its neighbours. What was run in the same rounds
felt that too, so it is a unit in which times of two days can be compared; and single numbers of two
runs differ a little even if nothing changed. docs/measuring.md explains the verdicts and the origin
of the figures. Ratios are B's time over A's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import exp, hypot, log
from statistics import geometric_mean, median
from typing import Literal

from backend.model.choice import MeasuredChoice, Measurement, Verdict
from rocm_tui.compare.choices import LONGEST, SHORTEST
from rocm_tui.compare.types import Noise
from rocm_tui.session.numbers import duration, factor, percent, rounding, signed
from rocm_tui.session.stats import LONGEST_WAIT, TIE_BAND

DEFAULT_BAND = 0.10
"""Relative difference up to which two single numbers of one kernel are taken as equal."""
ENOUGH_CHOICES = 8
ENOUGH_PROBLEMS = 3
"""Choices, and problems with such choices, timed on both sides, from which a band or a shift is
derived."""
SIGMAS = 3.0
MAD_TO_SIGMA = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""


def noise(ratios: Sequence[Sequence[float]], *, same_device: bool) -> Noise:
    """Return the band and the shift of a comparison, from log ratios of equal choices, by problem.

    Their median is the shift, if it is clear: outside the tie band and more than twice their robust
    standard deviation, which is 1.4826 times the median absolute deviation. The band is three such
    deviations, and at least `DEFAULT_BAND`. Different devices have no common shift.
    """
    by_problem = [list(of_one) for of_one in ratios if of_one]
    flat = [ratio for of_one in by_problem for ratio in of_one]
    if len(flat) < ENOUGH_CHOICES or len(by_problem) < ENOUGH_PROBLEMS:
        return Noise(DEFAULT_BAND)
    centre = median(median(of_one) for of_one in by_problem)
    sigma = MAD_TO_SIGMA * median(abs(ratio - centre) for ratio in flat)
    clear = same_device and abs(centre) > log(1 + TIE_BAND) and abs(centre) > 2 * sigma
    band = max(DEFAULT_BAND, exp(SIGMAS * sigma) - 1)
    return Noise(band, len(flat), len(by_problem), exp(centre) if clear else 1.0)


Unit = Literal["clock", "reference", "others"]
"""Milliseconds, the reference kernel, or the geometric mean of the other choices."""


@dataclass(frozen=True, slots=True)
class InUnit:
    """B's time over A's, both in a unit, and what became of that unit: its B over its A."""

    unit: Unit
    ratio: float
    moved: float = 1.0


def in_units(
    a: str, b: str, then: Sequence[Measurement], now: Sequence[Measurement]
) -> tuple[InUnit, ...]:
    """Return what choice `b` takes `now` over what `a` took `then`, in each unit of both sides.

    Of several measurements the least disturbed one counts, which is another one for each unit.
    Empty if milliseconds are the only unit: they are used to compare different systems.
    """
    every = [*then, *now]
    if len({m.system_hash for m in every if m.system_hash}) > 1:
        return ()
    units: dict[Unit, Callable[[Measurement], float]] = {}
    timed_alike = len({measurement.resolution_ms is None for measurement in every}) == 1
    cold = any(measurement.caches == "cold" for measurement in every)
    usable_reference = all(SHORTEST < _reference(measurement) < LONGEST for measurement in every)
    # Older cold ones timed single calls of the reference.
    if usable_reference and (timed_alike or not cold):
        units["reference"] = _reference
    if others := _others({a, b}, every):
        units["others"] = lambda m: geometric_mean(_ms(m, hash) for hash in others)

    def least(
        hash: str, side: Sequence[Measurement], of: Callable[[Measurement], float]
    ) -> tuple[float, float]:
        """The least time in this unit, and the unit in that measurement."""
        return min(
            (_ms(measurement, hash) / of(measurement), of(measurement)) for measurement in side
        )

    found = ((unit, least(a, then, of), least(b, now, of)) for unit, of in units.items())
    return tuple(
        InUnit(unit, later / before, unit_later / unit_before)
        for unit, (before, unit_before), (later, unit_later) in found
    )


def _others(known: Collection[str], measurements: Sequence[Measurement]) -> frozenset[str]:
    """The choices besides that every measurement has."""
    timed = [{c.hash for c in m.choices if usable(c)} for m in measurements]
    return frozenset(set.intersection(*timed)) - set(known)


def _reference(measurement: Measurement) -> float:
    return measurement.reference_ms or 0.0


def _ms(measurement: Measurement, hash: str) -> float:
    choice = measurement.of(hash)
    if choice is None:
        raise KeyError(hash)
    return choice.ms


def usable(choice: MeasuredChoice) -> bool:
    """Whether its figures are times at all: a log may say anything."""
    times = (choice.low, choice.ms, choice.high, choice.ratio_low, choice.ratio, choice.ratio_high)
    return all(SHORTEST < time < LONGEST for time in times)


RUN_BAND = 0.05
"""Relative difference up to which measurements in two processes are taken as equal."""
FEW_BAND = 0.20
"""The same until both sides were measured `ENOUGH` times: a process may be slower all its life."""
DISTURBED_BAND = 0.50
"""The same where something disturbed one of them."""
ENOUGH = 3
"""Measurements of one problem, the least disturbed of which is believed."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """The fields of a `Pair` that judge it."""

    ratio: float
    raw: float
    low: float
    high: float
    verdict: Verdict
    reason: str
    alike: bool = True


def not_alike(a_ms: float, b_ms: float, noise: Noise, why: str) -> Ruling:
    """Two numbers of what may not be compared."""
    return _ruled(a_ms, b_ms, noise, "unclear", why, alike=False)


def _ruled(
    a_ms: float, b_ms: float, noise: Noise, verdict: Verdict, reason: str, *, alike: bool = True
) -> Ruling:
    raw = b_ms / a_ms
    ratio = raw / noise.shift
    band = noise.band + rounding(a_ms, b_ms)
    return Ruling(ratio, raw, ratio / (1 + band), ratio * (1 + band), verdict, reason, alike)


def by_numbers(
    a_ms: float,
    b_ms: float,
    noise: Noise,
    others: Callable[[], Sequence[float]] = tuple,
    unseen: Callable[[], float] = float,
) -> Ruling:
    """Judge two numbers, neither of them a measurement.

    `others` are the log ratios of the other choices of the problem. If they share half of the
    change or more, either the whole tuning or every choice became slower, and the verdict is
    unclear. `unseen` is the difference that the clocks of both could not resolve. Both are called
    only if needed.
    """
    raw = b_ms / a_ms
    ratio = raw / noise.shift
    error = rounding(a_ms, b_ms)
    band = noise.band + error
    ruled = partial(_ruled, a_ms, b_ms, noise)

    if _inside(ratio, band):
        if noise.shift != 1 and not _inside(raw, band):
            return ruled("unclear", f"every choice is {change(noise.shift)}: the machine, or all")
        if _inside(ratio, TIE_BAND):
            return ruled("tied", f"within {percent(TIE_BAND)}")
        return ruled(
            "unclear", f"single numbers of one kernel differ by up to {percent(band, error)}"
        )
    if (gap := abs(b_ms - a_ms)) < (limit := unseen()):
        why = "less than the clock of these times resolves"
        why = "which a call may wait on a busy CPU" if limit >= LONGEST_WAIT else why
        return ruled("unclear", f"{duration(gap)} apart, {why}: measure it to be sure")
    rivals = others()
    shared = _shared(rivals) - log(noise.shift) if rivals else 0.0
    if shared * log(ratio) > 0 and abs(shared) >= abs(log(ratio)) / 2:
        what = "the other choice is" if len(rivals) == 1 else "the other choices are"
        return ruled("unclear", f"{what} {change(exp(shared), error)} too: measure it to be sure")
    verdict: Verdict = "slower" if ratio > 1 else "faster"
    beyond = f" besides a machine that is {change(noise.shift)}" if noise.shift != 1 else ""
    return ruled(verdict, f"{change(ratio, error)}{beyond}, by single numbers")


def _shared(rivals: Sequence[float]) -> float:
    """The log ratio that the other choices have in common: of two, what moved less."""
    if len(rivals) == 2:
        return min(rivals, key=abs)
    return median(rivals)


def by_measurement(
    a: MeasuredChoice,
    b: MeasuredChoice,
    units: Sequence[InUnit],
    *,
    times: int,
    trouble: Sequence[str] = (),
) -> Ruling:
    """The verdict on measurements of then and now; `a` and `b` are the least disturbed ones.

    `units` are the ratio of both times in what was measured beside them: the one that leaves the
    smallest change counts. Its interval joins those of the medians in the way of Zou and Donner
    (Statistics in Medicine 27, 2008), on the log scale. `times` is how often each side was measured
    at least, `trouble` what disturbed what is compared: until that was measured often enough, only
    a large change is believed.
    """
    raw = b.ms / a.ms
    unit = min(units, key=lambda unit: abs(log(unit.ratio)), default=InUnit("clock", raw))
    ratio = unit.ratio
    down = hypot(log(b.ms / b.low), log(a.high / a.ms))
    up = hypot(log(b.high / b.ms), log(a.ms / a.low))
    low, high = ratio * exp(-down), ratio * exp(up)
    band = RUN_BAND
    if times < ENOUGH:
        band = DISTURBED_BAND if trouble else FEW_BAND
    verdict, reason = _of_interval(ratio, low, high, band)
    if not _inside(unit.moved, RUN_BAND):  # else the times beside it seem to say another thing
        reason += f", allowing for {_UNITS[unit.unit]} {change(unit.moved)}"
    if not _inside(raw, RUN_BAND) and _inside(ratio, RUN_BAND):
        verdict, reason = "unclear", _machine(unit)
    elif verdict == "unclear" and times < ENOUGH and not _inside(ratio, RUN_BAND):
        often = "once" if times == 1 else "twice"
        reason += "; measure it again, " + (trouble[0] if trouble else f"this was {often}")
    return Ruling(ratio, raw, low, high, verdict, reason)


_UNITS: Mapping[Unit, str] = {
    "reference": "a reference kernel that is",
    "others": "other choices that are",
}


def _machine(unit: InUnit) -> str:
    if unit.unit == "reference":
        return f"the reference kernel is {change(unit.moved)} too: the machine, not the kernel"
    return f"the other choices are {change(unit.moved)} too: the machine, or all of them"


def by_one_measurement(a: MeasuredChoice, b: MeasuredChoice) -> Ruling:
    """The verdict on two choices that one measurement compared."""
    ratio = b.ratio / a.ratio
    down = hypot(log(b.ratio / b.ratio_low), log(a.ratio_high / a.ratio))
    up = hypot(log(b.ratio_high / b.ratio), log(a.ratio / a.ratio_low))
    low, high = ratio * exp(-down), ratio * exp(up)
    verdict, reason = _of_interval(ratio, low, high, TIE_BAND)
    return Ruling(ratio, ratio, low, high, verdict, f"{reason}, side by side")


def _of_interval(ratio: float, low: float, high: float, band: float) -> tuple[Verdict, str]:
    interval = f"{signed(low - 1)} to {signed(high - 1)}"
    if low > 1 + band:
        return "slower", f"{change(ratio)} ({interval}), measured"
    if high < 1 / (1 + band):
        return "faster", f"{change(ratio)} ({interval}), measured"
    if _inside(low, RUN_BAND) and _inside(high, RUN_BAND):
        return "tied", f"{interval}, measured"
    return "unclear", f"{interval}, measured"


def _inside(ratio: float, band: float) -> bool:
    return 1 / (1 + band) <= ratio <= 1 + band


def change(ratio: float, error: float = 0.0) -> str:
    """Say how a time changed, by a ratio of this relative error: `12.0 % slower`, `3.1 % faster`,
    `204× as long`."""
    if ratio >= 2:
        return f"{factor(ratio, error)} as long"
    return f"{percent(abs(ratio - 1), error)} {'slower' if ratio >= 1 else 'faster'}"
