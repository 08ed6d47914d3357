"""Whether two views tell of one tuning: nothing that both know differs. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable

from backend.model.tuning import Tuning
from rocm_tui.session.device_of import device_kind

PLACES = 4
"""Decimals of a time in an AUTOTUNE row."""


def is_reuse(tuning: Tuning) -> bool:
    """Nothing was timed: a cached or a pinned choice was taken."""
    return tuning.session is not None and tuning.selected_by in ("cache", "pin")


def is_cache(tuning: Tuning) -> bool:
    """What a persistent cache tells: keys, and no program."""
    return tuning.session is None and tuning.key is not None


def hashes(tuning: Tuning) -> frozenset[str]:
    return frozenset([choice.hash for choice in tuning.choices if choice.hash])


def offered(views: Iterable[Tuning]) -> frozenset[str] | None:
    """What one program put up together, as a session tells; a cache has the choices of all."""
    return next((hashes(view) for view in views if view.session is not None), None)


def same_key(one: Tuning, two: Tuning) -> bool:
    if one.inputs_key is None or one.precision is None:
        return False
    return (one.inputs_key, one.op, one.precision) == (two.inputs_key, two.op, two.precision)


def times_agree(one: Tuning, two: Tuning) -> bool:
    """Where both give a time in full, it is the same double; and where both say whose it is, they
    say the same."""
    return _full_times(one, two) and _full_times(two, one) and _owners_agree(one, two)


def _full_times(one: Tuning, two: Tuning) -> bool:
    other = {c.ms for c in two.choices if c.ms is not None}
    full = {round(ms, PLACES) for ms in other if round(ms, PLACES) != ms}
    for choice in one.choices:
        ms = choice.ms
        if ms is None or ms in other:
            continue
        short = round(ms, PLACES)
        if short != ms and short in full and short not in other:
            return False
    return True


def _owners_agree(one: Tuning, two: Tuning) -> bool:
    by_hash = {choice.hash: choice.ms for choice in two.choices if choice.hash}
    by_name = {choice.name: choice.ms for choice in two.choices if choice.name}
    return all(
        _near(choice.ms, by_hash.get(choice.hash or ""))
        and _near(choice.ms, by_name.get(choice.name or ""))
        for choice in one.choices
    )


def _near(one: float | None, two: float | None) -> bool:
    return one is None or two is None or round(one, PLACES) == round(two, PLACES)


def compatible(one: Tuning, two: Tuning) -> bool:
    """Nothing that both know of the program and the problem differs.

    Two cache files never hold the same tuning.
    """
    if one.inputs_key is not None and two.inputs_key is not None:
        if one.key != two.key:
            return False
        if one.session is None and two.session is None:
            return False
    if one.rank is not None and two.rank is not None and one.rank != two.rank:
        return False
    facts = (
        (one.session, two.session),
        (one.shapes, two.shapes),
        (one.strides, two.strides),
        (one.dtypes, two.dtypes),
        (one.device, two.device),
    )
    if any(mine and theirs and mine != theirs for mine, theirs in facts):
        return False
    mine, theirs = device_kind(one), device_kind(two)
    return mine is None or theirs is None or mine == theirs
