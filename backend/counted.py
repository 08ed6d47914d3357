"""Numbers of things: one thing, two things."""

from __future__ import annotations

from collections.abc import Iterable


def counted(number: int, one: str, many: str = "") -> str:
    """`1 graph`, `3,000 graphs`; with `many` where an s does not do: `3 graphs are`."""
    return f"{number:,} {noun(number, one, many)}"


def noun(number: float | None, one: str, many: str = "") -> str:
    """The word alone, to stand behind a number that is written in another way."""
    return one if number == 1 else many or f"{one}s"


def device_ranges(indices: Iterable[int]) -> str:
    """`0-3, 5` of device indices."""
    ranges: list[list[int]] = []
    for index in sorted(indices):
        if ranges and ranges[-1][-1] + 1 == index:
            ranges[-1][1:] = [index]
        else:
            ranges.append([index])
    return ", ".join("-".join(map(str, ends)) for ends in ranges)
