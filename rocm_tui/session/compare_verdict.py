"""Whether a problem became slower: the verdict on two times and the sentence behind it.

docs/comparing.md says how it is found. Ratios are B's time over A's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, hypot, log
from statistics import median

from backend.records import MeasuredChoice, Measurement, Verdict
from rocm_tui.format import factor, percent
from rocm_tui.session.compare_choices import LONGEST, SHORTEST
from rocm_tui.session.compare_noise import rounding
from rocm_tui.session.compare_types import Noise
from rocm_tui.session.stats import TIE_BAND

RUN_BAND = 0.05
"""Relative difference up to which two measurements in two processes are taken as equal."""
SENSITIVITY = 4.0
"""How much more than the reference kernel another kernel may feel the state of the machine, from
the point on where that moved by more than the tie band."""
DISTURBED_BAND = 0.50
"""The same where something disturbed one of them and it was not repeated."""
ENOUGH = 3
"""Measurements of one problem, of which the least disturbed is believed."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """The fields of a `Pair` that judge it."""

    ratio: float
    raw: float
    low: float
    high: float
    verdict: Verdict
    reason: str


def by_numbers(a_ms: float, b_ms: float, noise: Noise, rivals: Sequence[float]) -> Ruling:
    """The verdict on two numbers, none of them a measurement.

    `rivals` are the log ratios of the other choices of the problem. Where they share half of the
    change or more, something slowed the whole tuning, or every choice: that is not told apart.
    """
    raw = b_ms / a_ms
    ratio = raw / noise.shift
    band = noise.band + rounding(a_ms) + rounding(b_ms)
    low, high = ratio / (1 + band), ratio * (1 + band)

    def ruled(verdict: Verdict, reason: str) -> Ruling:
        return Ruling(ratio, raw, low, high, verdict, reason)

    if _inside(ratio, band):
        if noise.shift != 1 and not _inside(raw, band):
            return ruled("unclear", f"every choice is {change(noise.shift)}: the machine, or all")
        if _inside(ratio, TIE_BAND):
            return ruled("tied", f"within {percent(TIE_BAND)}")
        return ruled("unclear", f"single numbers of one kernel differ by up to {percent(band)}")
    shared = _shared(rivals) - log(noise.shift) if rivals else 0.0
    if shared * log(ratio) > 0 and abs(shared) >= abs(log(ratio)) / 2:
        what = "the other choice is" if len(rivals) == 1 else "the other choices are"
        return ruled("unclear", f"{what} {change(exp(shared))} too: measure it to tell")
    verdict: Verdict = "slower" if ratio > 1 else "faster"
    beyond = f" besides a machine that is {change(noise.shift)}" if noise.shift != 1 else ""
    return ruled(verdict, f"{change(ratio)}{beyond}, by single numbers")


def _shared(rivals: Sequence[float]) -> float:
    """The log ratio that the other choices have in common: of two, what moved less."""
    if len(rivals) == 2:
        return min(rivals, key=abs)
    return median(rivals)


def by_measurement(
    a: MeasuredChoice, b: MeasuredChoice, then: Measurement, now: Measurement, *, sure: bool
) -> Ruling:
    """The verdict on two repeated measurements, each with its 95 % interval.

    The interval of the ratio joins those of the medians in the way of Zou and Donner (Statistics
    in Medicine 27, 2008), on the log scale. Both times are taken in units of the reference kernel
    of their own measurement, where both have one and are of the same system; the more that moved,
    the wider the band. `sure`: whether what disturbed them can be left out of account.
    """
    raw = b.ms / a.ms
    moved = _reference(then, now)
    ratio = raw / moved
    down = hypot(log(b.ms / b.low), log(a.high / a.ms))
    up = hypot(log(b.high / b.ms), log(a.ms / a.low))
    low, high = ratio * exp(-down), ratio * exp(up)
    band = RUN_BAND + SENSITIVITY * max(0.0, abs(log(moved)) - log(1 + TIE_BAND))
    verdict, reason = _of_interval(ratio, low, high, band)
    if not _inside(raw, RUN_BAND) and _inside(ratio, RUN_BAND):
        reason = f"the reference kernel is {change(moved)} too: the machine, not the kernel"
        verdict = "unclear"
    elif verdict == "unclear" and abs(log(moved)) > log(1 + TIE_BAND):
        reason += f"; the reference kernel is {change(moved)}, so this can be the machine"
    disturbed = [] if sure else [*then.trouble, *now.trouble]
    if disturbed and verdict in ("slower", "faster"):
        certain = low > 1 + DISTURBED_BAND or high < 1 / (1 + DISTURBED_BAND)
        verdict = verdict if certain else "unclear"
    if disturbed:
        reason += f"; measure it again, {disturbed[0]}"
    return Ruling(ratio, raw, low, high, verdict, reason)


def by_one_measurement(a: MeasuredChoice, b: MeasuredChoice) -> Ruling:
    """The verdict on two choices that one measurement compared."""
    ratio = b.ratio / a.ratio
    down = hypot(log(b.ratio / b.ratio_low), log(a.ratio_high / a.ratio))
    up = hypot(log(b.ratio_high / b.ratio), log(a.ratio / a.ratio_low))
    low, high = ratio * exp(-down), ratio * exp(up)
    verdict, reason = _of_interval(ratio, low, high, TIE_BAND)
    return Ruling(ratio, ratio, low, high, verdict, f"{reason}, side by side")


def _of_interval(ratio: float, low: float, high: float, band: float) -> tuple[Verdict, str]:
    told = f"{_signed(low)} to {_signed(high)}"
    if low > 1 + band:
        return "slower", f"{change(ratio)} ({told}), measured"
    if high < 1 / (1 + band):
        return "faster", f"{change(ratio)} ({told}), measured"
    if _inside(low, RUN_BAND) and _inside(high, RUN_BAND):
        return "tied", f"{told}, measured"
    return "unclear", f"{told}, measured"


def _reference(then: Measurement, now: Measurement) -> float:
    """How much slower the reference kernel became; 1 where that is not known or says nothing."""
    ours, theirs = then.reference_ms or 0.0, now.reference_ms or 0.0
    if not (SHORTEST < ours < LONGEST and SHORTEST < theirs < LONGEST):
        return 1.0
    if then.system_hash and now.system_hash and then.system_hash != now.system_hash:
        return 1.0
    return theirs / ours


def usable(choice: MeasuredChoice) -> bool:
    """Whether its figures are times at all: a log may say anything."""
    times = (choice.low, choice.ms, choice.high, choice.ratio_low, choice.ratio, choice.ratio_high)
    return all(SHORTEST < time < LONGEST for time in times)


def _inside(ratio: float, band: float) -> bool:
    return 1 / (1 + band) <= ratio <= 1 + band


def change(ratio: float) -> str:
    """How a time changed: `12.0 % slower`, `3.1 % faster`, `204× as long`."""
    if ratio >= 2:
        return f"{factor(ratio)} as long"
    return f"{percent(abs(ratio - 1))} {'slower' if ratio >= 1 else 'faster'}"


def _signed(ratio: float) -> str:
    return f"{(ratio - 1) * 100:+.1f} %"
