"""Views of one tuning: which of them belong together, and the tuning that they make.

Inductor writes one tuning to up to five places: our event log (keys, hashes, names, times), its
persistent cache (keys, hashes, times), stderr (names, times rounded to four places), the MM log
(configurations, the cache's very doubles) and the structured trace (the winner). No two share an
identifier, but they share times: equal doubles, or equal after rounding. A view that cannot be
attributed that way stays a tuning of its own.

Finding the views of one tuning takes about as long for the last of many as for the first: a model
that is tuned a thousand times has a thousand groups of nearly the same times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from heapq import merge
from math import isinf
from typing import Any, TypeVar

from backend.cache.variants import may_differ
from backend.model.choice import Choice, sort_choices
from backend.model.inductor_kernel import is_kernel, portable_part
from backend.model.origin import device_kind
from backend.model.problem import Shape, TuningKey
from backend.model.tuning import REUSED, Seconds, Tuning
from rocm_tui.session.numbers import PLACES


def is_reuse(tuning: Tuning) -> bool:
    """Whether nothing was timed: a cached or pinned choice or another rank's was taken, or a file
    has only the choice."""
    if tuning.session is None:
        return is_selection(tuning)
    return tuning.selected_by in REUSED


def is_selection(tuning: Tuning) -> bool:
    """Whether it is from a file of no program, with the choice that was taken and no time."""
    return tuning.session is None and tuning.key is not None and tuning.selected is not None


def is_cache(tuning: Tuning) -> bool:
    """Whether it is an entry of a persistent cache: keys, and no program."""
    return tuning.session is None and tuning.key is not None and tuning.selected is None


def hashes(tuning: Tuning) -> frozenset[str]:
    return frozenset([choice.hash for choice in tuning.choices if choice.hash])


def offered(views: Iterable[Tuning]) -> frozenset[str] | None:
    """Return the choices that one program offered, by its session; a cache has those of all."""
    return next((hashes(view) for view in views if view.session is not None), None)


def times_agree(left: Tuning, right: Tuning) -> bool:
    """Where both give a time in full, it is the same double; and where both say whose it is, they
    say the same."""
    return _full_times(left, right) and _full_times(right, left) and _owners_agree(left, right)


def _full_times(left: Tuning, right: Tuning) -> bool:
    other = {c.ms for c in right.choices if c.ms is not None}
    rounded = {round(ms, PLACES) for ms in other}
    for choice in left.choices:
        ms = choice.ms
        if ms is None or ms in other:
            continue
        short = round(ms, PLACES)
        if short != ms and short in rounded and short not in other:
            return False
    return True


def _owners_agree(left: Tuning, right: Tuning) -> bool:
    by_hash = {choice.hash: choice.ms for choice in right.choices}
    by_name = {choice.name: choice.ms for choice in right.choices}
    return all(
        _near(choice.ms, by_hash.get(choice.hash or ""))
        and _near(choice.ms, by_name.get(choice.name or ""))
        for choice in left.choices
    )


def _near(left: float | None, right: float | None) -> bool:
    return left is None or right is None or round(left, PLACES) == round(right, PLACES)


def compatible(left: Tuning, right: Tuning) -> bool:
    """Nothing that both know of the program and the problem differs.

    Two cache files never hold the same tuning.
    """
    if left.inputs_key is not None and right.inputs_key is not None:
        if left.key != right.key:
            return False
        if left.session is None and right.session is None:
            return False
    if left.rank is not None and right.rank is not None and left.rank != right.rank:
        return False
    if _is_table(left) and _is_table(right) and not _durations_agree(left.seconds, right.seconds):
        return False
    facts = (
        (left.session, right.session),
        _logged_shapes(left, right),
        (left.strides, right.strides),
        (left.dtypes, right.dtypes),
        (left.device, right.device),
    )
    ours, others = left.device_index, right.device_index
    if ours is not None and others is not None and ours != others:
        return False
    if any(mine and theirs and mine != theirs for mine, theirs in facts):
        return False
    mine, theirs = device_kind(left), device_kind(right)
    return mine is None or theirs is None or mine == theirs


def _is_table(tuning: Tuning) -> bool:
    """Whether it is a table that Inductor printed: no keys, all times rounded. A trace has doubles,
    and durations of its own."""
    if tuning.session is not None or tuning.inputs_key is not None:
        return False
    return all(c.ms is None or round(c.ms, PLACES) == c.ms for c in tuning.choices)


def _durations_agree(left: Seconds, right: Seconds) -> bool:
    pairs = (left.benchmark, right.benchmark), (left.precompile, right.precompile)
    return all(mine is None or theirs is None or mine == theirs for mine, theirs in pairs)


def logged_operands(op: str) -> int:
    """Return how many operands, from the first, PyTorch's JSON logs give the shape of; else 0."""
    if op.startswith(("flex_attention", "flex_decoding")):
        return 3
    return 2 if op.startswith("convolution") else 0


