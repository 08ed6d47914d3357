"""Whether the ranks and hosts of a job selected the same choices, and one choice to propose to all.

Pure functions; `actions/agree.py` finds out who selected what.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import log
from typing import Literal

from backend.cache.variants import may_differ
from backend.model.choice import Choice, MeasuredChoice, Measurement
from backend.model.inductor_kernel import is_inductors
from backend.model.tuning import Pin, Tuning
from rocm_tui.compare.choices import (
    LONGEST,
    SHORTEST,
    by_kernel,
    comparable,
    identified,
    identity_of,
    same_choice,
    timed,
)
from rocm_tui.compare.comparison import complete, offers
from rocm_tui.compare.problems import Index, known, problems
from rocm_tui.compare.types import TuningSet
from rocm_tui.session import stats
from rocm_tui.session.model import Row
from rocm_tui.session.numbers import rounding
from rocm_tui.session.refusals import why_wrong

Spread = Literal["apart", "tied", "unclear"]
"""How the times of several choices compare: two of them are no tie; all are tied; or it is still
unclear."""


@dataclass(frozen=True, slots=True)
class System:
    """What must be equal for two selections to be compared: the name of Inductor's cache file, the
    architecture, the compute units. Empty or 0 where it is unknown."""

    hash: str = ""
    arch: str = ""
    compute_units: int = 0

    @property
    def facts(self) -> tuple[object, ...]:
        """The three facts as a tuple, for `Index`."""
        return self.hash, self.arch, self.compute_units


@dataclass(frozen=True, slots=True)
class Chooser:
    """A rank, a process, or a file that shows what a host selected.

    `source` is what the person named; it is shown if `named`, since another chooser has the same
    name. `session` is the id of a recorded process.
    """

    name: str
    source: str
    rank: int | None = None
    host: str = ""
    session: str | None = None
    started: float = 0.0
    named: bool = False


@dataclass(frozen=True, slots=True)
class Selection:
    """What a chooser selected for a problem.

    `row` is its own view: the choices that it was offered, with its own times where it has any.
    `warm` means that it found a compiled graph that calls the choice, and was offered nothing:
    `row` is then another chooser's.
    """

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
        """The time of the choice when it was tuned, in milliseconds."""
        return stats.single_ms(self.tuning, own_choice(self.tuning, self.choice))

    def offered(self, choice: Choice) -> bool | None:
        """Whether it could have selected this choice; None if its source does not show all."""
        if offers(self.tuning, choice):
            return True
        choices = self.tuning.choices
        unclear = choice.identity is not None and any(  # each may be it on another device
            each.identity is None and may_differ(each.hash or "") for each in choices
        )
        all_shown = complete(self.tuning) and not self.warm and all(each.hash for each in choices)
        return False if all_shown and choice.hash and not unclear else None


def own_choice(tuning: Tuning, choice: Choice) -> Choice:
    """Return the choice as it is in this tuning, or `choice` itself if it is not there."""
    return next((own for own in tuning.choices if same_choice(own, choice)), choice)


@dataclass(frozen=True, slots=True)
class SelectionGroup:
    """The selections of one kernel.

    `choice` is taken from one of them: the others have other names for it, and other hashes on
    other devices.
    """

    choice: Choice
    selections: tuple[Selection, ...]


@dataclass(frozen=True, slots=True)
class DifferingProblem:
    """A problem for which choosers selected different kernels, the most frequent one first.

    `ratio` is the slowest selected kernel over the fastest, as measured, else in the times of the
    chooser for which they differ most; None if nobody timed two of them. `standing` says how sure
    that difference is, and `error` is its relative error by the digits of the times. `loss_ms` is
    what a call takes longer with the slowest. `measurement` has all selected kernels. `unoffered`
    lists selected choices with the choosers that were not offered them.
    """

    row: Row
    groups: tuple[SelectionGroup, ...]
    ratio: float | None
    standing: Spread | None
    loss_ms: float
    measurement: Measurement | None
    unoffered: tuple[tuple[Choice, tuple[Chooser, ...]], ...]
    error: float = 0.0

    @property
    def selections(self) -> tuple[Selection, ...]:
        return tuple(selection for group in self.groups for selection in group.selections)

    @property
    def pinned(self) -> Pin | None:
        """The pin that was made after a chooser had started, so that it could not use it."""
        pins = ((t.row.pin.pin, t.by) for t in self.selections if t.row.pin is not None)
        return next((pin for pin, by in pins if by.session and pin.when > by.started), None)

    @property
    def calls(self) -> int | None:
        """How often a chooser calls it; None if no session recorded that."""
        shares = [share for each in self.selections if (share := each.row.share) is not None]
        return max((share.calls for share in shares), default=0) or None

    @property
    def share(self) -> float | None:
        """The largest share of a program's time that it has; None if unknown."""
        shares = [each.row.share for each in self.selections if each.row.share is not None]
        return max((s.share for s in shares if s.share is not None), default=None)

    @property
    def loss_total_ms(self) -> float:
        """The loss over all calls, or over one call if their number is unknown."""
        return self.loss_ms * (self.calls or 1)


