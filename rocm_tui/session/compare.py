"""Two sets of tunings compared: what became slower, what is only noise. Pure functions.

A set is what a folder, a log, a cache or one session tells. docs/comparing.md says how verdicts
are found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from statistics import median

from backend.records import Choice, MeasuredChoice, Session, Verdict
from rocm_tui.format import percent
from rocm_tui.session import stats
from rocm_tui.session.compare_choices import log_ratios, same_choice, used
from rocm_tui.session.compare_noise import noise
from rocm_tui.session.compare_pairs import Problem, pair_up
from rocm_tui.session.compare_types import (
    Basis,
    Comparison,
    Noise,
    Pair,
    Part,
    Standpoint,
    Totals,
)
from rocm_tui.session.compare_verdict import (
    Ruling,
    by_measurement,
    by_numbers,
    by_one_measurement,
    usable,
)
from rocm_tui.session.model import Model, Row


def whole(label: str, model: Model) -> Part:
    """Everything that a model holds."""
    return Part(label, tuple(model.rows()), model.sessions)


def of_sessions(label: str, ids: Collection[str], model: Model) -> Part:
    """What some of a model's sessions asked for."""
    rows = []
    for row in model.rows():
        asked = tuple(session for session in row.asked if session in ids)
        if asked:
            rows.append(replace(row, asked=asked))
    return Part(label, tuple(rows), model.sessions)


def compare(a: Part, b: Part) -> Comparison:
    """B against A, problem by problem."""
    matched, rest_a, rest_b = pair_up(a, b)
    devices = (_facts(a, "device", "arch"), _facts(b, "device", "arch"))
    ratios = [log_ratios(one.rows, two.rows) for one, two in matched]
    sure = noise(ratios, same_device=not all(devices) or devices[0] == devices[1])
    pairs: list[Pair] = []
    untimed: list[Row] = []
    for one, two in matched:
        pair = _pair(one, two, sure)
        if pair is None:
            untimed.append(two.rows[0])
        else:
            pairs.append(pair)
    only_a, silent_a = _alone(rest_a)
    only_b, silent_b = _alone(rest_b)
    return Comparison(
        a=a.label,
        b=b.label,
        common=tuple(sorted(pairs, key=lambda pair: -pair.lost_total_ms)),
        only_a=only_a,
        only_b=only_b,
        untimed=(*untimed, *silent_a, *silent_b),
        totals=_totals(pairs, a, b),
        noise=sure,
        notes=tuple(_notes(a, b, sure)),
    )


def standpoint(problem: Problem) -> Standpoint | None:
    """What a part knows of a problem; None where it tells no time.

    A measurement of the choice in use counts most, then the median over all its tunings.
    """
    return _measured(problem) or _by_numbers(problem)


def _by_numbers(problem: Problem) -> Standpoint | None:
    known = [(row, *found) for row in problem.rows if (found := used(row.tuning)) is not None]
    if not known:
        return None
    row, choice, _ = known[0]
    basis: Basis = "single" if len(known) == 1 else "median"
    return Standpoint(row, problem.rows, choice, median(ms for _, _, ms in known), basis)


def _measured(problem: Problem) -> Standpoint | None:
    for row in problem.rows:
        found = used(row.tuning)
        told = _told(row, found[0]) if found else None
        if found and told:
            return Standpoint(row, problem.rows, found[0], told.ms, "measured", told.low, told.high)
    return None


def _told(row: Row, choice: Choice) -> MeasuredChoice | None:
    told = stats.measured(row.tuning, choice)
    return told if told is not None and usable(told) else None


def _pair(one: Problem, two: Problem, sure: Noise) -> Pair | None:
    a, b = _measured(one), _measured(two)
    ruling = _by_measurements(a, b) if a and b else None
    if ruling is None:
        # A measurement and a single number are made in different ways: like is compared with like.
        a, b = _by_numbers(one), _by_numbers(two)
        if a is None or b is None:
            return None
        same = [a.choice] if same_choice(a.choice, b.choice) else []
        rivals = log_ratios(one.rows, two.rows, but=same)
        ruling = by_numbers(a.ms, b.ms, sure, rivals)
    assert a is not None and b is not None
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