def _logged_shapes(left: Tuning, right: Tuning) -> tuple[tuple[Shape, ...], tuple[Shape, ...]]:
    """Return the shapes of both; if a log has only the first operands, theirs."""
    count = logged_operands(left.op)
    if not count or count not in (len(left.shapes), len(right.shapes)):
        return left.shapes, right.shapes
    return left.shapes[:count], right.shapes[:count]


_T = TypeVar("_T")


def merge_views(views: Sequence[Tuning]) -> Tuning:
    """One tuning out of its views, of which the first says most."""
    if len(views) == 1:
        return views[0]
    base = views[0]
    choices = list(base.choices)
    for view in views[1:]:
        choices = _merge_choices(choices, view.choices)
    offer = offered(views)
    if offer:
        choices = [replace(c, offered=c.hash is None or c.hash in offer) for c in choices]
    uses = [view for view in views if view.selected is not None]
    latest = max(uses, key=lambda view: view.when or 0.0, default=base)
    return replace(
        base,
        shapes=max((view.shapes for view in views), key=len),
        strides=_first(view.strides for view in views) or (),
        dtypes=_first(view.dtypes for view in views) or (),
        device=_first(view.device for view in views),
        precision=_known(view.precision for view in views),
        inputs_key=_first(view.inputs_key for view in views),
        choices=sort_choices(choices),
        num_choices=len(offer)
        if offer
        else max((view.num_choices or 0 for view in views), default=0) or None,
        seconds=Seconds(
            benchmark=_known(view.seconds.benchmark for view in views),
            precompile=_known(view.seconds.precompile for view in views),
            prescreen=_known(view.seconds.prescreen for view in views),
        ),
        selected=latest.selected,
        selected_by=latest.selected_by,
        rank=next((view.rank for view in views if view.rank is not None), None),
        session=_first(view.session for view in views),
        process=_first(view.process for view in views) or "",
        when=_known(view.when for view in views),
        sources=tuple(dict.fromkeys(source for view in views for source in view.sources)),
        threads=_first(view.threads for view in views),
        options=_agreed(view.options for view in views) or (),
        call=_agreed(view.call for view in views) or "",
        kernel=_first(view.kernel for view in views) or "",
        code=_first(view.code for view in views) or "",
        decided=latest.decided,
        apart=latest.apart,
        device_index=_known(view.device_index for view in views),
    )


def foreign(tunings: Sequence[Tuning]) -> list[frozenset[str]]:
    """Return each joined tuning's choices that it was not offered and another one of its key was:
    activations share a key, and the cache holds the choices of all."""
    by_key: dict[TuningKey, set[str]] = {}
    for tuning in tunings:
        if tuning.session is not None and tuning.key is not None:
            hashes_of_key = by_key.setdefault(tuning.key, set())
            hashes_of_key.update(each.hash for each in tuning.choices if each.hash and each.offered)
    return [
        frozenset(
            choice.hash
            for choice in tuning.choices
            if choice.hash and not choice.offered and choice.hash in by_key.get(tuning.key, ())
        )
        if tuning.key is not None
        else frozenset()
        for tuning in tunings
    ]


@lru_cache(256)
def without(tuning: Tuning, hashes: frozenset[str]) -> Tuning:
    """Without the choices of these hashes; the same object each time."""
    choices = tuple([choice for choice in tuning.choices if choice.hash not in hashes])
    return replace(tuning, choices=choices)


def of_one_device(tuning: Tuning) -> Tuning:
    """With those of its choices alone that have another hash on each device, if there are any: the
    times of the others may be of the device that tuned last."""
    choices = tuple([choice for choice in tuning.choices if _is_of_one_device(choice)])
    if not choices or len(choices) == len(tuning.choices):
        return tuning
    return replace(tuning, choices=choices)


def _is_of_one_device(choice: Choice) -> bool:
    text = choice.hash or choice.name
    return may_differ(text) if text else bool(choice.description)


def _first(values: Iterable[_T]) -> _T | None:
    return next((value for value in values if value), None)


def _agreed(values: Iterable[_T]) -> _T | None:
    """Return what all views say that have a value; ops that differ in it share a key."""
    distinct = {given for given in values if given}
    return distinct.pop() if len(distinct) == 1 else None