@dataclass(frozen=True, slots=True)
class ChooserPair:
    """Two that chose, or two parties of which each took the same in everything: of `both` problems
    they took the same choice in `same`."""

    a: tuple[Chooser, ...]
    b: tuple[Chooser, ...]
    both: int
    same: int


@dataclass(frozen=True, slots=True)
class Agreement:
    """The problems that choosers selected kernels for, and where they differ.

    Of `problems`, `alone` were tuned by one chooser only, and `not_compared` were compared with
    nothing. `compared` counts comparisons of two or more choosers; a problem that was tuned on
    systems that are not compared may have several. `differing` has the largest possible loss first,
    `pairs` are the choosers that differ somewhere, most first. `apart` counts the problems that
    were tuned on systems that are not compared, `untold` those with selections that cannot be
    compared. `missing` are requested ranks that selected nothing; `lacking` is how many choosers
    are missing where ranks are unknown.
    """

    choosers: tuple[Chooser, ...]
    compared: int
    alone: int
    differing: tuple[DifferingProblem, ...]
    pairs: tuple[ChooserPair, ...]
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
    choosers: Sequence[Chooser],
    selections: Iterable[Selection],
    *,
    ranks: int = 0,
    across: bool = False,
) -> Agreement:
    """Compare the selections of `ranks` ranks (0: of all there are).

    With `across`, selections on different systems are compared too.
    """
    sets: list[list[Selection]] = []
    apart = alone = untold = count = not_compared = 0
    for latest in _by_problem(selections):
        systems = [latest] if across else _classes(latest)
        classes = [comparable_selections(members) for members in systems]
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


def _by_problem(selections: Iterable[Selection]) -> Iterator[list[Selection]]:
    """Yield the latest selection of each chooser, for each problem, on whatever system."""
    every = list(selections)
    rows = [
        replace(
            each.row, key=str(at), tuning=replace(each.tuning, sources=(), session=None), asked=()
        )
        for at, each in enumerate(every)
    ]
    for problem in problems(TuningSet("", tuple(rows))):
        latest: dict[Chooser, Selection] = {}
        for row in problem.rows:
            latest.setdefault(every[int(row.key)].by, every[int(row.key)])
        yield list(latest.values())


def _classes(selections: Sequence[Selection]) -> list[list[Selection]]:
    """Group selections by system. One with fewer facts joins the only system that it fits."""
    index: Index[list[Selection]] = Index()
    classes: dict[tuple[object, ...], list[Selection]] = {}
    for each in sorted(selections, key=lambda each: -len(known(each.system.facts))):
        facts = each.system.facts
        home = classes.get(facts) or index.only(facts)
        if home is None:
            home = classes[facts] = []
            index.add(facts, home)
        home.append(each)
    return list(classes.values())


