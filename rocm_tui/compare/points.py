"""What two parts know of a problem, and the pair that it makes: like is compared with like.

A problem may have been tuned several times, with other choices each time: ATen alone in one
program, Triton beside it in the next. What one of them takes says nothing of the other. So the same
choice is compared, or the winners of the same offered set. A measurement counts most; of several,
the least disturbed. Else it is the median over all tunings that timed the choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from statistics import median

from backend.model.choice import Caches, Choice, Measurement
from backend.model.origin import provider
from backend.model.tuning import Tuning
from rocm_tui.compare.problems import ProblemRows
from rocm_tui.compare.types import (
    Basis,
    Noise,
    Pair,
    Standpoint,
    identity_of,
    log_ratios,
    same_choice,
    text_key,
    timed,
    used,
)
from rocm_tui.compare.verdict import (
    Ruling,
    by_measurement,
    by_numbers,
    by_one_measurement,
    in_units,
    not_alike,
    usable,
)
from rocm_tui.session import stats
from rocm_tui.session.attachments import counting
from rocm_tui.session.model import Row
from rocm_tui.session.stats import blur


@dataclass(frozen=True, slots=True)
class Use:
    """A tuning, the choice that is in use since, and the time that it gave it."""

    row: Row
    choice: Choice
    ms: float


def uses(problem: ProblemRows) -> Iterator[Use]:
    """What its tunings came to, latest first; without those that tell no time."""
    for row in problem.rows:
        use = used(row.tuning)
        if use is not None:
            yield Use(row, *use)


def alike(left: ProblemRows, right: ProblemRows) -> Iterator[tuple[Use, Use]]:
    """What of two problems may be compared, the latest of both first."""
    other_torch = bool(left.torch and right.torch and not left.torch & right.torch)
    ours, theirs = uses(left), uses(right)
    a, b = next(ours, None), next(theirs, None)
    if a is None or b is None:
        return
    if like(a, b, other_torch):
        yield a, b
    befores = _variants(chain([a], ours))
    for after in _variants(chain([b], theirs)):
        for before in befores:
            if (before, after) != (a, b) and like(before, after, other_torch):
                yield before, after


def _variants(uses_: Iterator[Use]) -> list[Use]:
    """The latest of each choice and offered set: what is like one of them is like all."""
    kept: dict[object, Use] = {}
    for use in uses_:
        offer = frozenset(_key(choice) for choice in _offered(use.row.tuning))
        kept.setdefault((_key(use.choice), offer, use.row.tuning.num_choices), use)
    return list(kept.values())


def _key(choice: Choice) -> str:
    return identity_of(choice) or text_key(choice)


def like(a: Use, b: Use, other_torch: bool = False) -> bool:
    """Whether what one use takes may be compared with what the other takes."""
    left, right = a.row.tuning, b.row.tuning
    return (
        same_choice(a.choice, b.choice)
        or same_offer(left, right, other_torch)
        or (offers(left, b.choice) and offers(right, a.choice))
    )


def offers(tuning: Tuning, choice: Choice) -> bool:
    """Whether a choice was put up in a tuning, as far as its source shows."""
    return any(same_choice(choice, other) for other in _offered(tuning))


def same_offer(a: Tuning, b: Tuning, other_torch: bool = False) -> bool:
    """Whether two tunings put up the same choices, as far as both tell.

    Two versions of torch give one kernel two hashes: of those, and where one tuning tells hashes
    and the other names, as many choices of each backend are the same set. So are as many choices
    where not all of them are shown.
    """
    if not (complete(a) and complete(b)):
        return a.num_choices is not None and a.num_choices == b.num_choices
    ours, theirs = _offered(a), _offered(b)
    if len(ours) != len(theirs):
        return False
    both = (*ours, *theirs)
    if not other_torch and all(choice.hash for choice in both):
        return set(map(identity_of, ours)) == set(map(identity_of, theirs))
    if not other_torch and all(choice.name or choice.description for choice in both):
        return Counter(map(text_key, ours)) == Counter(map(text_key, theirs))
    return Counter(map(provider, ours)) == Counter(map(provider, theirs))


def _offered(tuning: Tuning) -> list[Choice]:
    return [choice for choice in tuning.choices if choice.offered]


def complete(tuning: Tuning) -> bool:
    """Whether its source shows all choices that it put up."""
    return stats.tried(tuning) == sum(choice.offered for choice in tuning.choices)


def why_not(a: Use, b: Use) -> str:
    """What keeps two uses from being compared."""
    missing = [
        f"{choice.label} was not {'offered' if complete(other.row.tuning) else 'shown'} in {where}"
        for choice, other, where in ((a.choice, b, "B"), (b.choice, a, "A"))
        if not offers(other.row.tuning, choice)
    ]
    return f"other choices were put up: {', '.join(missing)}" if missing else "other choices"


def times(problem: ProblemRows, use: Use) -> list[float]:
    """What all tunings of a problem took with the choice of a use."""
    if len(problem.rows) == 1:
        return [use.ms]
    known = (_time(row.tuning, use) for row in problem.rows)
    return [ms for ms in known if ms is not None]


def _time(tuning: Tuning, use: Use) -> float | None:
    if tuning is use.row.tuning:
        return use.ms
    same = [ms for choice, ms in timed(tuning) if same_choice(choice, use.choice)]
    return same[0] if len(same) == 1 else None


def standpoint(problem: ProblemRows) -> Standpoint | None:
    """What a part knows of a problem; None where it tells no time."""
    for caches in _kinds(problem):
        if point := _measured(problem, uses(problem), problem.measured, caches):
            return point
    latest = next(uses(problem), None)
    return _by_numbers(problem, latest) if latest else None


def _by_numbers(problem: ProblemRows, use: Use) -> Standpoint:
    known = times(problem, use)
    basis: Basis = "single" if len(known) == 1 else "median"
    ms = use.ms if len(known) == 1 else median(known)
    return Standpoint(use.row, problem.rows, use.choice, ms, basis)


def _measured(
    problem: ProblemRows,
    candidates: Iterable[Use],
    measurements: Sequence[Measurement],
    caches: Caches,
) -> Standpoint | None:
    """By the least disturbed of the measurements: a neighbour makes a kernel slower, not faster."""
    like = [measurement for measurement in measurements if measurement.caches == caches]
    for use in candidates if like else ():
        choice = use.choice
        usable_ones = [(m, its) for m in like if (its := m.of(choice.hash)) and usable(its)]
        if usable_ones:
            best, its = min(usable_ones, key=lambda known: known[1].ms)
            return Standpoint(
                use.row,
                problem.rows,
                choice,
                its.ms,
                "measured",
                its.low,
                its.high,
                measured=best,
                measurements=tuple(measurement for measurement, _ in usable_ones),
            )
    return None


def pair(left: ProblemRows, right: ProblemRows, noise: Noise) -> Pair | None:
    """B's problem against A's; None where one of them tells no time."""
    # A measurement and a single number are made in different ways: like is compared with like.
    judged = (
        _by_measurements(left, right)
        or _hot_and_cold(left, right, noise)
        or _numbers(left, right, noise)
    )
    if judged is None:
        return None
    a, b, ruling = judged
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
        same_tuning=_same_tuning(a.rows, b.rows),
    )


def _same_tuning(a: Sequence[Row], b: Sequence[Row]) -> bool:
    if len(a) != len(b):
        return False
    rows = zip(a, b, strict=True)
    return all(left.key == right.key and left.tuning == right.tuning for left, right in rows)


def _numbers(
    left: ProblemRows, right: ProblemRows, noise: Noise
) -> tuple[Standpoint, Standpoint, Ruling] | None:
    """By single numbers: of what is alike, else of the latest, which tells nothing."""
    comparable = next(alike(left, right), None)
    if comparable is not None:
        a, b = _by_numbers(left, comparable[0]), _by_numbers(right, comparable[1])
        same = [a.choice] if same_choice(a.choice, b.choice) else []
        rivals = partial(log_ratios, left.rows, right.rows, but=same)
        unseen = partial(_blur, a, b)
        return a, b, by_numbers(a.ms, b.ms, noise, rivals, unseen)
    ours, theirs = next(uses(left), None), next(uses(right), None)
    if ours is None or theirs is None:
        return None
    a, b = _by_numbers(left, ours), _by_numbers(right, theirs)
    return a, b, not_alike(a.ms, b.ms, noise, why_not(ours, theirs))


def _blur(a: Standpoint, b: Standpoint) -> float:
    return max(blur(a.tuning), blur(b.tuning))


def _by_measurements(
    left: ProblemRows, right: ProblemRows
) -> tuple[Standpoint, Standpoint, Ruling] | None:
    """None where the measurements say nothing about then and now."""
    if not left.measured or not right.measured:
        return None
    both = [m for m in left.measured if m in right.measured]
    ours, theirs = _apart(left, right)
    for caches in _kinds(right):
        for before, after in alike(left, right) if ours and theirs else ():
            a = _measured(left, [before], ours, caches)
            b = _measured(right, [after], theirs, caches)
            if a and b and (ruling := _then_and_now(a, b)):
                return a, b, ruling
    for measurement in both:
        a, b = (
            _measured(problem, uses(problem), [measurement], measurement.caches)
            for problem in (left, right)
        )
        if a and b and not same_choice(a.choice, b.choice):
            mine, its = measurement.of(a.choice.hash), measurement.of(b.choice.hash)
            if mine and its:
                return a, b, by_one_measurement(mine, its)
    return None


def _hot_and_cold(
    left: ProblemRows, right: ProblemRows, noise: Noise
) -> tuple[Standpoint, Standpoint, Ruling] | None:
    """Where one side was measured hot and the other cold: they answer different questions."""
    if not left.measured or not right.measured:
        return None
    ours, theirs = _apart(left, right)
    for caches, others in _OTHER.items():
        for before, after in alike(left, right) if ours and theirs else ():
            a = _measured(left, [before], ours, caches)
            b = _measured(right, [after], theirs, others)
            if a and b:
                why = f"A was measured with {caches} caches, B with {others} ones"
                return a, b, not_alike(a.ms, b.ms, noise, why)
    return None


def _apart(left: ProblemRows, right: ProblemRows) -> tuple[list[Measurement], list[Measurement]]:
    """The measurements that one of them alone has."""
    both = {m for m in left.measured if m in right.measured}
    ours, theirs = ([m for m in problem.measured if m not in both] for problem in (left, right))
    return ours, theirs


_OTHER: Mapping[Caches, Caches] = {"hot": "cold", "cold": "hot"}


def _kinds(problem: ProblemRows) -> tuple[Caches, ...]:
    """Those that count first."""
    counts = counting(problem.rows[0].tuning, problem.measured)
    return (counts[0].caches, _OTHER[counts[0].caches]) if counts else ()


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