def _known(values: Iterable[_T | None]) -> _T | None:
    return next((value for value in values if value is not None), None)


def _merge_choices(known: list[Choice], seen: Sequence[Choice]) -> list[Choice]:
    merged = list(known)
    taken: set[int] = set()
    extra: list[Choice] = []
    for choice in seen:
        places = _places(choice, known, taken)
        if len(places) == 1:
            taken.add(places[0])
            merged[places[0]] = _fill(merged[places[0]], choice)
        elif not places:
            extra.append(choice)
    return merged + extra


def _places(choice: Choice, known: list[Choice], taken: set[int]) -> list[int]:
    """Return the places that `choice` may have among `known`; several mean that it is ambiguous."""
    free = [at for at in range(len(known)) if at not in taken]
    for same in (_same_hash, _same_shared, _same_time, _same_name):
        places = [at for at in free if same(choice, known[at])]
        if len(places) > 1:
            named = [at for at in places if _same_name(choice, known[at])]
            places = named if len(named) == 1 else places
        if places:
            return places
    return []


def _same_hash(left: Choice, right: Choice) -> bool:
    return left.hash is not None and left.hash == right.hash


def _same_shared(left: Choice, right: Choice) -> bool:
    """The time of a choice of several devices may be another device's: its name counts."""
    return (left.shared or right.shared) and _same_name(left, right)


def _same_time(left: Choice, right: Choice) -> bool:
    if left.ms is None or right.ms is None or (left.hash and right.hash):
        return False
    if left.shared or right.shared:
        return False
    return left.ms == right.ms or round(left.ms, PLACES) == round(right.ms, PLACES)


def _same_name(left: Choice, right: Choice) -> bool:
    """Equal names, or an ATen name that the hash begins with."""
    if left.hash and right.hash:
        return False
    if left.name is not None and left.name == right.name:
        return True
    return any(
        a.name is not None and b.hash is not None and b.hash.startswith(f"{a.name}-")
        for a, b in ((left, right), (right, left))
    )


def _fill(known: Choice, seen: Choice) -> Choice:
    own = [choice for choice in (known, seen) if choice.ms is not None and not choice.shared]
    filled: dict[str, Any] = {
        name: getattr(known, name) or getattr(seen, name)
        for name in ("name", "hash", "description", "reason", "quantiles", "identity")
    }
    filled["ms"] = own[0].ms if len(own) == 1 else _fuller(known.ms, seen.ms)
    filled["shared"] = known.shared and not own
    same = all(getattr(known, name) == value for name, value in filled.items())
    return known if same else replace(known, **filled)  # a model is run often, and says the same


def _fuller(left: float | None, right: float | None) -> float | None:
    """The time with more digits."""
    if left is None or right is None:
        return right if left is None else left
    return right if round(left, PLACES) == left else left


def with_times(tuning: Tuning, measured: Mapping[str, float]) -> tuple[Choice, ...]:
    """Return the choices with their measured times, where a pin has made one look failed."""

    def restored(choice: Choice) -> Choice:
        ms = measured.get(choice.hash or "")
        if ms is None or isinf(ms) or not choice.failed:
            return choice
        return replace(choice, ms=ms, failed=False, reason=None)

    return sort_choices([restored(choice) for choice in tuning.choices])


Bucket = tuple[object, ...]
_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class TuningView:
    """One source's view of a tuning; `seq` counts arrivals, `id` is the tuning's, if computed.
    `seen` is Unix time, of what was not there before."""

    uid: str
    source: str
    tuning: Tuning
    seq: int
    id: str = ""
    seen: float | None = None


def bucket_of(tuning: Tuning) -> Bucket:
    """What all views of one tuning agree on: the problem; of a Triton kernel the whole key, which
    every source has. Thousands may have one name and the same sizes."""
    alone = tuning.entry is None and is_kernel(tuning.op)
    return (tuning.op, tuning.inputs_key) if alone else problem_of(tuning)


def problem_of(tuning: Tuning) -> Bucket:
    """What tunings of one problem agree on: the op, and what an MM log calls M, K and N; of a
    Triton kernel what other machines share."""
    if tuning.entry is not None:
        return (tuning.entry.tuner, tuning.op, tuning.inputs_key)
    return inductors_problem_of(tuning)


