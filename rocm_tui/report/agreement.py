"""Whether the ranks and hosts of a job took the same choices, problem by problem.

What counts is what each process selected. Pure functions; who is asked is found in
`actions/agree.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

from backend.cache.variants import may_differ
from backend.model.choice import Choice, MeasuredChoice, Measurement
from backend.model.pin import Pin
from backend.model.tuning import Tuning
from rocm_tui.compare.points import complete, offers
from rocm_tui.compare.problems import Index, known, problems
from rocm_tui.compare.types import LONGEST, SHORTEST, Part, identity_of, same_choice, timed
from rocm_tui.report.same_kernel import by_kernel, comparable, identified
from rocm_tui.session import stats
from rocm_tui.session.model import Row

Spread = Literal["apart", "tied", "unclear"]
"""How the times of several choices stand: two of them are no tie; all are; a measurement cannot
tell yet."""


@dataclass(frozen=True, slots=True)
class System:
    """What must be alike for two to be compared, as far as it is told: the name of Inductor's cache
    file, the architecture, the compute units."""

    hash: str = ""
    arch: str = ""
    compute_units: int = 0

    @property
    def facts(self) -> tuple[object, ...]:
        """What is empty is not known."""
        return self.hash, self.arch, self.compute_units


@dataclass(frozen=True, slots=True)
class Chooser:
    """A rank, a process, or a file that tells what a host took. `source` is what a person named;
    it is to be said where `named` is True: there another one is called so. `session` is its id,
    where it is a process that was recorded."""

    name: str
    source: str
    rank: int | None = None
    host: str = ""
    session: str | None = None
    started: float = 0.0
    named: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """What one of them took for a problem. `row` is its own view: the choices that it was offered,
    with its own times where it has any. `warm` tells that it found a compiled graph that calls the
    choice, and was offered nothing: `row` is then another's."""

    by: Chooser
    row: Row
    choice: Choice
    system: System = System()
    warm: bool = False

    @property
    def tuning(self) -> Tuning:
        return self.row.tuning

    @property
    def ms(self) -> float | None:
        """As it was timed once, when it was tuned."""
        return own_choice(self.tuning, self.choice).ms

    def offered(self, choice: Choice) -> bool | None:
        """Whether it could have taken this choice; None where its source does not show all."""
        if offers(self.tuning, choice):
            return True
        known_all = (
            complete(self.tuning)
            and not self.warm
            and all(each.hash for each in self.tuning.choices)
            and not any(_may_be(each, choice) for each in self.tuning.choices)
        )
        return False if known_all and choice.hash else None


def _may_be(choice: Choice, other: Choice) -> bool:
    """Whether a choice, whose hash is not `other`'s, may be the same kernel on another device."""
    return other.identity is not None and choice.identity is None and may_differ(choice.hash or "")


def own_choice(tuning: Tuning, choice: Choice) -> Choice:
    """The choice as this tuning tells it."""
    return next((own for own in tuning.choices if same_choice(own, choice)), choice)


@dataclass(frozen=True, slots=True)
class Group:
    """Those that took the same kernel. `choice` is as one of them has it: each has its own name for
    it, and on a device of its own another hash."""

    choice: Choice
    taken: tuple[Taken, ...]