def comparable_selections(selections: Sequence[Selection]) -> list[Selection]:
    """Return the selections that can be compared, with identities if their hashes differ."""
    if len({identity_of(each.choice) for each in selections}) > 1:
        tunings = identified([each.tuning for each in selections])
        selections = list(map(with_identities, selections, tunings))
    return comparable(selections)


def with_identities(selection: Selection, tuning: Tuning) -> Selection:
    """Return the selection with the choices of `tuning`, which have identities."""
    choice = selection.choice
    own = next((c for c in tuning.choices if c.hash and c.hash == choice.hash), choice)
    return replace(
        selection,
        row=replace(selection.row, tuning=tuning),
        choice=replace(choice, identity=choice.identity or own.identity),
    )


def _groups(selections: Sequence[Selection]) -> list[SelectionGroup]:
    groups = by_kernel(sorted(selections, key=lambda selection: chooser_order(selection.by)))
    return [SelectionGroup(_named(members), tuple(members)) for members in groups]


def _named(home: Sequence[Selection]) -> Choice:
    """Return the choice of the selection with the most facts: its hash, its name."""
    return max((e.choice for e in home), key=lambda c: (c.hash is not None, c.name is not None))


def chooser_order(chooser: Chooser) -> tuple[int, str]:
    """Sort by rank, those without one first, then by name."""
    return -1 if chooser.rank is None else chooser.rank, chooser.name


def _differing(groups: Sequence[SelectionGroup]) -> DifferingProblem:
    chosen = [group.choice for group in groups]
    selections = [each for group in groups for each in group.selections]
    measurement = measured(selections, chosen)
    if measurement is not None:
        pairs = in_measurement(measurement, chosen, selections)
        own = [replace(c, hash=m.hash, identity=identity_of(c)) for c, m in pairs]
        views = [replace(selections[0].tuning, choices=tuple(own), measured=measurement)]
    else:
        views = list({id(each.tuning): each.tuning for each in selections}.values())
    spreads = [spread for view in views if (spread := _spread(view, chosen)) is not None]
    surest = min(spreads, key=_widest_of_surest, default=None)
    is_time_known = measurement is not None or not is_inductors(selections[0].tuning.op)
    unoffered = (
        (choice, tuple(each.by for each in selections if each.offered(choice) is False))
        for choice in chosen
    )
    return DifferingProblem(
        row=selections[0].row,
        groups=tuple(groups),
        ratio=surest[1] / surest[0] if surest else None,
        standing=surest[2] if surest else None,
        loss_ms=surest[1] - surest[0] if surest and is_time_known else 0.0,
        measurement=measurement,
        unoffered=tuple((choice, who) for choice, who in unoffered if who),
        error=rounding(*surest[:2]) if surest and measurement is None else 0.0,
    )


_SUREST: tuple[Spread, ...] = ("apart", "unclear", "tied")


def _widest_of_surest(spread: tuple[float, float, Spread]) -> tuple[int, float]:
    low, high, standing = spread
    return _SUREST.index(standing), -high / low


def _spread(tuning: Tuning, chosen: Sequence[Choice]) -> tuple[float, float, Spread] | None:
    """Return the least and the greatest time of the selected choices in one tuning, and how sure
    their difference is; None if it has fewer than two of them."""
    measurement = tuning.measured
    own = [own_choice(tuning, choice) for choice in chosen]
    if measurement is not None and all(is_time(measurement.of(choice.hash)) for choice in own):
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
    standings = {stats.versus(tuning, a, b) for (a, _), (b, _) in combinations(pairs, 2)} - {None}
    if not standings:
        return None
    standing: Spread = "apart"
    if standings <= {"tied", "unclear"}:
        standing = "unclear" if "unclear" in standings else "tied"
    return min(times), max(times), standing


