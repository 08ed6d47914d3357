"""Compare two sets of tunings: what became slower, what is only noise.

A set is what a folder, a log, a cache, one session, or an export of pins holds. A problem may have
been tuned several times, with other choices each time: ATen alone in one program, Triton beside it
in the next. So the same choice is compared, or the winners of the same offered set. A measurement
counts most; of several, the least disturbed. Else it is the median over all tunings that timed the
choice. docs/measuring.md says how verdicts are found. Pure functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from statistics import median

from backend.counted import counted
from backend.model.choice import Caches, Choice, Measurement, Verdict
from backend.model.inductor_kernel import is_inductors
from backend.model.origin import provider
from backend.model.problem import TuningKey
from backend.model.session import Session
from backend.model.tuning import Tuning
from rocm_tui.compare.choices import (
    identity_of,
    is_timed,
    log_ratios,
    same_choice,
    text_key,
    timed,
    used,
)
from rocm_tui.compare.problems import ProblemRows, pair_up
from rocm_tui.compare.types import Basis, Comparison, Noise, Pair, Standpoint, Totals, TuningSet
from rocm_tui.compare.verdict import (
    Ruling,
    by_measurement,
    by_numbers,
    by_one_measurement,
    in_units,
    noise,
    not_alike,
    usable,
)
from rocm_tui.session import stats
from rocm_tui.session.attachments import counting
from rocm_tui.session.model import Model, Row
from rocm_tui.session.numbers import percent
from rocm_tui.session.stats import blur
from rocm_tui.session.views import problem_of


def whole(label: str, model: Model) -> TuningSet:
    """Everything that a model holds."""
    return _part(label, model.rows(), model)


def inductors(label: str, model: Model) -> TuningSet:
    """Every tuning of Inductor's: a model may hold entries of other tuners' tables beside them."""
    return _part(label, (row for row in model.rows() if row.tuning.entry is None), model)


def of_sessions(label: str, ids: Collection[str], model: Model) -> TuningSet:
    """Return what some of a model's sessions requested."""
    rows = []
    for row in model.rows():
        asked = tuple(session for session in row.asked if session in ids)
        if asked:
            rows.append(replace(row, asked=asked))
    return _part(label, rows, model)


def _part(label: str, rows: Iterable[Row], model: Model) -> TuningSet:
    kept = tuple(rows)
    measured = {row.key: model.measurements(row.tuning) for row in kept}
    non_empty = {key: measurements for key, measurements in measured.items() if measurements}
    return TuningSet(label, kept, model.sessions, non_empty, _took(kept, model))


def _took(rows: Sequence[Row], model: Model) -> dict[tuple[str, TuningKey | None], str]:
    """Return what each session selected last, for the tunings that several requested."""
    shared = {problem_of(row.tuning): row for row in rows if len({*row.asked}) > 1}
    views = [member.tuning for row in shared.values() for member in model.members(row.tuning)]
    views.sort(key=lambda tuning: tuning.when or 0.0)
    return {(t.session, t.key): t.selected for t in views if t.session and t.selected}


def compare(a: TuningSet, b: TuningSet) -> Comparison:
    """B against A, problem by problem."""
    matched, rest_a, rest_b = pair_up(a, b)
    asked = _sessions_of(a), _sessions_of(b)
    devices = [_facts(sessions, "device", "arch") for sessions in asked]
    timed_once = [(left, right) for left, right in matched if _has_single_times(left)]
    ratios = [log_ratios(left.rows, right.rows) for left, right in timed_once]
    sure = noise(ratios, same_device=not all(devices) or devices[0] == devices[1])
    pairs: list[Pair] = []
    untimed: list[Row] = []
    for left, right in matched:
        judged = pair(left, right, sure)
        if judged is None:
            untimed.append(right.rows[0])
        else:
            pairs.append(judged)
    only_a, silent_a = _alone(rest_a)
    only_b, silent_b = _alone(rest_b)
    return Comparison(
        a=a.label,
        b=b.label,
        common=tuple(sorted(pairs, key=lambda pair: (not pair.alike, -pair.lost_total_ms))),
        only_a=only_a,
        only_b=only_b,
        untimed=(*untimed, *silent_a, *silent_b),
        totals=_totals(pairs, a, b),
        noise=sure,
        notes=tuple(_notes(*asked, sure)),
    )


