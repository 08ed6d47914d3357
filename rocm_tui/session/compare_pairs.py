"""Which tunings of two parts are the same problem.

Two tunings are of one problem if nothing that both tell differs. A log tells fewer things than a
cache, so what it tells may fit several problems: then it is none of them, never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backend.model.measurement import Measurement
from backend.model.session import systems_of
from backend.model.tuning import Tuning
from rocm_tui.session import join
from rocm_tui.session.compare_facts import Facts, Index, known
from rocm_tui.session.compare_types import Part
from rocm_tui.session.device_of import device_kind
from rocm_tui.session.model import Row

_DIALECT = ":"
"""Stands in the precision keys of torch 2.15 (`cuda:none,mkldnn:none`), not in `highest`."""


@dataclass(frozen=True, slots=True)
class ProblemRows:
    """One problem of a part: its tunings and its measurements, latest first; the versions of torch
    that made them, as far as sessions tell."""

    facts: Facts
    rows: tuple[Row, ...]
    measured: tuple[Measurement, ...] = ()
    torch: frozenset[str] = frozenset()


def facts_of(tuning: Tuning, part: Part) -> Facts:
    """What tells a tuning's problem from others; the last is the system it was tuned on.

    Versions of torch that write the precision in different ways cannot be compared in it, so each
    way is a fact of its own.
    """
    inputs = tuning.inputs_key or ""
    if not inputs.endswith("]"):  # torch 2.15 puts its benchmark policy behind it
        head, bracket, suffix = inputs.rpartition("]")
        inputs = head + bracket + suffix.partition(":")[0]
    precision = tuning.precision or ""
    new = _DIALECT in precision
    return (
        join.problem_of(tuning),
        inputs,
        precision if new else "",
        "" if new else precision,
        device_kind(tuning),
        (tuning.device or "").partition(":")[0],
        tuning.shapes,
        tuning.strides,
        tuning.dtypes,
        tuning.dims,
        tuple(sorted(systems_of(tuning, part.sessions))),
    )


def problems(part: Part) -> list[ProblemRows]:
    """The problems of a part."""
    told: dict[Facts, list[Row]] = {}
    for row in part.rows:
        told.setdefault(facts_of(row.tuning, part), []).append(row)
    if len({known(facts) for facts in told}) > 1:
        told = _told_apart(told)
    return [
        ProblemRows(facts, _latest_first(rows), _measured(rows, part), _torch(rows, part))
        for facts, rows in told.items()
    ]


def _told_apart(told: Mapping[Facts, list[Row]]) -> dict[Facts, list[Row]]:
    """Those that tell less are put to the one that they fit: one that they fit alone."""
    index: Index[list[Row]] = Index()
    found: dict[Facts, list[Row]] = {}
    for facts in sorted(told, key=lambda facts: -len(known(facts))):
        home = index.only(facts)
        if home is not None:
            home.extend(told[facts])
        else:
            found[facts] = told[facts]
            index.add(facts, told[facts])
    return found


def _latest_first(rows: Sequence[Row]) -> tuple[Row, ...]:
    if len(rows) == 1:
        return (rows[0],)
    return tuple(sorted(rows, key=lambda row: (row.when or 0.0, row.occurrence), reverse=True))


def _measured(rows: Sequence[Row], part: Part) -> tuple[Measurement, ...]:
    if not part.measured:
        return ()
    found = {one: None for row in rows for one in part.measured.get(row.key, ())}
    return tuple(sorted(found, key=lambda one: -one.when))


def _torch(rows: Sequence[Row], part: Part) -> frozenset[str]:
    names = {row.tuning.session for row in rows}
    told = (part.sessions[name].torch for name in names if name and name in part.sessions)
    return frozenset(filter(None, told))


def pair_up(
    a: Part, b: Part
) -> tuple[list[tuple[ProblemRows, ProblemRows]], list[ProblemRows], list[ProblemRows]]:
    """The problems of both, those of A alone, those of B alone."""
    ours, theirs = problems(a), problems(b)
    exact = {problem.facts: problem for problem in theirs}
    pairs = [(one, exact.pop(one.facts)) for one in ours if one.facts in exact]
    paired = {one.facts for one, _ in pairs}
    left = [one for one in ours if one.facts not in paired]
    right = list(exact.values())
    pairs += _fitting(left, right)
    paired = {one.facts for pair in pairs for one in pair}
    return (
        pairs,
        [one for one in left if one.facts not in paired],
        [two for two in right if two.facts not in paired],
    )


def _fitting(
    left: Sequence[ProblemRows], right: Sequence[ProblemRows]
) -> list[tuple[ProblemRows, ProblemRows]]:
    """Those that fit each other and no other one, on whatever system."""
    ours: Index[ProblemRows] = Index(without_last=True)
    theirs: Index[ProblemRows] = Index(without_last=True)
    for index, side in ((ours, left), (theirs, right)):
        for problem in side:
            index.add(problem.facts, problem)
    pairs = ((one, theirs.only(one.facts)) for one in left)
    return [(one, two) for one, two in pairs if two and ours.only(two.facts) is one]