def measured(selections: Sequence[Selection], choices: Sequence[Choice]) -> Measurement | None:
    """The latest measurement of all of these choices; one with cold caches goes before."""
    measurements = {m: None for each in selections if (m := each.tuning.measured) is not None}
    fits = [m for m in measurements if len(in_measurement(m, choices, selections)) == len(choices)]
    return max(fits, key=lambda m: (m.caches == "cold", m.when), default=None)


def in_measurement(
    measurement: Measurement, choices: Sequence[Choice], selections: Iterable[Selection]
) -> list[tuple[Choice, MeasuredChoice]]:
    """Return those of `choices` that were measured, in the order of the measurement.

    It may have been made on another device than the choices, with other hashes.
    """
    tunings = {id(each.tuning): each.tuning for each in selections}.values()
    identities = {c.hash: identity_of(c) for tuning in tunings for c in tuning.choices}
    by_identity = {identity_of(choice): choice for choice in choices if choice.hash}
    pairs = [
        (by_identity.get(identities.get(each.hash, each.hash)), each)
        for each in measurement.choices
        if is_time(each)
    ]
    return [(choice, each) for choice, each in pairs if choice is not None]


def is_time(choice: MeasuredChoice | None) -> bool:
    """Whether it is a time at all: a log may say anything. How sure it is, its verdict says; an
    interval that ends nowhere is one that is not known yet."""
    return choice is not None and all(
        SHORTEST < number < LONGEST for number in (choice.ms, choice.ratio)
    )


MOST_BLOCS = 100
"""Pairs of more are not counted."""

_Votes = dict[int, int]
"""Which of its groups one is in, by problem."""


def _pairs(grouped: Sequence[Sequence[SelectionGroup]]) -> tuple[ChooserPair, ...]:
    """Return the pairs of choosers that differ; choosers that agree in everything are one party."""
    votes: dict[Chooser, _Votes] = {}
    for problem, groups in enumerate(grouped):
        for vote, group in enumerate(groups):
            for each in group.selections:
                votes.setdefault(each.by, {})[problem] = vote
    parties: dict[frozenset[tuple[int, int]], list[Chooser]] = {}
    for chooser, own in sorted(votes.items(), key=lambda vote: chooser_order(vote[0])):
        parties.setdefault(frozenset(own.items()), []).append(chooser)
    some = list(parties.values())[:MOST_BLOCS]
    pairs = [_pair(a, b, votes) for a, b in combinations(some, 2)]
    differing = [pair for pair in pairs if pair.same < pair.both]
    return tuple(sorted(differing, key=lambda pair: pair.same - pair.both))


def _pair(
    a: Sequence[Chooser], b: Sequence[Chooser], votes: Mapping[Chooser, _Votes]
) -> ChooserPair:
    ours, theirs = votes[a[0]], votes[b[0]]
    both = ours.keys() & theirs.keys()
    return ChooserPair(tuple(a), tuple(b), len(both), sum(ours[at] == theirs[at] for at in both))


