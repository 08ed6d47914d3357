"""Two sets of tunings compared: what became slower, what is only noise.

A set is what a folder, a log, a cache, one session, or an export of pins holds. docs/comparing.md
says how verdicts are found. Pure functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from backend.counted import counted
from backend.model.choice import Verdict
from backend.model.problem import TuningKey
from backend.model.session import Session
from rocm_tui.compare.points import pair, standpoint
from rocm_tui.compare.problems import ProblemRows, pair_up
from rocm_tui.compare.types import (
    Comparison,
    Noise,
    Pair,
    Part,
    Standpoint,
    Totals,
    is_timed,
    log_ratios,
)
from rocm_tui.compare.verdict import noise
from rocm_tui.session.model import Model, Row
from rocm_tui.session.numbers import percent
from rocm_tui.session.views import problem_of


def whole(label: str, model: Model) -> Part:
    """Everything that a model holds."""
    return _part(label, model.rows(), model)


def inductors(label: str, model: Model) -> Part:
    """Every tuning of Inductor's: a model may hold entries of other tuners' tables beside them."""
    return _part(label, (row for row in model.rows() if row.tuning.entry is None), model)


def of_sessions(label: str, ids: Collection[str], model: Model) -> Part:
    """What some of a model's sessions asked for."""
    rows = []
    for row in model.rows():
        asked = tuple(session for session in row.asked if session in ids)
        if asked:
            rows.append(replace(row, asked=asked))
    return _part(label, rows, model)


def _part(label: str, rows: Iterable[Row], model: Model) -> Part:
    kept = tuple(rows)
    measured = {row.key: model.measurements(row.tuning) for row in kept}
    known = {key: measurements for key, measurements in measured.items() if measurements}
    return Part(label, kept, model.sessions, known, _took(kept, model))


def _took(rows: Sequence[Row], model: Model) -> dict[tuple[str, TuningKey | None], str]:
    """What each session selected last, of the tunings that several asked for."""
    shared = {problem_of(row.tuning): row for row in rows if _shared(row)}
    told = [member.tuning for row in shared.values() for member in model.members(row.tuning)]
    told.sort(key=lambda tuning: tuning.when or 0.0)
    return {(t.session, t.key): t.selected for t in told if t.session and t.selected}


def _shared(row: Row) -> bool:
    return len(row.asked) > 1 and len({*row.asked}) > 1


def compare(a: Part, b: Part) -> Comparison:
    """B against A, problem by problem."""
    matched, rest_a, rest_b = pair_up(a, b)
    asked = _asked(a), _asked(b)
    devices = [_facts(sessions, "device", "arch") for sessions in asked]
    ratios = [log_ratios(left.rows, right.rows) for left, right in matched]
    sure = noise(ratios, same_device=not all(devices) or devices[0] == devices[1])
    pairs: list[Pair] = []
    untimed: list[Row] = []
    for left, right in matched:
        made = pair(left, right, sure)
        if made is None:
            untimed.append(right.rows[0])
        else:
            pairs.append(made)
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


def _totals(pairs: Sequence[Pair], a: Part, b: Part) -> Totals:
    verdicts: Counter[Verdict] = Counter(pair.verdict for pair in pairs)
    alike = [pair for pair in pairs if pair.alike]
    return Totals(
        a_ms=sum(pair.a.ms * (pair.calls or 1) for pair in alike),
        b_ms=sum(pair.b.ms * (pair.calls or 1) for pair in alike),
        lost_ms=sum(pair.lost_total_ms for pair in pairs if pair.verdict == "slower"),
        gained_ms=-sum(pair.lost_total_ms for pair in pairs if pair.verdict == "faster"),
        verdicts=verdicts,
        a_seconds=spent(a.rows),
        b_seconds=spent(b.rows),
        a_untold=untold(a.rows),
        b_untold=untold(b.rows),
    )


def spent(rows: Iterable[Row]) -> float:
    """Seconds that tunings took, as far as they tell."""
    return sum(tuning_seconds(row) or 0.0 for row in rows if not taken(row))


def untold(rows: Iterable[Row]) -> int:
    """How many tunings do not tell what they took."""
    return sum(tuning_seconds(row) is None and was_tuned(row) and not taken(row) for row in rows)


def taken(row: Row) -> bool:
    """Whether those that asked took what another session had timed."""
    timed = row.tuning.session
    return timed is not None and bool(row.asked) and timed not in row.asked


def was_tuned(row: Row) -> bool:
    """Whether it tells of a tuning with times, and not only of the use of an older one."""
    return is_timed(row.tuning)


def tuning_seconds(row: Row) -> float | None:
    """What one tuning took in all; None where its sources do not tell."""
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
            yield f"other {name}: {_joined(ours)} in A, {_joined(theirs)} in B"
    if sure.shift != 1:
        how = "slower" if sure.shift > 1 else "faster"
        by = percent(abs(sure.shift - 1))
        all_ = f"all {counted(sure.choices, 'choice')} timed in both"
        yield f"{all_} are {how} by {by}: ratios are without it"


def _asked(part: Part) -> list[Session]:
    """The sessions of a part's tunings."""
    names = {session for row in part.rows for session in row.asked}
    return [part.sessions[name] for name in names if name in part.sessions]


def _facts(sessions: Iterable[Session], *fields: str) -> frozenset[str]:
    """What they say of themselves."""
    return frozenset(text for session in sessions if (text := _text(session, fields)))


def _text(session: Session, fields: Sequence[str]) -> str:
    return " ".join(str(getattr(session, field) or "") for field in fields).strip()


def _joined(facts: frozenset[str]) -> str:
    return ", ".join(sorted(facts))


def regressions(comparison: Comparison, percent_slower: float) -> tuple[Pair, ...]:
    """The pairs with the verdict `slower` by more than so many per cent."""
    worse = 1 + percent_slower / 100
    return tuple(p for p in comparison.common if p.verdict == "slower" and p.ratio > worse)
