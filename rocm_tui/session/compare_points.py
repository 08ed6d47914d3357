"""What two parts know of a problem, and the pair that it makes.

A measurement counts most; of several, the least disturbed. Else it is the median over all tunings.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from backend.records import Measurement
from rocm_tui.session.compare_choices import log_ratios, same_choice, used
from rocm_tui.session.compare_pairs import Problem
from rocm_tui.session.compare_types import Basis, Noise, Pair, Standpoint
from rocm_tui.session.compare_units import in_units, usable
from rocm_tui.session.compare_verdict import (
    Ruling,
    by_measurement,
    by_numbers,
    by_one_measurement,
)


def standpoint(problem: Problem) -> Standpoint | None:
    """What a part knows of a problem; None where it tells no time."""
    measured = (_measured(problem, problem.measured, flushed) for flushed in (False, True))
    return next((point for point in measured if point), None) or _by_numbers(problem)


def _by_numbers(problem: Problem) -> Standpoint | None:
    known = [(row, *found) for row in problem.rows if (found := used(row.tuning)) is not None]
    if not known:
        return None
    row, choice, _ = known[0]
    basis: Basis = "single" if len(known) == 1 else "median"
    return Standpoint(row, problem.rows, choice, median(ms for _, _, ms in known), basis)


def _measured(
    problem: Problem, measurements: Sequence[Measurement], flushed: bool
) -> Standpoint | None:
    """By the least disturbed of the measurements: a neighbour makes a kernel slower, not faster."""
    for row in problem.rows:
        found = used(row.tuning)
        if found is None:
            continue
        choice, _ = found
        told = [
            (one, its)
            for one in measurements
            if one.flushed == flushed and (its := one.of(choice.hash)) and usable(its)
        ]
        if told:
            best, its = min(told, key=lambda known: known[1].ms)
            return Standpoint(
                row,
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


def pair(one: Problem, two: Problem, noise: Noise) -> Pair | None:
    """B's problem against A's; None where one of them tells no time."""
    found = _by_measurements(one, two)
    if found is None:
        # A measurement and a single number are made in different ways: like is compared with like.
        a, b = _by_numbers(one), _by_numbers(two)
        if a is None or b is None:
            return None
        same = [a.choice] if same_choice(a.choice, b.choice) else []
        found = a, b, by_numbers(a.ms, b.ms, noise, log_ratios(one.rows, two.rows, but=same))
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
    )


def _by_measurements(one: Problem, two: Problem) -> tuple[Standpoint, Standpoint, Ruling] | None:
    """None where the measurements say nothing about then and now."""
    both = [each for each in one.measured if each in two.measured]
    for flushed in (False, True):
        a = _measured(one, [each for each in one.measured if each not in both], flushed)
        b = _measured(two, [each for each in two.measured if each not in both], flushed)
        if a and b and (ruling := _then_and_now(a, b)):
            return a, b, ruling
    for each in both:
        a, b = (_measured(problem, [each], each.flushed) for problem in (one, two))
        if a and b and not same_choice(a.choice, b.choice):
            ours, theirs = each.of(a.choice.hash), each.of(b.choice.hash)
            if ours and theirs:
                return a, b, by_one_measurement(ours, theirs)
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