def _alone(problems: Iterable[ProblemRows]) -> tuple[tuple[Standpoint, ...], list[Row]]:
    """Problems of one part, most expensive first; and those without a time."""
    points: list[Standpoint] = []
    silent: list[Row] = []
    for problem in problems:
        point = standpoint(problem)
        if point is None:
            silent.append(problem.rows[0])
        else:
            points.append(point)
    return tuple(sorted(points, key=lambda point: -point.ms * (point.calls or 1))), silent


def _totals(pairs: Sequence[Pair], a: TuningSet, b: TuningSet) -> Totals:
    verdicts: Counter[Verdict] = Counter(pair.verdict for pair in pairs)
    decided = [pair for pair in pairs if pair.verdict != "unclear"]
    return Totals(
        a_ms=sum(pair.a.ms * (pair.calls or 1) for pair in decided),
        b_ms=sum(pair.b.ms * (pair.calls or 1) for pair in decided),
        lost_ms=sum(pair.lost_total_ms for pair in pairs if pair.verdict == "slower"),
        gained_ms=-sum(pair.lost_total_ms for pair in pairs if pair.verdict == "faster"),
        verdicts=verdicts,
        a_seconds=spent(a.rows),
        b_seconds=spent(b.rows),
        a_unknown=unknown_durations(a.rows),
        b_unknown=unknown_durations(b.rows),
        error=max((pair.error for pair in decided), default=0.0),
    )


def spent(rows: Iterable[Row]) -> float:
    """Return the seconds that tunings took, as far as that is known."""
    return sum(tuning_seconds(row) or 0.0 for row in rows if not taken(row))


def unknown_durations(rows: Iterable[Row]) -> int:
    """Return how many tunings have an unknown duration."""
    return sum(tuning_seconds(row) is None and was_tuned(row) and not taken(row) for row in rows)


def taken(row: Row) -> bool:
    """Whether its requesters took what another session had timed."""
    timed = row.tuning.session
    return timed is not None and bool(row.asked) and timed not in row.asked


def was_tuned(row: Row) -> bool:
    """Whether a row is of a tuning with times, not only of the use of an older one."""
    return is_timed(row.tuning)


def tuning_seconds(row: Row) -> float | None:
    """Return the total duration of one tuning; None if its sources do not record it."""
    seconds = row.tuning.seconds
    benchmark, precompile, prescreen = seconds.benchmark, seconds.precompile, seconds.prescreen
    if benchmark is None and precompile is None and prescreen is None:
        return None
    return (precompile or 0.0) + (prescreen or 0.0) + (benchmark or 0.0)


_FACTS = (
    ("device", "device"),
    ("architecture", "arch"),
    ("compute units", "compute_units"),
    ("torch", "torch"),
    ("number of threads", "threads"),
)


def _notes(a: Sequence[Session], b: Sequence[Session], sure: Noise) -> Iterable[str]:
    for name, field in _FACTS:
        ours, theirs = _facts(a, field), _facts(b, field)
        if ours and theirs and ours != theirs:
            both = (", ".join(sorted(facts)) for facts in (ours, theirs))
            yield "other {}: {} in A, {} in B".format(name, *both)
    if sure.shift != 1:
        how = "slower" if sure.shift > 1 else "faster"
        by = percent(abs(sure.shift - 1))
        all_ = f"all {counted(sure.choices, 'choice')} timed in both"
        yield f"{all_} are {how} by {by}: ratios are without it"


def _sessions_of(part: TuningSet) -> list[Session]:
    """The sessions of a part's tunings."""
    names = {session for row in part.rows for session in row.asked}
    return [part.sessions[name] for name in names if name in part.sessions]


