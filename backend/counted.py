"""Numbers with their nouns: one graph, two graphs."""

from __future__ import annotations

from collections.abc import Iterable


def counted(number: int, singular: str, plural: str = "") -> str:
    """Return `1 graph`, `3,000 graphs`; `plural` if an s is not enough: `3 graphs are`."""
    return f"{number:,} {noun(number, singular, plural)}"


def noun(number: float | None, singular: str, plural: str = "") -> str:
    """Return the noun alone, to follow a number in another format."""
    return singular if number == 1 else plural or f"{singular}s"


def device_ranges(indices: Iterable[int]) -> str:
    """Return device indices as ranges: `0-3, 5`."""
    ranges: list[list[int]] = []
    for index in sorted(indices):
        if ranges and ranges[-1][-1] + 1 == index:
            ranges[-1][1:] = [index]
        else:
            ranges.append([index])
    return ", ".join("-".join(map(str, ends)) for ends in ranges)
