"""The same tuning seen in several sources becomes one.

Inductor tells of one tuning in up to five places: our event log (keys, hashes, names, times), its
persistent cache (keys, hashes, times), stderr (names, times rounded to four places), the MM log
(configurations, the cache's very doubles) and the structured trace (the winner). No two share
an identifier, but they share times: equal doubles, or equal after rounding. What cannot be
attributed that way stays unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from backend.records import Choice, Seconds, Tuning, sort_choices

PLACES = 4
"""Decimals of a time in an AUTOTUNE row."""

Problem = tuple[object, ...]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Member:
    """One source's view of a tuning; `seq` counts arrivals."""

    uid: str
    source: str
    tuning: Tuning
    seq: int


def problem_of(tuning: Tuning) -> Problem:
    """What all views of one tuning agree on: the op, and what an MM log calls M, K and N."""
    op = tuning.op.lstrip("_")
    shapes = tuning.shapes
    if tuning.dims:
        return (op, tuning.dims)
    if len(shapes) < 2 or len(shapes[-2]) < 2 or not shapes[-1]:
        return (op, shapes)
    return (op, (*shapes[-2][:2], shapes[-1][-1]))


@dataclass(slots=True)
class _Group:
    """Members found to be one tuning; the first is the one that says most."""

    members: list[Member]
    times: Counter[float] = field(default_factory=Counter)

    def has_source(self, source: str) -> bool:
        return any(member.source == source for member in self.members)

    @property
    def base(self) -> Tuning:
        return self.members[0].tuning


def group(members: Sequence[Member]) -> list[list[Member]]:
    """Split the members of one problem into tunings; each list begins with the fullest view."""
    if len(members) == 1:
        return [list(members)]
    groups: list[_Group] = []
    by_time: dict[float, list[_Group]] = {}
    caches = [m for m in members if m.tuning.session is None and m.tuning.key is not None]
    for member in sorted(members, key=_fullness):
        home = _reuse(member, groups) if _is_reuse(member.tuning) else _match(member, by_time)
        if home is not None:
            home.members.append(member)
            continue
        views = _known_times(member, caches) if _is_reuse(member.tuning) else []
        made = _Group([member, *views], _rounded(member.tuning))
        groups.append(made)
        for time in made.times:
            by_time.setdefault(time, []).append(made)
    return [made.members for made in groups]


def _fullness(member: Member) -> tuple[int, int, int]:
    tuning = member.tuning
    if _is_reuse(tuning):
        kind = 3
    elif tuning.inputs_key is None:
        kind = 2
    else:
        kind = 0 if tuning.session is not None else 1
    breadth = -len(tuning.choices) if kind == 2 else 0
    return kind, breadth, member.seq


def _is_reuse(tuning: Tuning) -> bool:
    """Nothing was timed: a cached or a pinned choice was taken."""
    return tuning.session is not None and tuning.selected_by in ("cache", "pin")


def _reuse(member: Member, groups: list[_Group]) -> _Group | None:
    """The latest tuning under the same keys that put up the same choices."""
    for candidate in reversed(groups):
        told = _offered([other.tuning for other in candidate.members])
        known = _hashes(candidate.base) if told is None else told
        if _same_key(candidate.base, member.tuning) and _hashes(member.tuning) <= known:
            return candidate
    return None


def _offered(views: Iterable[Tuning]) -> set[str] | None:
    """What one program put up together, as a session tells; a cache has the choices of all."""
    return next((_hashes(view) for view in views if view.session is not None), None)


def _known_times(member: Member, caches: Sequence[Member]) -> list[Member]:
    """The caches that have the times of a program that timed nothing itself."""
    return [
        cache
        for cache in caches
        if _same_key(cache.tuning, member.tuning)
        and _hashes(member.tuning) <= _hashes(cache.tuning)
    ]


def _same_key(one: Tuning, two: Tuning) -> bool:
    return one.key is not None and one.key == two.key


def _hashes(tuning: Tuning) -> set[str]:
    return {choice.hash for choice in tuning.choices if choice.hash}


def _match(member: Member, by_time: dict[float, list[_Group]]) -> _Group | None:
    times = _rounded(member.tuning)
    if not times:
        return None
    is_cache = member.tuning.session is None and member.tuning.key is not None
    # A cache may hold more than one program offered, and the fastest may be another's.
    for candidate in _near_in(by_time, sorted(times) if is_cache else [min(times)]):
        if (
            not candidate.has_source(member.source)
            and (times <= candidate.times or candidate.times <= times)
            and _exact_agree(member.tuning, candidate.base)
            and _owners_agree(member.tuning, candidate.base)
            and all(_compatible(member.tuning, other.tuning) for other in candidate.members)
        ):
            return candidate
    return None


def _near_in(by_time: dict[float, list[_Group]], times: Iterable[float]) -> list[_Group]:
    found = {id(candidate): candidate for time in times for candidate in by_time.get(time, ())}
    return list(found.values())