def inductors_problem_of(tuning: Tuning) -> Bucket:
    """Return the problem of Inductor's tunings of the product of a table's entry."""
    op, kernel, count = _op_facts(tuning.op)
    shapes = tuning.shapes
    if kernel:
        return (op, portable_part(tuning.inputs_key or ""))
    if tuning.dims:
        return (op, *tuning.dims)
    if count:
        return (op, shapes[:count])
    if len(shapes) < 2 or len(shapes[-2]) < 2 or not shapes[-1]:
        return (op, shapes)
    return (op, *shapes[-2][:2], shapes[-1][-1])


@lru_cache(256)
def _op_facts(name: str) -> tuple[str, bool, int]:
    """Return the op without its prefix, whether it is a kernel, and how many operands a JSON log
    has."""
    op = name.lstrip("_")
    return op, is_kernel(op), logged_operands(op)


def group(members: Sequence[TuningView]) -> list[list[TuningView]]:
    """Split the members of one problem into tunings; each list begins with the fullest view."""
    if len(members) == 1 or (members and members[0].tuning.entry is not None):
        return [[member] for member in members]  # what a file says twice, it says twice
    if all(member.tuning.device_index is None for member in members):
        return _grouped(members)
    by_uid = {member.uid: member for member in members}
    own = [replace(member, tuning=of_one_device(member.tuning)) for member in members]
    return [[by_uid[view.uid] for view in views] for views in _grouped(own)]


def _grouped(members: Sequence[TuningView]) -> list[list[TuningView]]:
    timed = _Timed()
    reuses: list[TuningView] = []
    programs = Counter([member.tuning.session for member in members])
    apart = len({member.source for member in members}) == 1
    for member in sorted(members, key=_fullness):
        if is_reuse(member.tuning):
            reuses.append(member)
            continue
        # One source has a tuning once; a program's is in sources that name the program, or none.
        alone = apart or (None not in programs and programs[member.tuning.session] == 1)
        times = _NO_TIMES if alone else _rounded(member.tuning)
        home = timed.home(member, times)
        if home is None:
            timed.add(_Group([member], times))
        else:
            home.take(member)
    if not reuses:
        return [each.members for each in timed.groups]
    caches = [member for member in members if is_cache(member.tuning)]
    reused = _Reused(timed.groups)
    for member in reuses:
        reused.put(member, caches)
    return [fitting.members for fitting in reused.groups]


def _fullness(member: TuningView) -> tuple[int, int, int]:
    tuning = member.tuning
    if is_reuse(tuning):
        kind = 3
    elif tuning.inputs_key is None:
        kind = 2
    else:
        kind = 0 if tuning.session is not None else 1
    breadth = -len(tuning.choices) if kind == 2 else 0
    return kind, breadth, member.seq


def _known_times(member: TuningView, caches: Sequence[TuningView]) -> list[TuningView]:
    """The caches that have the times of a program that timed nothing itself."""
    wanted = hashes(member.tuning)
    return [
        cache
        for cache in caches
        if cache.tuning.key == member.tuning.key and wanted <= hashes(cache.tuning)
    ]


def _rounded(tuning: Tuning) -> Counter[float]:
    return Counter([round(c.ms, PLACES) for c in tuning.choices if c.ms is not None])


_NO_TIMES: Counter[float] = Counter()


@dataclass(slots=True, eq=False)
class _Group:
    """Members found to be one tuning; the first is the one that says most.

    `at` counts groups; `offered` are the choices that one program offered, once requested and
    known.
    """

    members: list[TuningView]
    times: Counter[float]
    at: int = 0
    sources: set[str] = field(default_factory=set)
    offered: frozenset[str] | None = None

    def __post_init__(self) -> None:
        self.sources.update(member.source for member in self.members)

    def take(self, member: TuningView) -> None:
        self.members.append(member)
        self.sources.add(member.source)

    @property
    def base(self) -> Tuning:
        return self.members[0].tuning

    @property
    def known(self) -> frozenset[str]:
        """The choices among which a program may have found its own."""
        if self.offered is None:
            self.offered = offered(member.tuning for member in self.members)
        return hashes(self.base) if self.offered is None else self.offered

    def fits(self, member: TuningView, times: Counter[float]) -> bool:
        """Whether the member's times are among these, or these among its, and nothing differs."""
        return (
            member.source not in self.sources
            and (times <= self.times or self.times <= times)
            and times_agree(member.tuning, self.base)
            and all(compatible(member.tuning, other.tuning) for other in self.members)
        )


