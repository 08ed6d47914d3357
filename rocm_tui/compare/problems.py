"""Which tunings of two parts are the same problem.

Two tunings are of one problem if no fact that both have differs. A log has fewer facts than a
cache and may fit several problems: then it is none of them, never a guess. Fits are looked up by
the facts that both have, not searched for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from backend.model.choice import Measurement
from backend.model.origin import device_kind
from backend.model.session import systems_of
from backend.model.tuning import Tuning
from rocm_tui.compare.types import TuningSet
from rocm_tui.session import views
from rocm_tui.session.model import Row

Facts = tuple[object, ...]
"""Always as many; what is empty is not known."""

Places = tuple[int, ...]
"""Of facts in their tuple."""
_T = TypeVar("_T")


def known(facts: Facts) -> Places:
    """Return the places of the known facts."""
    return tuple([place for place, fact in enumerate(facts) if fact])


class Index(Generic[_T]):
    """Things by their facts; `without_last` takes the last fact as not known."""

    def __init__(self, *, without_last: bool = False) -> None:
        self._without_last = without_last
        self._things: dict[Places, list[tuple[Facts, _T]]] = {}
        self._by: dict[tuple[Places, Places], dict[Facts, list[_T]]] = {}

    def add(self, facts: Facts, thing: _T) -> None:
        """Put a thing in."""
        places = self._known(facts)
        self._things.setdefault(places, []).append((facts, thing))
        for (theirs, common), by in self._by.items():
            if theirs == places:
                by.setdefault(_of(facts, common), []).append(thing)

    def only(self, facts: Facts) -> _T | None:
        """The one thing that fits; None where there is none, or more than one."""
        fitting = self._fitting(facts)
        first = next(fitting, None)
        return first if next(fitting, None) is None else None

    def _fitting(self, facts: Facts) -> Iterator[_T]:
        mine = frozenset(self._known(facts))
        for theirs in list(self._things):
            common = tuple(place for place in theirs if place in mine)
            yield from self._looked_up(theirs, common).get(_of(facts, common), ())

    def _looked_up(self, theirs: Places, common: Places) -> dict[Facts, list[_T]]:
        """The things that know `theirs`, by the facts that are `common`."""
        by = self._by.get((theirs, common))
        if by is None:
            by = self._by[theirs, common] = {}
            for facts, thing in self._things[theirs]:
                by.setdefault(_of(facts, common), []).append(thing)
        return by

    def _known(self, facts: Facts) -> Places:
        return known(facts[:-1] if self._without_last else facts)


def _of(facts: Facts, places: Places) -> Facts:
    return tuple([facts[place] for place in places])


_DIALECT = ":"
"""Part of the precision keys of torch 2.15 (`cuda:none,mkldnn:none`), not of `highest`."""


@dataclass(frozen=True, slots=True)
class ProblemRows:
    """One problem of a tuning set: its tunings and measurements, latest first, and the versions of
    torch that made them, where sessions recorded them."""

    facts: Facts
    rows: tuple[Row, ...]
    measured: tuple[Measurement, ...] = ()
    torch: frozenset[str] = frozenset()


def facts_of(tuning: Tuning, part: TuningSet) -> Facts:
    """Return the facts that identify a tuning's problem; the last is the system it was tuned on.

    Versions of torch write the precision in different ways that cannot be compared, so each way is
    a fact of its own.
    """
    inputs = tuning.inputs_key or ""
    if not inputs.endswith("]"):  # torch 2.15 puts its benchmark policy behind it
        head, bracket, suffix = inputs.rpartition("]")
        inputs = head + bracket + suffix.partition(":")[0]
    precision = tuning.precision or ""
    new = _DIALECT in precision
    return (
        views.problem_of(tuning),
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


def problems(part: TuningSet) -> list[ProblemRows]:
    """The problems of a part."""
    return _problems(_by_facts(part), part)


def _by_facts(part: TuningSet) -> dict[Facts, list[Row]]:
    by_facts: dict[Facts, list[Row]] = {}
    for row in part.rows:
        by_facts.setdefault(facts_of(row.tuning, part), []).append(row)
    if len({tuple(map(bool, facts)) for facts in by_facts}) > 1:  # not all know the same facts
        by_facts = _separated(by_facts)
    return by_facts


def _problems(by_facts: Mapping[Facts, list[Row]], part: TuningSet) -> list[ProblemRows]:
    versions = {name: session.torch for name, session in part.sessions.items() if session.torch}
    return [
        ProblemRows(facts, _latest_first(rows), _measured(rows, part), _torch(rows, versions))
        for facts, rows in by_facts.items()
    ]


def _separated(by_facts: Mapping[Facts, list[Row]]) -> dict[Facts, list[Row]]:
    """Add each problem with fewer facts to the only one that it fits, if there is just one."""
    index: Index[list[Row]] = Index()
    apart: dict[Facts, list[Row]] = {}
    for facts in sorted(by_facts, key=lambda facts: -len(known(facts))):
        home = index.only(facts)
        if home is not None:
            home.extend(by_facts[facts])
        else:
            apart[facts] = by_facts[facts]
            index.add(facts, by_facts[facts])
    return apart


def _latest_first(rows: Sequence[Row]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=lambda row: (row.when or 0.0, row.occurrence), reverse=True))


def _measured(rows: Sequence[Row], part: TuningSet) -> tuple[Measurement, ...]:
    measurements = {m: None for row in rows for m in part.measured.get(row.key, ())}
    return tuple(sorted(measurements, key=lambda m: -m.when))


def _torch(rows: Sequence[Row], versions: Mapping[str, str]) -> frozenset[str]:
    """Return the versions of torch of the sessions of rows."""
    names = {row.tuning.session for row in rows}
    return frozenset([versions[name] for name in names if name and name in versions])


def pair_up(
    a: TuningSet, b: TuningSet
) -> tuple[list[tuple[ProblemRows, ProblemRows]], list[ProblemRows], list[ProblemRows]]:
    """The problems of both, those of A alone, those of B alone."""
    ours, by_facts = problems(a), _by_facts(b)
    theirs = _problems(by_facts, b)
    at = {id(rows): problem for rows, problem in zip(by_facts.values(), theirs, strict=True)}
    fits = [(problem, by_facts.get(problem.facts)) for problem in ours]
    pairs = [(problem, at.pop(id(rows))) for problem, rows in fits if rows]
    left = [problem for problem, rows in fits if not rows]
    right = list(at.values())
    fitting = _fitting(left, right)
    paired = {problem.facts for pair in fitting for problem in pair}
    return (
        pairs + fitting,
        [problem for problem in left if problem.facts not in paired],
        [problem for problem in right if problem.facts not in paired],
    )


def _fitting(
    left: Sequence[ProblemRows], right: Sequence[ProblemRows]
) -> list[tuple[ProblemRows, ProblemRows]]:
    """Return the pairs that fit each other and nothing else, on whatever system."""
    ours: Index[ProblemRows] = Index(without_last=True)
    theirs: Index[ProblemRows] = Index(without_last=True)
    for index, side in ((ours, left), (theirs, right)):
        for problem in side:
            index.add(problem.facts, problem)
    pairs = ((a, theirs.only(a.facts)) for a in left)
    return [(a, b) for a, b in pairs if b and ours.only(b.facts) is a]