def _facts(sessions: Iterable[Session], *fields: str) -> frozenset[str]:
    """Return the values of these fields in sessions, without empty ones."""
    texts = (" ".join(str(getattr(s, field) or "") for field in fields) for s in sessions)
    return frozenset(filter(None, map(str.strip, texts)))


def regressions(comparison: Comparison, percent_slower: float) -> tuple[Pair, ...]:
    """Return the pairs with the verdict `slower` by more than `percent_slower` per cent."""
    worse = 1 + percent_slower / 100
    return tuple(p for p in comparison.common if p.verdict == "slower" and p.ratio > worse)


def may_be_slower(comparison: Comparison, percent_slower: float) -> int:
    """Return how many pairs are slower by more than `percent_slower` per cent, which is unclear."""
    worse = 1 + percent_slower / 100
    unclear = (p for p in comparison.common if p.verdict == "unclear" and p.alike)
    return sum(pair.ratio > worse for pair in unclear)


@dataclass(frozen=True, slots=True)
class UsedChoice:
    """A tuning, the choice that is in use since, and the time that it gave it."""

    row: Row
    choice: Choice
    ms: float


def uses(problem: ProblemRows) -> Iterator[UsedChoice]:
    """Yield the choices in use of a problem's tunings, latest first; those without a time are
    skipped."""
    for row in problem.rows:
        use = used(row.tuning)
        if use is not None:
            yield UsedChoice(row, *use)


def alike(left: ProblemRows, right: ProblemRows) -> Iterator[tuple[UsedChoice, UsedChoice]]:
    """Yield the uses of two problems that may be compared, the latest of both first."""
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


def _variants(uses_: Iterator[UsedChoice]) -> list[UsedChoice]:
    """Return the latest use of each choice and offered set; older ones compare alike."""
    kept: dict[object, UsedChoice] = {}
    for use in uses_:
        offer = frozenset(_key(choice) for choice in _offered(use.row.tuning))
        kept.setdefault((_key(use.choice), offer, use.row.tuning.num_choices), use)
    return list(kept.values())


def _key(choice: Choice) -> str:
    return identity_of(choice) or text_key(choice)


def like(a: UsedChoice, b: UsedChoice, other_torch: bool = False) -> bool:
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
    """Whether two tunings offered the same choices, as far as both show.

    Two versions of torch give one kernel two hashes: for those, and if one tuning has hashes and
    the other names, equal numbers of choices of each backend count as the same set. So do equal
    numbers of choices if not all of them are shown.
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


def why_not(a: UsedChoice, b: UsedChoice) -> str:
    """Say why two uses cannot be compared."""
    missing = [
        f"{choice.label} was not {'offered' if complete(other.row.tuning) else 'shown'} in {where}"
        for choice, other, where in ((a.choice, b, "B"), (b.choice, a, "A"))
        if not offers(other.row.tuning, choice)
    ]
    return f"other choices were put up: {', '.join(missing)}" if missing else "other choices"


def times(problem: ProblemRows, use: UsedChoice) -> list[float]:
    """Return the times of a use's choice in all tunings of a problem."""
    if len(problem.rows) == 1:
        return [use.ms]
    every = (_time(row.tuning, use) for row in problem.rows)
    return [ms for ms in every if ms is not None]


def _time(tuning: Tuning, use: UsedChoice) -> float | None:
    if tuning is use.row.tuning:
        return use.ms
    same = [ms for choice, ms in timed(tuning) if same_choice(choice, use.choice)]
    return same[0] if len(same) == 1 else None


def standpoint(problem: ProblemRows) -> Standpoint | None:
    """Return what a tuning set knows of a problem; None if it has no time for that."""
    for caches in _kinds(problem):
        if point := _measured(problem, uses(problem), problem.measured, caches):
            return point
    latest = next(uses(problem), None) if _has_single_times(problem) else None
    return _by_numbers(problem, latest) if latest else None


