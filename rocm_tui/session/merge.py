"""Views of one tuning: whether two are, because nothing that both know differs, and one tuning out
of what all of them tell. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import isinf
from operator import attrgetter
from typing import TypeVar

from backend.cache.variants import may_differ
from backend.model.choice import Choice, sort_choices
from backend.model.origin import device_kind
from backend.model.problem import Shape, TuningKey
from backend.model.tuning import REUSED, Seconds, Tuning

PLACES = 4
"""Decimals of a time in an AUTOTUNE row."""


def is_reuse(tuning: Tuning) -> bool:
    """Nothing was timed: a cached or a pinned choice was taken, or another rank's, or a file tells
    that alone."""
    if tuning.session is None:
        return is_selection(tuning)
    return tuning.selected_by in REUSED


def is_selection(tuning: Tuning) -> bool:
    """A file of no program, which tells the choice that was taken, and no time."""
    return tuning.session is None and tuning.key is not None and tuning.selected is not None


def is_cache(tuning: Tuning) -> bool:
    """What a persistent cache tells: keys, and no program."""
    return tuning.session is None and tuning.key is not None and tuning.selected is None


def hashes(tuning: Tuning) -> frozenset[str]:
    return frozenset([choice.hash for choice in tuning.choices if choice.hash])


def offered(views: Iterable[Tuning]) -> frozenset[str] | None:
    """What one program put up together, as a session tells; a cache has the choices of all."""
    return next((hashes(view) for view in views if view.session is not None), None)


def same_key(left: Tuning, right: Tuning) -> bool:
    if left.inputs_key is None or left.precision is None:
        return False
    return (left.inputs_key, left.op, left.precision) == (
        right.inputs_key,
        right.op,
        right.precision,
    )


def times_agree(left: Tuning, right: Tuning) -> bool:
    """Where both give a time in full, it is the same double; and where both say whose it is, they
    say the same."""
    return _full_times(left, right) and _full_times(right, left) and _owners_agree(left, right)


def _full_times(left: Tuning, right: Tuning) -> bool:
    other = {c.ms for c in right.choices if c.ms is not None}
    full = {round(ms, PLACES) for ms in other if round(ms, PLACES) != ms}
    for choice in left.choices:
        ms = choice.ms
        if ms is None or ms in other:
            continue
        short = round(ms, PLACES)
        if short != ms and short in full and short not in other:
            return False
    return True


def _owners_agree(left: Tuning, right: Tuning) -> bool:
    by_hash = {choice.hash: choice.ms for choice in right.choices if choice.hash}
    by_name = {choice.name: choice.ms for choice in right.choices if choice.name}
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
    facts = (
        (left.session, right.session),
        _told_shapes(left, right),
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


def logged_operands(op: str) -> int:
    """Of how many operands, the first ones, a JSON log of PyTorch tells the shape; 0 for others."""
    if op.startswith(("flex_attention", "flex_decoding")):
        return 3
    return 2 if op.startswith("convolution") else 0


def _told_shapes(left: Tuning, right: Tuning) -> tuple[tuple[Shape, ...], tuple[Shape, ...]]:
    """The shapes of both; where a log tells of the first operands alone, of those."""
    told = logged_operands(left.op)
    if not told or told not in (len(left.shapes), len(right.shapes)):
        return left.shapes, right.shapes
    return left.shapes[:told], right.shapes[:told]


_T = TypeVar("_T")


def merge(views: Sequence[Tuning]) -> Tuning:
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
    """Of each joined tuning the choices that it was not offered and another one of its key was:
    activations share a key, and the cache holds the choices of all."""
    by_key: dict[TuningKey, set[str]] = {}
    for tuning in tunings:
        if tuning.session is not None and tuning.key is not None:
            told = by_key.setdefault(tuning.key, set())
            told.update(each.hash for each in tuning.choices if each.hash and each.offered)
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
    """What all views say that tell it; ops that differ in it share a key."""
    told = {given for given in values if given}
    return told.pop() if len(told) == 1 else None


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
    """Where `choice` may stand among `known`; several places mean that it cannot be told."""
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
    told = (
        known.name or seen.name,
        known.hash or seen.hash,
        own[0].ms if len(own) == 1 else _fuller(known.ms, seen.ms),
        known.description or seen.description,
        known.reason or seen.reason,
        known.quantiles or seen.quantiles,
        known.identity or seen.identity,
        known.shared and not own,
    )
    if told == _FILLED(known):  # what a cache gave says nothing new, and a model is run often
        return known
    name, hash_, ms, description, reason, quantiles, identity, shared = told
    return replace(
        known,
        name=name,
        hash=hash_,
        ms=ms,
        description=description,
        reason=reason,
        quantiles=quantiles,
        identity=identity,
        shared=shared,
    )


_FILLED = attrgetter(*"name hash ms description reason quantiles identity shared".split())


def _fuller(left: float | None, right: float | None) -> float | None:
    """The time with more digits."""
    if left is None or right is None:
        return right if left is None else left
    return right if round(left, PLACES) == left else left


def with_times(tuning: Tuning, measured: Mapping[str, float]) -> tuple[Choice, ...]:
    """The choices with the times that are known of those which a pin has made to look failed."""

    def restored(choice: Choice) -> Choice:
        ms = measured.get(choice.hash or "")
        if ms is None or isinf(ms) or not choice.failed:
            return choice
        return replace(choice, ms=ms, failed=False, reason=None)

    return sort_choices([restored(choice) for choice in tuning.choices])
