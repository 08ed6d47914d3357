"""What two parts know of a problem, and the pair that it makes.

A measurement counts most; of several, the least disturbed. Else it is the median over all tunings
that timed the choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from statistics import median

from backend.model.measurement import Measurement
from rocm_tui.session.clock_tick import blur
from rocm_tui.session.compare_choices import log_ratios, same_choice
from rocm_tui.session.compare_like import Use, alike, times, uses, why_not
from rocm_tui.session.compare_pairs import ProblemRows
from rocm_tui.session.compare_types import Basis, Noise, Pair, Standpoint
from rocm_tui.session.compare_units import in_units, usable
from rocm_tui.session.compare_verdict import (
    Ruling,
    by_measurement,
    by_numbers,
    by_one_measurement,
    not_alike,
)


def standpoint(problem: ProblemRows) -> Standpoint | None:
    """What a part knows of a problem; None where it tells no time."""
    for flushed in (False, True):
        if point := _measured(problem, uses(problem), problem.measured, flushed):
            return point
    latest = next(uses(problem), None)
    return _by_numbers(problem, latest) if latest else None


def _by_numbers(problem: ProblemRows, use: Use) -> Standpoint:
    known = times(problem, use)
    basis: Basis = "single" if len(known) == 1 else "median"
    ms = use.ms if len(known) == 1 else median(known)
    return Standpoint(use.row, problem.rows, use.choice, ms, basis)


def _measured(
    problem: ProblemRows, found: Iterable[Use], measurements: Sequence[Measurement], flushed: bool
) -> Standpoint | None:
    """By the least disturbed of the measurements: a neighbour makes a kernel slower, not faster."""
    like = [one for one in measurements if one.flushed == flushed]
    for use in found if like else ():
        choice = use.choice
        told = [(one, its) for one in like if (its := one.of(choice.hash)) and usable(its)]
        if told:
            best, its = min(told, key=lambda known: known[1].ms)
            return Standpoint(
                use.row,
                problem.rows,
                choice,
                its.ms,
                "measured",
                its.low,
                its.high,
                measured=best,
                measurements=tuple(one for one, _ in told),
            )
    return None


def pair(one: ProblemRows, two: ProblemRows, noise: Noise) -> Pair | None:
    """B's problem against A's; None where one of them tells no time."""
    # A measurement and a single number are made in different ways: like is compared with like.
    found = _by_measurements(one, two) or _numbers(one, two, noise)
    if found is None:
        return None
    a, b, ruling = found
    return Pair(
        b.row.id,
        a,
        b,
        ratio=ruling.ratio,
        raw=ruling.raw,
        low=ruling.low,
        high=ruling.high,
        verdict=ruling.verdict,
        reason=ruling.reason,
        alike=ruling.alike,
    )


def _numbers(
    one: ProblemRows, two: ProblemRows, noise: Noise
) -> tuple[Standpoint, Standpoint, Ruling] | None:
    """By single numbers: of what is alike, else of the latest, which tells nothing."""
    found = next(alike(one, two), None)
    if found is not None:
        a, b = _by_numbers(one, found[0]), _by_numbers(two, found[1])
        same = [a.choice] if same_choice(a.choice, b.choice) else []
        rivals = partial(log_ratios, one.rows, two.rows, but=same)
        unseen = partial(_blur, a, b)
        return a, b, by_numbers(a.ms, b.ms, noise, rivals, unseen)
    ours, theirs = next(uses(one), None), next(uses(two), None)
    if ours is None or theirs is None:
        return None
    a, b = _by_numbers(one, ours), _by_numbers(two, theirs)
    return a, b, not_alike(a.ms, b.ms, noise, why_not(ours, theirs))


def _blur(a: Standpoint, b: Standpoint) -> float:
    return max(blur(a.tuning), blur(b.tuning))


def _by_measurements(
    one: ProblemRows, two: ProblemRows
) -> tuple[Standpoint, Standpoint, Ruling] | None:
    """None where the measurements say nothing about then and now."""
    if not one.measured or not two.measured:
        return None
    both = [each for each in one.measured if each in two.measured]
    ours, theirs = ([m for m in each.measured if m not in both] for each in (one, two))
    for flushed in (False, True):
        for before, after in alike(one, two) if ours and theirs else ():
            a = _measured(one, [before], ours, flushed)
            b = _measured(two, [after], theirs, flushed)
            if a and b and (ruling := _then_and_now(a, b)):
                return a, b, ruling
    for each in both:
        found = (_measured(problem, uses(problem), [each], each.flushed) for problem in (one, two))
        a, b = found
        if a and b and not same_choice(a.choice, b.choice):
            mine, its = each.of(a.choice.hash), each.of(b.choice.hash)
            if mine and its:
                return a, b, by_one_measurement(mine, its)
    return None


def _then_and_now(a: Standpoint, b: Standpoint) -> Ruling | None:
    if a.measured is None or b.measured is None:
        return None
    ours, theirs = a.measured.of(a.choice.hash), b.measured.of(b.choice.hash)
    if ours is None or theirs is None:
        return None
    return by_measurement(
        ours,
        theirs,
        in_units(ours.hash, theirs.hash, a.measurements, b.measurements),
        times=min(len(a.measurements), len(b.measurements)),
        trouble=[*a.measured.trouble, *b.measured.trouble],
    )