class _Line:
    """Groups in the order they were made, to be searched by one source after another.

    A source has each of its tunings in one place, so groups at the front that have it already
    are not looked at again.
    """

    __slots__ = ("_passed", "groups")

    def __init__(self) -> None:
        self.groups: list[_Group] = []
        self._passed: dict[str, int] = {}

    def without(self, source: str) -> Iterator[_Group]:
        at = self._passed.get(source, 0)
        while at < len(self.groups) and source in self.groups[at].sources:
            at += 1
        self._passed[source] = at
        return (self.groups[n] for n in range(at, len(self.groups)))

    def left(self, source: str) -> int:
        """How many have not been passed by."""
        return len(self.groups) - self._passed.get(source, 0)


class _Timed:
    """Groups by their times, each program's for themselves.

    Views with a session come first and are only compared with groups of that session; others are
    compared with all groups, which are indexed when the first of these comes.
    """

    def __init__(self) -> None:
        self.groups: list[_Group] = []
        self._own: dict[tuple[str | None, float], _Line] = {}
        self._with: dict[float, _Line] = {}
        self._span: dict[tuple[float, float], _Line] = {}
        self._placed = 0

    def add(self, made: _Group) -> None:
        """Take in a new group; one without a time is found by nobody."""
        made.at = len(self.groups)
        self.groups.append(made)
        if made.times:
            _line(self._own, (made.base.session, min(made.times))).groups.append(made)

    def home(self, member: TuningView, times: Counter[float]) -> _Group | None:
        """The first group that the member is a view of."""
        if not times:
            return None
        near = self._near(member, times)
        if not is_cache(member.tuning):
            fastest = min(times)
            return next((g for g in near if fastest in g.times and g.fits(member, times)), None)
        # A cache may hold more than one program offered, and the fastest may be another's.
        fits = [near_group for near_group in near if near_group.fits(member, times)]
        return min(fits, key=lambda g: (min(g.times & times), g.at), default=None)

    def _near(self, member: TuningView, times: Counter[float]) -> Iterator[_Group]:
        """Groups that may hold all of these times, or none but these; the oldest first."""
        session, source = member.tuning.session, member.source
        if session is not None:
            keys = ((group, min(times)) for group in (session, None))
            lines = [self._own[key] for key in keys if key in self._own]
        else:
            self._place()
            lines = self._spans(member, times)
            holding = [self._with[time] for time in times if time in self._with]
            if len(holding) == len(times):
                lines.append(min(holding, key=lambda line: line.left(source)))
        groups = [line.without(source) for line in lines]
        return groups[0] if len(groups) == 1 else merge(*groups, key=lambda group: group.at)

    def _place(self) -> None:
        """Index the groups for views that name no program."""
        for each in self.groups[self._placed :]:
            for time in each.times:
                _line(self._with, time).groups.append(each)
            if each.times:
                _line(self._span, (min(each.times), max(each.times))).groups.append(each)
        self._placed = len(self.groups)

    def _spans(self, member: TuningView, times: Counter[float]) -> list[_Line]:
        """Groups whose least and greatest time are among these."""
        least = times if is_cache(member.tuning) else [min(times)]
        if len(least) * len(times) > len(self._span):
            return [line for (a, b), line in self._span.items() if a in times and b in times]
        pairs = ((a, b) for a in least for b in times)
        return [self._span[pair] for pair in pairs if pair in self._span]


def _line(lines: dict[_Key, _Line], key: _Key) -> _Line:
    line = lines.get(key)
    if line is None:
        line = lines[key] = _Line()
    return line


class _Reused:
    """Groups by their keys, for programs that took what was tuned before."""

    def __init__(self, groups: Sequence[_Group]) -> None:
        self.groups: list[_Group] = []
        self._latest: dict[TuningKey, dict[frozenset[str], _Group]] = {}
        for group in groups:
            self._add(group)

    def _add(self, made: _Group) -> None:
        self.groups.append(made)
        if made.base.key is not None:
            self._note(made, made.base.key)

    def _note(self, made: _Group, key: TuningKey) -> None:
        """Note a group; only the latest of those with the same choices counts."""
        latest = self._latest.setdefault(key, {})
        latest.pop(made.known, None)
        latest[made.known] = made

    def put(self, member: TuningView, caches: Sequence[TuningView]) -> None:
        """Add it to the latest tuning of the same keys with the same choices, else in a new group
        with the caches that have its times."""
        key = member.tuning.key
        wanted = hashes(member.tuning)
        latest = self._latest.get(key, {}) if key is not None else {}
        before = next(
            (offered_before for offered_before in reversed(latest) if wanted <= offered_before),
            None,
        )
        if before is None or key is None:
            views = _known_times(member, caches)
            self._add(_Group([member, *views], _rounded(member.tuning)))
            return
        home = latest[before]
        home.take(member)
        if home.known != before:
            del latest[before]
            self._note(home, key)