By = Literal["measured", "tie", "timings"]
"""Measured to be faster; picked by single times among choices that a measurement found tied; picked
by single times without a measurement."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """The choice proposed to all choosers of a problem, or `why_not` there is none.

    `by` is what it is based on; `measurement` is what was measured, which may be unclear.
    `unoffered` are the choosers that were not offered it.
    """

    differing: DifferingProblem
    choice: Choice | None
    by: By = "timings"
    measurement: Measurement | None = None
    unoffered: tuple[Chooser, ...] = ()
    why_not: str = ""


def propose(differing: DifferingProblem, *, force: bool = False) -> Proposal:
    """Propose a choice that all were offered and nobody found wrong or failing.

    It is the one measured to be the fastest, else the best by the sum of log times over all
    choosers that timed it. With `force`, also choices that some were not, or may not have been,
    offered.
    """
    selections = differing.selections
    every = _distinct_choices(differing)
    right = [choice for choice in every if not any(_is_bad(each, choice) for each in selections)]
    common = [choice for choice in right if all(each.offered(choice) for each in selections)]
    candidates = common
    if force:
        candidates = [c for c in right if any(same_choice(c, g.choice) for g in differing.groups)]
    if not candidates:
        return Proposal(differing, None, why_not=_why_none(differing, right))
    proposal = _measured(differing, candidates)
    if proposal is None:
        best = _by_times(candidates, selections)
        why_not = "" if best else "no choice that all were offered has a time from each of them"
        unclear = measured(selections, [group.choice for group in differing.groups])
        proposal = Proposal(differing, best, "timings", unclear, why_not=why_not)
    if proposal.choice is None:
        return proposal
    lacking = tuple(each.by for each in selections if not each.offered(proposal.choice))
    return Proposal(
        differing, proposal.choice, proposal.by, proposal.measurement, unoffered=lacking
    )


def _distinct_choices(differing: DifferingProblem) -> list[Choice]:
    """Every choice that has a hash, the chosen ones first; each kernel once."""
    kernels = {identity_of(group.choice): group.choice for group in differing.groups}
    for each in differing.selections:
        for choice in each.tuning.choices:
            kernels.setdefault(identity_of(choice), choice)
    return [choice for choice in kernels.values() if choice.hash]


def _is_bad(selection: Selection, choice: Choice) -> bool:
    """Whether the choice failed there, or its result was found wrong."""
    own = own_choice(selection.tuning, choice)
    hashes = {own.hash, identity_of(own)}  # it may have been measured on another device
    return own.failed or any(why_wrong(selection.row, replace(own, hash=name)) for name in hashes)


def _why_none(differing: DifferingProblem, right: Sequence[Choice]) -> str:
    if not any(group.choice.hash for group in differing.groups):
        return "no cache and no session has the hashes of the choices, by which they are pinned"
    if not right:
        return "each choice failed somewhere, or its result was found wrong"
    return "no choice is known to have been offered to all"


def _measured(differing: DifferingProblem, candidates: Sequence[Choice]) -> Proposal | None:
    """Propose by the latest measurement of all selected candidates; None if there is none, or if it
    is unclear."""
    chosen = [c for c in candidates if any(same_choice(c, g.choice) for g in differing.groups)]
    measurement = measured(differing.selections, chosen) if len(chosen) > 1 else None
    if measurement is None:
        return None
    pairs = in_measurement(measurement, candidates, differing.selections)
    best_choice, best = min(pairs, key=lambda pair: pair[1].ratio)
    near = [(c, each) for c, each in pairs if each is best or not _slower(each, best)]
    if len(near) == 1:
        return Proposal(differing, best_choice, "measured", measurement)
    if any(each.verdict == "unclear" for _, each in near):
        return None
    of_tie = _by_times([choice for choice, _ in near], differing.selections)
    return Proposal(differing, of_tie or best_choice, "tie", measurement)


def _slower(choice: MeasuredChoice, best: MeasuredChoice) -> bool:
    """Beyond its interval and that of the best."""
    if best.ratio == 1.0:
        return choice.verdict == "slower"
    return choice.ratio_low > best.ratio_high


def _by_times(candidates: Sequence[Choice], selections: Sequence[Selection]) -> Choice | None:
    """Return the candidate with the least sum of log milliseconds, over the choosers that timed
    anything; None if no candidate was timed by all of them."""
    tables = [
        {identity_of(choice): ms for choice, ms in timed(each.tuning) if choice.hash}
        for each in selections
    ]
    tables = [times for times in tables if times]
    sums = {
        name: sum(log(times[name]) for times in tables)
        for name in map(identity_of, candidates)
        if tables and all(name in times for times in tables)
    }
    if not sums:
        return None
    best = min(sums, key=sums.__getitem__)
    return next(choice for choice in candidates if identity_of(choice) == best)
