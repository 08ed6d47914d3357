"""Which choice is really faster: medians, ratios with intervals and verdicts, from many rounds.

Two choices are compared by the log of their times' ratio within a round, so that slow changes
affect both. Neighbouring rounds are correlated, and a memory location favours one choice: so the
log ratios are condensed to one value per batch (Hodges & Lehmann 1963), a batch being whole blocks
of rounds (batch means: Conway 1963, Schmeiser 1982), and the interval comes from how the batches
differ (trimmed mean, Tukey & McLaughlin 1963). The intervals of all pairs and all looks hold
together with 95 % (Dunn 1961). All pairs, because the samples themselves determine the best choice
that the others are compared with (Hsu 1984 on why that matters).

Looking repeatedly until a difference shows finds one even between identical kernels (Armitage,
McPherson & Rowe 1969; Pocock 1977 for the cure). So the looks are fixed before the first sample,
and the error is spent in proportion to the rounds behind each (Lan & DeMets 1983; the power family
of Kim & DeMets 1987 with exponent 1). Each look uses its own share, so by Bonferroni's inequality
the sum holds however the looks depend on each other.

All estimates and intervals are robust against a few wild samples. Pure functions of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, groupby, pairwise
from math import atan, cos, exp, inf, isfinite, log, log1p, pi, pow, sin, sqrt
from statistics import fmean, median, quantiles

from backend.model.choice import MeasuredChoice, Verdict

TRIM = 8
"""One value in this many is cut off at each end of a trimmed mean."""
_SAME = 1e-6
"""The relative difference below which two times are equal, for single precision."""


def hodges_lehmann(values: Sequence[float]) -> float:
    """Return the median of all pairwise means (Hodges & Lehmann 1963). As exact as the mean on
    normal noise to 5 %, and robust against up to 29 % of outliers."""
    return median([a + b for at, a in enumerate(values) for b in values[at:]]) / 2


def trimmed_interval(values: Sequence[float], alpha: float) -> tuple[float, float]:
    """Return the trimmed mean of independent values, and the half width of its two-sided 1 -
    `alpha` interval.

    The standard error comes from the winsorized values, with Student's t of one degree of freedom
    less than values kept (Tukey & McLaughlin 1963). Infinite below three values.
    """
    count, cut = len(values), len(values) // TRIM
    freedom = count - 2 * cut - 1
    ordered = sorted(values)
    centre = fmean(ordered[cut : count - cut])
    if freedom < 2:
        return centre, inf
    low, high = ordered[cut], ordered[-1 - cut]
    winsorized = [min(max(value, low), high) for value in ordered]
    mean = fmean(winsorized)
    deviation = sqrt(sum((value - mean) ** 2 for value in winsorized) / (count - 1))
    error = deviation / ((1 - 2 * cut / count) * sqrt(count))
    return centre, student_quantile(alpha, freedom) * error


@cache
def student_quantile(alpha: float, freedom: int) -> float:
    """Return the t with P(|T| > t) = `alpha` of Student's distribution of `freedom` degrees."""
    low, high = 0.0, 1.0
    while _student_inside(high, freedom) < 1 - alpha:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        if _student_inside(middle, freedom) < 1 - alpha:
            low = middle
        else:
            high = middle
    return high


def _student_inside(t: float, freedom: int) -> float:
    """Return P(|T| < t), a finite sum (Abramowitz & Stegun 1964, 26.7.3 and 26.7.4)."""
    angle = atan(t / sqrt(freedom))
    odd = freedom % 2
    term, total = (cos(angle), 0.0) if odd else (1.0, 0.0)
    for step in range(2 + odd, freedom + 1, 2):
        total += term
        term *= cos(angle) ** 2 * (step - 1) / step
    if not odd:
        return sin(angle) * total
    return 2 / pi * (angle + sin(angle) * total)


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """Return the lower and upper quartile, interpolated linearly between neighbours."""
    if len(values) == 1:  # before Python 3.13 the library requires two
        return values[0], values[0]
    lower, _, upper = quantiles(values, n=4, method="inclusive")
    return lower, upper


def likeness(values: Sequence[float]) -> float:
    """Return the correlation of neighbours in a series, clipped to the range from 0 to 0.9.

    Values further from the median than twice the robust deviation are clipped to it. Corrected for
    the bias in short series (Kendall 1954).
    """
    centre = median(values)
    most = 2 * 1.4826 * median(abs(value - centre) for value in values)
    near = [min(max(value - centre, -most), most) for value in values]
    mean = fmean(near)
    total = sum((value - mean) ** 2 for value in near)
    if not total:
        return 0.0
    alike: float = sum((a - mean) * (b - mean) for a, b in pairwise(near)) / total
    unbiased = alike + (1 + 3 * alike) / len(values)
    return min(max(unbiased, 0.0), 0.9)