def _by_measurements(a: Standpoint, b: Standpoint) -> Ruling | None:
    """None where the measurements say nothing about then and now."""
    then, now = a.measured, b.measured
    ours, theirs = _told(a.row, a.choice), _told(b.row, b.choice)
    if then is None or now is None or ours is None or theirs is None or then.flushed != now.flushed:
        return None
    if then != now:
        return by_measurement(ours, theirs, then, now)
    return None if same_choice(a.choice, b.choice) else by_one_measurement(ours, theirs)


def _alone(problems: Iterable[Problem]) -> tuple[tuple[Standpoint, ...], list[Row]]:
    """Problems of one part, most expensive first; and those without a time."""
    found: list[Standpoint] = []
    silent: list[Row] = []
    for problem in problems:
        point = standpoint(problem)
        if point is None:
            silent.append(problem.rows[0])
        else:
            found.append(point)
    return tuple(sorted(found, key=lambda point: -point.ms * (point.calls or 1))), silent


def _totals(pairs: Sequence[Pair], a: Part, b: Part) -> Totals:
    verdicts: Counter[Verdict] = Counter(pair.verdict for pair in pairs)
    return Totals(
        a_ms=sum(pair.a.ms * (pair.calls or 1) for pair in pairs),
        b_ms=sum(pair.b.ms * (pair.calls or 1) for pair in pairs),
        lost_ms=sum(pair.lost_total_ms for pair in pairs if pair.verdict == "slower"),
        gained_ms=-sum(pair.lost_total_ms for pair in pairs if pair.verdict == "faster"),
        verdicts=verdicts,
        a_seconds=sum(tuning_seconds(row) or 0.0 for row in a.rows),
        b_seconds=sum(tuning_seconds(row) or 0.0 for row in b.rows),
    )


def tuning_seconds(row: Row) -> float | None:
    """What one tuning took in all; None where its sources do not tell."""
    seconds = row.tuning.seconds
    known = [s for s in (seconds.precompile, seconds.prescreen, seconds.benchmark) if s is not None]
    return sum(known) if known else None


_FACTS = (
    ("device", "device"),
    ("architecture", "arch"),
    ("compute units", "compute_units"),
    ("torch", "torch"),
)


def _notes(a: Part, b: Part, sure: Noise) -> Iterable[str]:
    for name, field in _FACTS:
        ours, theirs = _facts(a, field), _facts(b, field)
        if ours and theirs and ours != theirs:
            yield f"other {name}: {_joined(ours)} in A, {_joined(theirs)} in B"
    if sure.shift != 1:
        how = "slower" if sure.shift > 1 else "faster"
        by = percent(abs(sure.shift - 1))
        yield f"all {sure.choices} choices timed in both are {how} by {by}: ratios are without it"


def _facts(part: Part, *fields: str) -> frozenset[str]:
    """What the sessions of a part's tunings say of themselves."""
    names = {session for row in part.rows for session in row.asked}
    sessions = [part.sessions[name] for name in names if name in part.sessions]
    return frozenset(text for each in sessions if (text := _text(each, fields)))


def _text(session: Session, fields: Sequence[str]) -> str:
    return " ".join(str(getattr(session, field) or "") for field in fields).strip()


def _joined(facts: frozenset[str]) -> str:
    return ", ".join(sorted(facts))


def regressions(comparison: Comparison, percent_slower: float) -> tuple[Pair, ...]:
    """The pairs with the verdict `slower` by more than so many per cent."""
    worse = 1 + percent_slower / 100
    return tuple(p for p in comparison.common if p.verdict == "slower" and p.ratio > worse)
