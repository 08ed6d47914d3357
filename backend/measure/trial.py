"""Whether a whole graph is faster with other choices: passes of each arm against the first one's.

The estimates are those of `backend.measure.verdict`: log ratios within a round, one value per
batch, a trimmed mean with Student's t. The question differs. The baseline is named beforehand, so
each arm is compared with it alone, and the error is divided by the number of arms less one (Dunn
1961 for these pairs). And programs are compared, not kernels.

Two programs that do the same work differ within a process by where the process places code and data
(Mytkowicz, Diwan, Hauswirth & Sweeney 2009; Curtsinger & Berger 2013). No number of passes shows
that difference, since it is in each of them. So in one process `faster` and `slower` require an
interval that stays beyond 1 by more than `BIAS`. Smaller differences need several processes: there
the process is the unit of repetition, and the interval comes from how the processes differ
(Georges, Buytaert & Eeckhout 2007; Kalibera & Jones 2013), which includes the variation within
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, hypot, log
from statistics import median

from backend.measure.verdict import (
    CONFIDENCE,
    MARGIN,
    batches_of,
    checked_rounds,
    clock_step,
    error_of,
    estimate,
    hodges_lehmann,
    median_interval,
    ratio_of,
    trimmed_interval,
)
from backend.model.choice import Verdict

BASELINE = 0
ERROR = 0.05
"""The default probability of any wrong `faster` or `slower` in a trial."""
BIAS = MARGIN
"""The relative difference that one process alone may cause between identical programs. The same
small network compiled twice, in eight processes on a busy CPU, gave ratios from 0.9965 to 1.0015, a
standard deviation of 0.16 %."""
LEAST_PROCESSES = 3
"""Fewer processes give no estimate of how processes differ."""


@dataclass(frozen=True, slots=True)
class ArmStanding:
    """The result for one arm; the fields are those of `TrialArm`. `passes` counts its samples, or
    the processes. The baseline has ratio 1 and is `tied`."""

    arm: int
    ms: float
    low: float
    high: float
    ratio: float
    ratio_low: float
    ratio_high: float
    verdict: Verdict
    passes: int


def judge_arms(
    samples: Mapping[int, Sequence[float]],
    blocks: Sequence[int] | None = None,
    *,
    look: int = 1,
    looks: int = 1,
    error: float = ERROR,
    bias: float = BIAS,
) -> tuple[ArmStanding, ...]:
    """Compare each arm with arm 0, after look `look` of `looks`, in the order of their numbers.

    `samples` are milliseconds of whole passes by arm, one per round in chronological order;
    `blocks` gives each round's block: rounds of one block are adjacent and had the same
    allocations. All intervals of all looks hold together with probability 1 - `error`. Raises
    ValueError on no samples, no arm 0, unequal numbers, times not above 0.
    """
    batches = batches_of(checked_rounds(samples, blocks), blocks)
    _check_baseline(samples)
    alpha = error_of(look, looks, error) / max(1, len(samples) - 1)
    logs = {arm: [log(ms) for ms in times] for arm, times in samples.items()}
    steps = {arm: clock_step(times) / median(times) for arm, times in samples.items()}
    standings = []
    for arm, times in sorted(samples.items()):
        centre = half = 0.0
        if arm != BASELINE:
            ratios = [a - b for a, b in zip(logs[arm], logs[BASELINE], strict=True)]
            centre, half = estimate(ratios, batches, alpha, hodges_lehmann)
            half += (steps[arm] + steps[BASELINE]) / 2
        low, high = median_interval(times, batches)
        standing = _standing(arm, (centre, half), (median(times), low, high), bias, len(times))
        standings.append(standing)
    return tuple(standings)


def across_processes(
    per_process: Sequence[Mapping[int, float]],
    *,
    halves: Sequence[Mapping[int, float]] = (),
    look: int = 1,
    looks: int = 1,
    error: float = ERROR,
) -> tuple[ArmStanding, ...]:
    """Compare each arm with arm 0, from the results of several processes (or pairs of processes).

    A process gives each arm its milliseconds, or its ratio to arm 0, which then is 1. No bias is
    added for a process: it is part of the difference between processes. Few processes may agree by
    chance: if `halves` gives half the width of each process's own interval of the log ratio, the
    interval is no narrower than that of the mean of these processes. Below `LEAST_PROCESSES`
    every interval is infinite. Raises ValueError on none, on processes with other arms, no arm 0,
    numbers not above 0.
    """
    samples = {
        arm: [process[arm] for process in per_process if arm in process]
        for arm in sorted({arm for process in per_process for arm in process})
    }
    checked_rounds(samples, [0] * len(per_process))
    _check_baseline(samples)
    alpha = error_of(look, looks, error) / max(1, len(samples) - 1)
    standings = []
    for arm, values in samples.items():
        pairs = zip(values, samples[BASELINE], strict=True)
        centre, half = trimmed_interval([log(a / b) for a, b in pairs], alpha)
        if halves and arm != BASELINE:
            half = max(half, hypot(*(process[arm] for process in halves)) / len(halves))
        own, spread = trimmed_interval([log(value) for value in values], 1 - CONFIDENCE)
        ms = median(values)
        times = ms, min(ms, exp(own - spread)), max(ms, ratio_of(own + spread))
        gap = (0.0, 0.0) if arm == BASELINE else (centre, half)
        standings.append(_standing(arm, gap, times, 0.0, len(values)))
    return tuple(standings)


def clear(standings: Sequence[ArmStanding]) -> bool:
    """Return whether no arm is unclear, so that further passes add no verdict."""
    return all(standing.verdict != "unclear" for standing in standings)


def verdict_of(low: float, high: float, bias: float = 0.0) -> Verdict:
    """Return the verdict of a ratio's interval; `bias` is what the process may have added."""
    if low >= 1 / (1 + MARGIN) and high <= 1 + MARGIN:
        return "tied"
    if high < 1 / (1 + bias):
        return "faster"
    return "slower" if low > 1 + bias else "unclear"


def _standing(
    arm: int,
    gap: tuple[float, float],
    times: tuple[float, float, float],
    bias: float,
    passes: int,
) -> ArmStanding:
    centre, half = gap
    low, high = exp(centre - half), ratio_of(centre + half)
    return ArmStanding(
        arm=arm,
        ms=times[0],
        low=times[1],
        high=times[2],
        ratio=exp(centre),
        ratio_low=low,
        ratio_high=high,
        verdict=verdict_of(low, high, bias),
        passes=passes,
    )


def _check_baseline(samples: Mapping[int, Sequence[float]]) -> None:
    if BASELINE not in samples:
        raise ValueError("there is no arm 0 to compare with")