@dataclass(frozen=True, slots=True)
class Differing:
    """A problem of which two or more took different choices, that which most took first.

    `ratio` is the slowest of the chosen ones over the fastest, as measured, else in the times of
    the one that found them furthest apart; None where nobody timed two of them. `standing` is how
    these times stand to each other. `loss_ms` is what a call takes longer with the slowest.
    `measurement` has all of the chosen ones. `unoffered` says which of the chosen ones somebody was
    not offered.
    """

    row: Row
    groups: tuple[Group, ...]
    ratio: float | None
    standing: Spread | None
    loss_ms: float
    measurement: Measurement | None
    unoffered: tuple[tuple[Choice, tuple[Chooser, ...]], ...]

    @property
    def taken(self) -> tuple[Taken, ...]:
        return tuple(taken for group in self.groups for taken in group.taken)

    @property
    def pinned(self) -> Pin | None:
        """What was pinned for it after one of them began, who so could not take it."""
        pins = ((t.row.pin.pin, t.by) for t in self.taken if t.row.pin is not None)
        return next((pin for pin, by in pins if by.session and pin.when > by.started), None)

    @property
    def calls(self) -> int | None:
        """How often one of them calls it, where a session tells."""
        told = [taken.row.share.calls for taken in self.taken if taken.row.share is not None]
        return max(told, default=0) or None

    @property
    def share(self) -> float | None:
        """Its part of a program's time: the largest that is told."""
        shares = [taken.row.share.share for taken in self.taken if taken.row.share is not None]
        return max((share for share in shares if share is not None), default=None)

    @property
    def loss_total_ms(self) -> float:
        """In all calls, or once where they are not known."""
        return self.loss_ms * (self.calls or 1)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two that chose, or two parties of which each took the same in everything: of `both` problems
    they took the same choice in `same`."""

    a: tuple[Chooser, ...]
    b: tuple[Chooser, ...]
    both: int
    same: int


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of the `problems` that somebody chose for, `alone` were tuned by one of them, and nothing was
    compared for `not_compared`. `compared` counts the comparisons of two or more: several for a
    problem that was tuned on systems that are not compared. `differing` has the largest possible
    loss first. `pairs` are those that differ somewhere, most first. `apart` counts the problems
    that were tuned on systems which are not compared, `untold` those of which some tell their
    choice in a way in which it cannot be compared. `missing` are ranks, of those that were asked
    for, that chose nothing; `lacking` how many are missing where no ranks are told."""

    choosers: tuple[Chooser, ...]
    compared: int
    alone: int
    differing: tuple[Differing, ...]
    pairs: tuple[Pair, ...]
    apart: int = 0
    untold: int = 0
    missing: tuple[int, ...] = ()
    lacking: int = 0
    problems: int = 0
    not_compared: int = 0

    @property
    def agree(self) -> bool:
        """Whether it was seen that all agree."""
        return bool(self.compared) and not (self.differing or self.missing or self.lacking)


def agreement(
    choosers: Sequence[Chooser], taken: Iterable[Taken], *, ranks: int = 0, across: bool = False
) -> Agreement:
    """What so many `ranks` (0: however many there are) took; `across` compares systems that
    differ, too."""
    sets: list[list[Taken]] = []
    apart = alone = untold = count = not_compared = 0
    for latest in _by_problem(taken):
        systems = [latest] if across else _classes(latest)
        classes = [comparable(_identified(members), _choice) for members in systems]
        several = [members for members in classes if len(members) > 1]
        count += 1
        apart += len(classes) > 1
        untold += sum(map(len, classes)) < len(latest)
        alone += len(latest) < 2
        not_compared += not several
        sets += several
    grouped = [_groups(members) for members in sets]
    differing = [_differing(groups) for groups in grouped if len(groups) > 1]
    differing.sort(key=lambda each: (each.standing == "tied", -each.loss_total_ms))
    seen = {member.by.rank for members in sets for member in members}
    missing, lacking = _missing(choosers, seen, ranks)
    return Agreement(
        choosers=tuple(choosers),
        compared=len(sets),
        alone=alone,
        differing=tuple(differing),
        pairs=_pairs(grouped),
        apart=apart,
        untold=untold,
        missing=missing,
        lacking=lacking,
        problems=count,
        not_compared=not_compared,
    )


def _missing(
    choosers: Sequence[Chooser], seen: set[int | None], ranks: int
) -> tuple[tuple[int, ...], int]:
    """A rank that has a log and took nothing that was compared was not seen to agree."""
    if any(chooser.rank is not None for chooser in choosers):
        return tuple(rank for rank in range(ranks) if rank not in seen), 0
    return (), max(0, ranks - len(choosers))


