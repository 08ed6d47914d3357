"""A filter as a tree: what a row has to be."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Text:
    """A row shows this, in small letters."""

    text: str


@dataclass(frozen=True, slots=True)
class OneOf:
    """A word of this field is one of these, which may hold `*`."""

    field: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """From `low` to `high`; both count, unless `open`."""

    low: float = -inf
    high: float = inf
    open: bool = False

    def holds(self, number: float) -> bool:
        if self.open:
            return self.low < number < self.high
        return self.low <= number <= self.high


@dataclass(frozen=True, slots=True)
class Within:
    """The number of this field is in one of these."""

    field: str
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class IsKnown:
    """Something is known of this field."""

    field: str


@dataclass(frozen=True, slots=True)
class Not:
    term: Query


@dataclass(frozen=True, slots=True)
class All:
    """Without terms: every row."""

    terms: tuple[Query, ...] = ()


@dataclass(frozen=True, slots=True)
class Either:
    terms: tuple[Query, ...]


Query = Text | OneOf | Within | IsKnown | Not | All | Either
EVERYTHING = All()