def _rounded(tuning: Tuning) -> Counter[float]:
    return Counter(round(c.ms, PLACES) for c in tuning.choices if c.ms is not None)


def _exact_agree(one: Tuning, two: Tuning) -> bool:
    """Where both give a time in full, it is the same double."""
    return _full_times(one, two) and _full_times(two, one)


def _full_times(one: Tuning, two: Tuning) -> bool:
    other = {c.ms for c in two.choices if c.ms is not None}
    full = {round(ms, PLACES): ms for ms in other if round(ms, PLACES) != ms}
    for choice in one.choices:
        ms = choice.ms
        if ms is None or round(ms, PLACES) == ms or ms in other:
            continue
        if round(ms, PLACES) in full and round(ms, PLACES) not in other:
            return False
    return True


def _owners_agree(one: Tuning, two: Tuning) -> bool:
    """Where both say whose a time is, they say the same."""
    hashes = {choice.hash: choice.ms for choice in two.choices if choice.hash}
    names = {choice.name: choice.ms for choice in two.choices if choice.name}
    return all(
        _near(choice.ms, hashes.get(choice.hash or ""))
        and _near(choice.ms, names.get(choice.name or ""))
        for choice in one.choices
    )


def _near(one: float | None, two: float | None) -> bool:
    return one is None or two is None or round(one, PLACES) == round(two, PLACES)


def _compatible(one: Tuning, two: Tuning) -> bool:
    """Nothing that both know differs. Two cache files never hold the same tuning."""
    if one.inputs_key is not None and two.inputs_key is not None:
        if one.key != two.key:
            return False
        if one.session is None and two.session is None:
            return False
    return all(
        not mine or not theirs or mine == theirs
        for mine, theirs in (
            (one.shapes, two.shapes),
            (one.strides, two.strides),
            (one.dtypes, two.dtypes),
            (one.device, two.device),
            (one.session, two.session),
            (_text(one.rank), _text(two.rank)),
        )
    )


def _text(value: int | None) -> str:
    return "" if value is None else str(value)


def merge(members: Sequence[Member]) -> Tuning:
    """One tuning out of its views, of which the first says most."""
    views = [member.tuning for member in members]
    if len(views) == 1:
        return views[0]
    base = views[0]
    choices = list(base.choices)
    for view in views[1:]:
        choices = _merge_choices(choices, view.choices)
    told = _offered(views)
    if told:
        choices = [replace(c, offered=c.hash is None or c.hash in told) for c in choices]
    uses = [view for view in views if view.selected is not None]
    latest = max(uses, key=lambda view: view.when or 0.0, default=base)
    return replace(
        base,
        shapes=_first(view.shapes for view in views) or (),
        strides=_first(view.strides for view in views) or (),
        dtypes=_first(view.dtypes for view in views) or (),
        device=_first(view.device for view in views),
        precision=_first(view.precision for view in views),
        inputs_key=_first(view.inputs_key for view in views),
        choices=sort_choices(choices),
        num_choices=len(told)
        if told
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
        when=_known(view.when for view in views),
        sources=tuple(dict.fromkeys(source for view in views for source in view.sources)),
        threads=_first(view.threads for view in views),
    )


def _first(values: Iterable[_T]) -> _T | None:
    return next((value for value in values if value), None)


def _known(values: Iterable[float | None]) -> float | None:
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
    """Where `choice` may stand among `known`; several places mean that it cannot be told."""
    free = [at for at in range(len(known)) if at not in taken]
    for same in (_same_hash, _same_time, _same_name):
        places = [at for at in free if same(choice, known[at])]
        if len(places) > 1:
            named = [at for at in places if _same_name(choice, known[at])]
            places = named if len(named) == 1 else places
        if places:
            return places
    return []


def _same_hash(one: Choice, two: Choice) -> bool:
    return one.hash is not None and one.hash == two.hash


def _same_time(one: Choice, two: Choice) -> bool:
    if one.ms is None or two.ms is None or (one.hash and two.hash):
        return False
    return one.ms == two.ms or round(one.ms, PLACES) == round(two.ms, PLACES)


def _same_name(one: Choice, two: Choice) -> bool:
    """Equal names, or an ATen name that the hash begins with."""
    if one.hash and two.hash:
        return False
    if one.name is not None and one.name == two.name:
        return True
    return any(
        a.name is not None and b.hash is not None and b.hash.startswith(f"{a.name}-")
        for a, b in ((one, two), (two, one))
    )


def _fill(known: Choice, seen: Choice) -> Choice:
    return replace(
        known,
        name=known.name or seen.name,
        hash=known.hash or seen.hash,
        ms=_fuller(known.ms, seen.ms),
        description=known.description or seen.description,
        reason=known.reason or seen.reason,
    )


def _fuller(one: float | None, two: float | None) -> float | None:
    """The time with more digits."""
    if one is None or two is None:
        return two if one is None else one
    return two if round(one, PLACES) == one else one