def _by_problem(taken: Iterable[Taken]) -> Iterator[list[Taken]]:
    """What each took last, of each problem, wherever it was tuned."""
    every = list(taken)
    rows = [
        replace(
            each.row, key=str(at), tuning=replace(each.tuning, sources=(), session=None), asked=()
        )
        for at, each in enumerate(every)
    ]
    for problem in problems(Part("", tuple(rows))):
        latest: dict[Chooser, Taken] = {}
        for row in problem.rows:
            latest.setdefault(every[int(row.key)].by, every[int(row.key)])
        yield list(latest.values())


def _classes(taken: Sequence[Taken]) -> list[list[Taken]]:
    """Those of one system together. One that tells less is of the system that it fits alone."""
    index: Index[list[Taken]] = Index()
    made: dict[tuple[object, ...], list[Taken]] = {}
    for each in sorted(taken, key=lambda each: -len(known(each.system.facts))):
        facts = each.system.facts
        home = made.get(facts) or index.only(facts)
        if home is None:
            home = made[facts] = []
            index.add(facts, home)
        home.append(each)
    return list(made.values())


def _choice(taken: Taken) -> Choice:
    return taken.choice


def _identified(taken: Sequence[Taken]) -> list[Taken]:
    """With the identities of their choices, where hashes differ."""
    if len({identity_of(each.choice) for each in taken}) < 2:
        return list(taken)
    tunings = identified([each.tuning for each in taken])
    return [with_identities(each, tuning) for each, tuning in zip(taken, tunings, strict=True)]


def with_identities(taken: Taken, tuning: Tuning) -> Taken:
    """The same with the choices of `tuning`, which have identities."""
    choice = taken.choice
    own = next((c for c in tuning.choices if c.hash and c.hash == choice.hash), choice)
    return replace(
        taken,
        row=replace(taken.row, tuning=tuning),
        choice=replace(choice, identity=choice.identity or own.identity),
    )


def _groups(taken: Sequence[Taken]) -> list[Group]:
    groups = by_kernel(sorted(taken, key=_place), _choice)
    return [Group(_named(members), tuple(members)) for members in groups]


def _named(home: Sequence[Taken]) -> Choice:
    """The choice as the one tells it that tells most."""
    return max((e.choice for e in home), key=lambda c: (c.hash is not None, c.name is not None))


def _place(taken: Taken) -> tuple[int, str]:
    return _order(taken.by)


def _order(chooser: Chooser) -> tuple[int, str]:
    return -1 if chooser.rank is None else chooser.rank, chooser.name


def _differing(groups: Sequence[Group]) -> Differing:
    chosen = [group.choice for group in groups]
    taken = [each for group in groups for each in group.taken]
    measurement = measured(taken, chosen)
    if measurement is not None:
        pairs = in_measurement(measurement, chosen, taken)
        own = [replace(c, hash=m.hash, identity=identity_of(c)) for c, m in pairs]
        views = [replace(taken[0].tuning, choices=tuple(own), measured=measurement)]
    else:
        views = list({id(each.tuning): each.tuning for each in taken}.values())
    spreads = [spread for view in views if (spread := _spread(view, chosen)) is not None]
    widest = max(spreads, key=lambda spread: spread[1] / spread[0], default=None)
    standings = [standing for *_, standing in spreads]
    unoffered = (
        (choice, tuple(each.by for each in taken if each.offered(choice) is False))
        for choice in chosen
    )
    return Differing(
        row=taken[0].row,
        groups=tuple(groups),
        ratio=widest[1] / widest[0] if widest else None,
        standing=next((s for s in ("apart", "unclear", "tied") if s in standings), None),
        loss_ms=max((high - low for low, high, _ in spreads), default=0.0),
        measurement=measurement,
        unoffered=tuple((choice, who) for choice, who in unoffered if who),
    )


