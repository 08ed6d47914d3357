"""An index of things by facts, of which some may not be known.

Two tuples of facts fit if no fact that both know differs. What fits is looked up, not searched for:
for each pair of what is known here and there, by the facts that both know.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

Facts = tuple[object, ...]
"""Always as many; what is empty is not known."""

Places = tuple[int, ...]
"""Of facts in their tuple."""
_T = TypeVar("_T")


def known(facts: Facts) -> Places:
    """The places of those that are known."""
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
        found = self._fitting(facts)
        first = next(found, None)
        return first if next(found, None) is None else None

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
