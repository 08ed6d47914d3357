"""The same tuning seen in several sources becomes one.

Inductor tells of one tuning in up to five places: our event log (keys, hashes, names, times), its
persistent cache (keys, hashes, times), stderr (names, times rounded to four places), the MM log
(configurations, the cache's very doubles) and the structured trace (the winner). No two share
an identifier, but they share times: equal doubles, or equal after rounding. What cannot be
attributed that way stays unknown.

Finding the views of one tuning takes about as long for the last of many as for the first: a model
that is tuned a thousand times has a thousand groups of nearly the same times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import merge
from typing import TypeVar

from backend.model.inductor_kernel import is_kernel
from backend.model.kernel import alike
from backend.model.problem import TuningKey
from backend.model.tuning import Tuning
from rocm_tui.session.merge import (
    PLACES,
    compatible,
    hashes,
    is_cache,
    is_reuse,
    logged_operands,
    of_one_device,
    offered,
    same_key,
    times_agree,
)

Bucket = tuple[object, ...]
_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class Member:
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
    """The same of Inductor's tunings of the product, where the tuning is an entry of a table."""
    op, kernel, told = _told_of(tuning.op)
    shapes = tuning.shapes
    if kernel:
        return (op, alike(tuning.inputs_key or ""))
    if tuning.dims:
        return (op, *tuning.dims)
    if told:
        return (op, shapes[:told])
    if len(shapes) < 2 or len(shapes[-2]) < 2 or not shapes[-1]:
        return (op, shapes)
    return (op, *shapes[-2][:2], shapes[-1][-1])


@lru_cache(256)
def _told_of(name: str) -> tuple[str, bool, int]:
    """The op without what stands before its name, whether it is a kernel, and of how many operands
    a JSON log tells."""
    op = name.lstrip("_")
    return op, is_kernel(op), logged_operands(op)


def group(members: Sequence[Member]) -> list[list[Member]]:
    """Split the members of one problem into tunings; each list begins with the fullest view."""
    if len(members) == 1 or (members and members[0].tuning.entry is not None):
        return [[member] for member in members]  # what a file says twice, it says twice
    if all(member.tuning.device_index is None for member in members):
        return _grouped(members)
    known = {member.uid: member for member in members}
    own = [replace(member, tuning=of_one_device(member.tuning)) for member in members]
    return [[known[view.uid] for view in views] for views in _grouped(own)]


def _grouped(members: Sequence[Member]) -> list[list[Member]]:
    timed = _Timed()
    reuses: list[Member] = []
    programs = Counter([member.tuning.session for member in members])
    apart = len({member.source for member in members}) == 1
    for member in sorted(members, key=_fullness):
        if is_reuse(member.tuning):
            reuses.append(member)
            continue
        # One source tells a tuning once; a program's is told by what tells that program, or none.
        alone = apart or (None not in programs and programs[member.tuning.session] == 1)
        times = _NO_TIMES if alone else _rounded(member.tuning)
        home = timed.home(member, times)
        if home is None:
            timed.add(_Group([member], times))
        else:
            home.take(member)
    if not reuses:
        return [made.members for made in timed.groups]
    caches = [member for member in members if is_cache(member.tuning)]
    reused = _Reused(timed.groups)
    for member in reuses:
        reused.put(member, caches)
    return [fitting.members for fitting in reused.groups]


def _fullness(member: Member) -> tuple[int, int, int]:
    tuning = member.tuning
    if is_reuse(tuning):
        kind = 3
    elif tuning.inputs_key is None:
        kind = 2
    else:
        kind = 0 if tuning.session is not None else 1
    breadth = -len(tuning.choices) if kind == 2 else 0
    return kind, breadth, member.seq


def _known_times(member: Member, caches: Sequence[Member]) -> list[Member]:
    """The caches that have the times of a program that timed nothing itself."""
    known = hashes(member.tuning)
    return [
        cache
        for cache in caches
        if same_key(cache.tuning, member.tuning) and known <= hashes(cache.tuning)
    ]


def _rounded(tuning: Tuning) -> Counter[float]:
    return _counted(tuple([round(c.ms, PLACES) for c in tuning.choices if c.ms is not None]))


_NO_TIMES: Counter[float] = Counter()


@lru_cache(256)
def _counted(times: tuple[float, ...]) -> Counter[float]:
    """One for all tables that tell the same times; nobody changes it."""
    return Counter(times)


@dataclass(slots=True, eq=False)
class _Group:
    """Members found to be one tuning; the first is the one that says most.

    `at` counts groups; `offered` is what one program put up together, once that was asked for and
    a member tells.
    """

    members: list[Member]
    times: Counter[float]
    at: int = 0
    sources: set[str] | tuple[str, ...] = ()
    offered: frozenset[str] | None = None

    def __post_init__(self) -> None:
        self.sources = tuple([member.source for member in self.members])  # a set takes thrice that

    def take(self, member: Member) -> None:
        self.members.append(member)
        if not isinstance(self.sources, set):
            self.sources = set(self.sources)
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

    def fits(self, member: Member, times: Counter[float]) -> bool:
        """Whether the member's times are among these, or these among its, and nothing differs."""
        return (
            member.source not in self.sources
            and (times <= self.times or self.times <= times)
            and times_agree(member.tuning, self.base)
            and all(compatible(member.tuning, other.tuning) for other in self.members)
        )


class _Line:
    """Groups in the order they were made, to be searched by one source after another.

    A source tells each of its tunings in one place, so groups at the front that have it already
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

    Programs that tell who they are come first, and only look among their own groups; what tells no
    program is looked for among all, which are put in order when the first of these comes.
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

    def home(self, member: Member, times: Counter[float]) -> _Group | None:
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

    def _near(self, member: Member, times: Counter[float]) -> Iterator[_Group]:
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
        """Put groups where those look that tell no program."""
        for made in self.groups[self._placed :]:
            for time in made.times:
                _line(self._with, time).groups.append(made)
            if made.times:
                _line(self._span, (min(made.times), max(made.times))).groups.append(made)
        self._placed = len(self.groups)

    def _spans(self, member: Member, times: Counter[float]) -> list[_Line]:
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
            self._tell(made, made.base.key)

    def _tell(self, made: _Group, key: TuningKey) -> None:
        """Of groups with the same choices only the latest counts."""
        latest = self._latest.setdefault(key, {})
        latest.pop(made.known, None)
        latest[made.known] = made

    def put(self, member: Member, caches: Sequence[Member]) -> None:
        """To the latest tuning under the same keys that put up the same choices, else by itself,
        with the caches that have its times."""
        key = member.tuning.key
        wanted = hashes(member.tuning)
        latest = self._latest.get(key, {}) if key is not None else {}
        before = next((known for known in reversed(latest) if wanted <= known), None)
        if before is None or key is None:
            views = _known_times(member, caches)
            self._add(_Group([member, *views], _rounded(member.tuning)))
            return
        home = latest[before]
        home.take(member)
        if home.known != before:
            del latest[before]
            self._tell(home, key)