def _has_single_times(problem: ProblemRows) -> bool:
    """Whether the single numbers of its choices are times of a call: see `stats.single_ms`."""
    return not is_inductors(problem.rows[0].tuning.op)


def _by_numbers(problem: ProblemRows, use: UsedChoice) -> Standpoint:
    ours = times(problem, use)
    basis: Basis = "single" if len(ours) == 1 else "median"
    ms = use.ms if len(ours) == 1 else median(ours)
    return Standpoint(use.row, problem.rows, use.choice, ms, basis)


def _measured(
    problem: ProblemRows,
    candidates: Iterable[UsedChoice],
    measurements: Sequence[Measurement],
    caches: Caches,
) -> Standpoint | None:
    """Judge by the least disturbed measurement: a neighbour makes a kernel slower, not faster."""
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
    """Compare a problem of B with that of A; None if one of them has no time."""
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
    """Compare single numbers: of uses that are alike, else of the latest, which prove nothing."""
    if not _has_single_times(left):
        return None
    comparable = next(alike(left, right), None)
    if comparable is not None:
        a, b = _by_numbers(left, comparable[0]), _by_numbers(right, comparable[1])
        same = [a.choice] if same_choice(a.choice, b.choice) else []
        rivals = partial(log_ratios, left.rows, right.rows, but=same)
        unseen = lambda: max(blur(a.tuning), blur(b.tuning))  # noqa: E731
        return a, b, by_numbers(a.ms, b.ms, noise, rivals, unseen)
    ours, theirs = next(uses(left), None), next(uses(right), None)
    if ours is None or theirs is None:
        return None
    a, b = _by_numbers(left, ours), _by_numbers(right, theirs)
    return a, b, not_alike(a.ms, b.ms, noise, why_not(ours, theirs))


def _by_measurements(
    left: ProblemRows, right: ProblemRows
) -> tuple[Standpoint, Standpoint, Ruling] | None:
    """None where the measurements say nothing about then and now."""
    if not left.measured or not right.measured:
        return None
    for a, b in _both_measured(left, right, ((caches, caches) for caches in _kinds(right))):
        if ruling := _then_and_now(a, b):
            return a, b, ruling
    for measurement in [m for m in left.measured if m in right.measured]:
        then, now = (
            _measured(problem, uses(problem), [measurement], measurement.caches)
            for problem in (left, right)
        )
        if then and now and not same_choice(then.choice, now.choice):
            mine, its = measurement.of(then.choice.hash), measurement.of(now.choice.hash)
            if mine and its:
                return then, now, by_one_measurement(mine, its)
    return None


def _hot_and_cold(
    left: ProblemRows, right: ProblemRows, noise: Noise
) -> tuple[Standpoint, Standpoint, Ruling] | None:
    """Refuse to compare if one side was measured hot and the other cold."""
    for a, b in _both_measured(left, right, _OTHER.items()):
        if a.measured and b.measured:
            kinds = f"A was measured with {a.measured.caches} caches, B with {b.measured.caches}"
            return a, b, not_alike(a.ms, b.ms, noise, f"{kinds} ones")
    return None


def _both_measured(
    left: ProblemRows, right: ProblemRows, kinds: Iterable[tuple[Caches, Caches]]
) -> Iterator[tuple[Standpoint, Standpoint]]:
    """Yield what both sides measured of uses that are alike, without measurements that both have,
    for each pair of kinds of caches."""
    ours, theirs = (
        [m for m in problem.measured if m not in other.measured]
        for problem, other in ((left, right), (right, left))
    )
    for caches, others in kinds if ours and theirs else ():
        for before, after in alike(left, right):
            a = _measured(left, [before], ours, caches)
            b = _measured(right, [after], theirs, others)
            if a and b:
                yield a, b


_OTHER: Mapping[Caches, Caches] = {"hot": "cold", "cold": "hot"}


def _kinds(problem: ProblemRows) -> tuple[Caches, ...]:
    """Return the kinds of measurements, the one that counts first."""
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