def swelling(alike: float, length: float = 1.0) -> float:
    """Return how much more a mean varies than batches of `length` values suggest if taken as
    independent.

    The long-run variance of neighbours with correlation `alike` over that of a batch mean, both of
    a first-order autoregression (Bayley & Hammersley 1946); 1 without correlation.
    """
    whole = (1 + alike) / (1 - alike)
    return whole / (whole - 2 * alike * (1 - pow(alike, length)) / (length * (1 - alike) ** 2))


def clock_step(times: Sequence[float]) -> float:
    """Return the clock step that is visible because most samples repeat an earlier one; 0 if few
    do. GPU events of some devices have steps of a microsecond: 4 % of a kernel of 25 us."""
    gaps = [(high - low, high) for low, high in pairwise(sorted(times))]
    steps = [gap for gap, high in gaps if gap > _SAME * high]
    return min(steps) if steps and 2 * len(steps) <= len(gaps) else 0.0


LOOKS = 6
FIRST = 16
"""The number of rounds before the first look."""
CONFIDENCE = 0.95
"""The joint confidence of all ratios of all looks of one measurement."""
SPENT = 0.7
"""The share of the error that the looks spend; the rest covers the intervals' approximations."""


def schedule(looks: int = LOOKS, first: int = FIRST) -> tuple[int, ...]:
    """Return the rounds after which to look, each twice the previous. ValueError below 1."""
    if looks < 1 or first < 1:
        raise ValueError(f"no schedule of {looks} looks that begins at round {first}")
    return tuple(first << look for look in range(looks))


def error_of(look: int, looks: int = LOOKS, error: float = 1 - CONFIDENCE) -> float:
    """Return the part of `error` for look `look` of `looks`, from 1 on. ValueError for others."""
    if not 1 <= look <= looks:
        raise ValueError(f"look {look} is not one of {looks}")
    rounds = schedule(looks)
    before = rounds[look - 2] if look > 1 else 0
    return SPENT * error * (rounds[look - 1] - before) / rounds[-1]


MARGIN = 0.005
"""Two choices whose times certainly differ by no more than this are tied."""
MOST_BATCHES = 32
"""More and longer batches trade precision of the spread against independence; 10 to 30 suffice."""
UNBLOCKED = 4
"""The number of rounds in a block if the caller names none."""

Batches = Sequence[range]