def _spread(tuning: Tuning, chosen: Sequence[Choice]) -> tuple[float, float, Spread] | None:
    """The least and the greatest time of the chosen ones in one tuning, and how they stand; None
    where it has no two of them."""
    found = tuning.measured
    own = [own_choice(tuning, choice) for choice in chosen]
    if found is not None and all(_usable(found.of(choice.hash)) for choice in own):
        pairs = [(choice, stats.time_ms(tuning, choice)) for choice in own]
    else:
        tuning = replace(tuning, measured=None)
        pairs = [
            (choice, ms)
            for choice, ms in timed(tuning)
            if any(same_choice(choice, other) for other in chosen)
        ]
    times = [ms for _, ms in pairs if ms]
    if len(times) < 2:
        return None
    stand = {stats.versus(tuning, a, b) for (a, _), (b, _) in combinations(pairs, 2)}
    standing: Spread = "apart"
    if stand <= {"tied", "unclear", None}:
        standing = "unclear" if "unclear" in stand else "tied"
    return min(times), max(times), standing


def measured(taken: Sequence[Taken], choices: Sequence[Choice]) -> Measurement | None:
    """The latest measurement of all of these choices; one with cold caches goes before."""
    found = {m: None for each in taken if (m := each.tuning.measured) is not None}
    fits = [m for m in found if len(in_measurement(m, choices, taken)) == len(choices)]
    return max(fits, key=lambda m: (m.caches == "cold", m.when), default=None)


def in_measurement(
    measurement: Measurement, choices: Sequence[Choice], taken: Iterable[Taken]
) -> list[tuple[Choice, MeasuredChoice]]:
    """Those of `choices` that were measured, in the order of the measurement. It may have been made
    on another device than those of the choices, where their hashes differ."""
    tunings = {id(each.tuning): each.tuning for each in taken}.values()
    identities = {c.hash: identity_of(c) for tuning in tunings for c in tuning.choices}
    by_identity = {identity_of(choice): choice for choice in choices if choice.hash}
    pairs = [
        (by_identity.get(identities.get(each.hash, each.hash)), each)
        for each in measurement.choices
        if _usable(each)
    ]
    return [(choice, each) for choice, each in pairs if choice is not None]


def _usable(found: MeasuredChoice | None) -> bool:
    return found is not None and is_told(found)


def is_told(choice: MeasuredChoice) -> bool:
    """Whether it is a time at all: a log may say anything. How sure it is, its verdict says; an
    interval that ends nowhere is one that is not known yet."""
    return all(SHORTEST < number < LONGEST for number in (choice.ms, choice.ratio))


MOST_BLOCS = 100
"""Pairs of more are not counted."""

_Votes = dict[int, int]
"""Which of its groups one is in, by problem."""


def _pairs(grouped: Sequence[Sequence[Group]]) -> tuple[Pair, ...]:
    """Of a thousand ranks most took the same in everything."""
    votes: dict[Chooser, _Votes] = {}
    for problem, groups in enumerate(grouped):
        for vote, group in enumerate(groups):
            for each in group.taken:
                votes.setdefault(each.by, {})[problem] = vote
    parties: dict[frozenset[tuple[int, int]], list[Chooser]] = {}
    for chooser, own in sorted(votes.items(), key=lambda vote: _order(vote[0])):
        parties.setdefault(frozenset(own.items()), []).append(chooser)
    some = list(parties.values())[:MOST_BLOCS]
    pairs = [_pair(a, b, votes) for a, b in combinations(some, 2)]
    differing = [pair for pair in pairs if pair.same < pair.both]
    return tuple(sorted(differing, key=lambda pair: pair.same - pair.both))


def _pair(a: Sequence[Chooser], b: Sequence[Chooser], votes: Mapping[Chooser, _Votes]) -> Pair:
    ours, theirs = votes[a[0]], votes[b[0]]
    both = ours.keys() & theirs.keys()
    return Pair(tuple(a), tuple(b), len(both), sum(ours[at] == theirs[at] for at in both))