def judge(
    samples: Mapping[str, Sequence[float]],
    blocks: Sequence[int] | None = None,
    *,
    look: int = 1,
    looks: int = LOOKS,
    resolutions: Mapping[str, float] | None = None,
) -> tuple[MeasuredChoice, ...]:
    """Judge the choices after look `look` of `looks`, best first; `looks=1` for a single look.

    `samples` are milliseconds by choice hash, the same number for each choice, one per round in
    chronological order. `blocks` gives each round's block: rounds of one block are adjacent and had
    the same allocations. `resolutions` are the smallest differences, in ms, that the clock can
    resolve between a choice's samples: no verdict is finer. Raises ValueError on no samples,
    unequal numbers, times not above 0.
    """
    batches = batches_of(checked_rounds(samples, blocks), blocks)
    logs = {hash: [log(ms) for ms in times] for hash, times in samples.items()}
    pairs = max(1, len(logs) * (len(logs) - 1) // 2)
    best, gaps = _gaps_to_best(logs, batches, error_of(look, looks) / pairs)
    by_clock = resolutions or {}
    steps = {
        hash: max(clock_step(times), by_clock.get(hash, 0.0)) / median(times)
        for hash, times in samples.items()
    }
    gaps = {hash: gap.wider((steps[hash] + steps[best]) / 2) for hash, gap in gaps.items()}
    verdicts = {hash: gap.verdict for hash, gap in gaps.items()}
    verdicts[best] = _verdict_of_best(tuple(verdicts.values()))
    order = [best, *sorted(gaps, key=lambda hash: gaps[hash].centre)]
    return tuple(
        _standing(hash, samples[hash], batches, gaps.get(hash, _Gap(0.0, 0.0)), verdicts[hash])
        for hash in order
    )


def settled(standings: Sequence[MeasuredChoice]) -> bool:
    """Return whether no rival of the best is unclear, so that further rounds add no verdict."""
    return all(standing.verdict != "unclear" for standing in standings[1:])


@dataclass(frozen=True, slots=True)
class _Gap:
    """The log of a time over the best one's: estimate and half the width of its interval."""

    centre: float
    half: float

    def wider(self, by: float) -> _Gap:
        return _Gap(self.centre, self.half + by)

    @property
    def low(self) -> float:
        return self.centre - self.half

    @property
    def high(self) -> float:
        return self.centre + self.half

    @property
    def verdict(self) -> Verdict:
        tie = log1p(MARGIN)
        if -tie <= self.low and self.high <= tie:
            return "tied"
        return "slower" if self.low > 0 else "unclear"


def _verdict_of_best(rivals: Sequence[Verdict]) -> Verdict:
    """Return faster only if all rivals are slower; a choice without a rival has beaten none."""
    if not rivals or "unclear" in rivals:
        return "unclear"
    return "tied" if "tied" in rivals else "faster"


def checked_rounds(
    samples: Mapping[str, Sequence[float]] | Mapping[int, Sequence[float]],
    blocks: Sequence[int] | None,
) -> int:
    """Return the number of rounds. Raises ValueError on no samples, unequal numbers, bad times."""
    counts = {len(times) for times in samples.values()}
    if blocks is not None:
        counts.add(len(blocks))
    if len(counts) != 1 or 0 in counts or not samples:
        raise ValueError(f"each choice and the blocks need one entry a round, not {sorted(counts)}")
    for name, times in samples.items():
        wrong = next((ms for ms in times if not (isfinite(ms) and ms > 0)), None)
        if wrong is not None:
            raise ValueError(f"{name}: {wrong} ms is not a time")
    return counts.pop()


def batches_of(rounds: int, blocks: Sequence[int] | None) -> tuple[range, ...]:
    """Return the rounds of each batch: whole blocks, joined until there are few enough."""
    if blocks is None:
        blocks = [round // UNBLOCKED for round in range(rounds)]
    sizes = [len(list(members)) for _, members in groupby(blocks)]
    starts = [0, *accumulate(sizes)]
    count = min(len(sizes), MOST_BATCHES)
    bounds = [starts[len(sizes) * batch // count] for batch in range(count + 1)]
    return tuple(range(low, high) for low, high in pairwise(bounds))


def _gaps_to_best(
    logs: Mapping[str, Sequence[float]], batches: Batches, alpha: float
) -> tuple[str, dict[str, _Gap]]:
    """Return the choice that no other beats in a paired comparison, and how far the others are
    behind.

    Starts with the smallest median; if another beats it in pairs, the one that beats it most
    replaces it. With noise, choices can beat each other in a circle: then the last one stays.
    """

    def behind(best: str) -> dict[str, _Gap]:
        rivals = [hash for hash in logs if hash != best]
        return {hash: _gap(logs[hash], logs[best], batches, alpha) for hash in rivals}

    best = min(logs, key=lambda hash: median(logs[hash]))
    gaps = behind(best)
    for _ in logs:
        ahead = min(gaps, key=lambda hash: gaps[hash].centre, default=best)
        if ahead == best or gaps[ahead].centre >= 0:
            break
        best, gaps = ahead, behind(ahead)
    return best, gaps


def _gap(times: Sequence[float], rivals: Sequence[float], batches: Batches, alpha: float) -> _Gap:
    ratios = [a - b for a, b in zip(times, rivals, strict=True)]
    return _Gap(*estimate(ratios, batches, alpha, hodges_lehmann))


def estimate(
    values: Sequence[float],
    batches: Batches,
    alpha: float,
    condense: Callable[[Sequence[float]], float],
) -> tuple[float, float]:
    """Return centre and half width of the 1 - `alpha` interval, with one value per batch."""
    condensed = [condense(values[batch.start : batch.stop]) for batch in batches]
    centre, half = trimmed_interval(condensed, alpha)
    return centre, half * sqrt(swelling(likeness(values), len(values) / len(batches)))


def median_interval(times: Sequence[float], batches: Batches) -> tuple[float, float]:
    """Return the 95 % interval of the median time, which contains the median itself."""
    ms = median(times)
    centre, half = estimate([log(ms) for ms in times], batches, 1 - CONFIDENCE, median)
    return min(ms, exp(centre - half)), max(ms, ratio_of(centre + half))


def _standing(
    hash: str, times: Sequence[float], batches: Batches, gap: _Gap, verdict: Verdict
) -> MeasuredChoice:
    ms = median(times)
    low, high = median_interval(times, batches)
    lower, upper = quartiles(times)
    return MeasuredChoice(
        hash=hash,
        ms=ms,
        low=low,
        high=high,
        spread=(upper - lower) / (2 * ms),
        rounds=len(times),
        ratio=exp(gap.centre),
        ratio_low=ratio_of(gap.low),
        ratio_high=ratio_of(gap.high),
        verdict=verdict,
    )


def ratio_of(log_ratio: float) -> float:
    """Return `exp`, infinite on overflow: the first looks may be extremely uncertain."""
    return exp(log_ratio) if log_ratio < 700 else inf
