"""Tunings whose choices are columns still, of which most are never asked for.

Fifty thousand tunings have a quarter of a million choices; a screen shows those of one, and the
fastest of forty. As columns they take a third of the memory, and no time.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from itertools import accumulate, chain, islice, pairwise, repeat
from operator import attrgetter, is_
from threading import Lock
from typing import Any, Generic, TypeVar, cast

from backend.model.choice import Choice
from backend.model.tuning import Seconds, Tuning

_Thing = TypeVar("_Thing")
Values = Sequence[Any]
Column = tuple[bool, Any]
"""Whether all have the same value; that value, else all of them."""
_TEXTS = {str, type(None)}
_FEW = 16
"""A text that comes so often is told by its number."""


class Table(Generic[_Thing]):
    """Instances of one dataclass with slots as columns, one a field, and back."""

    def __init__(self, kind: type[_Thing], apart: Sequence[str] = ()) -> None:
        """Those `apart` are not asked of things: `columns` has None for them."""
        self._kind = kind
        self._defaults = {
            field.name: None if field.default is MISSING else field.default
            for field in fields(cast(Any, kind))
        }
        self._names = list(self._defaults)
        asked = [name for name in self._names if name not in apart]
        self._apart = sorted(map(self.place, apart))
        self._values: Callable[[_Thing], tuple[Any, ...]] = attrgetter(*asked)
        self._set = [getattr(kind, name).__set__ for name in self._names]

    def place(self, name: str) -> int:
        return self._names.index(name)

    def columns(self, things: Sequence[_Thing]) -> list[Values]:
        """The values of each field; none of no things."""
        columns: list[Values] = list(zip(*map(self._values, things), strict=True))
        for at in self._apart if columns else ():
            columns.insert(at, (None,))
        return columns

    def filled(self, given: Mapping[str, Column]) -> list[Column]:
        """All columns: those `given`, and the defaults."""
        return [given.get(name) or (True, default) for name, default in self._defaults.items()]

    def things(
        self, count: int, columns: Sequence[Iterable[Any]], kind: type[_Thing] | None = None
    ) -> list[_Thing]:
        """So many instances, made of their columns; of a `kind` that adds no slot."""
        things = list(map(object.__new__, repeat(kind or self._kind, count)))
        for put, column in zip(self._set, columns, strict=count > 0):
            deque(map(put, things, column), maxlen=0)
        return things


def told(columns: Iterable[Values]) -> list[Column]:
    """What is the same is told once; equal is not enough: `0` equals `0.0` and `False`. Numbers
    that are all alike in kind lie close together, and a text that comes again is the same one."""
    return list(map(_told, columns))


class Coded:
    """Texts, of which few differ: the number of each in a row of those that do takes a byte."""

    __slots__ = ("_codes", "_texts")
    most = 256

    def __init__(self, column: Sequence[str | None], texts: Iterable[str | None]) -> None:
        """`texts` are those that the column has, each once, `most` of them at most."""
        self._texts = tuple(texts)
        codes = {text: code for code, text in enumerate(self._texts)}
        self._codes = bytes(map(codes.__getitem__, column))

    def __len__(self) -> int:
        return len(self._codes)

    def __iter__(self) -> Iterator[str | None]:
        return map(self._texts.__getitem__, self._codes)

    def __getitem__(self, place: slice) -> list[str | None]:
        return [self._texts[code] for code in self._codes[place]]


def _told(column: Values) -> Column:
    if all(map(is_, column, repeat(column[0]))):
        return True, column[0]
    kinds = set(map(type, column))
    if kinds == {float}:
        return False, array("d", column)
    if kinds <= _TEXTS:
        known: dict[str | None, str | None] = {}
        column = tuple(map(known.setdefault, column, column))
        if len(known) == 1:
            return True, column[0]
        few = _FEW * len(known) <= len(column) and len(known) <= Coded.most
        return False, Coded(column, known) if few else column
    return False, column


class Maybes:
    """Numbers that lie close together; where one is missing it is None, and stored as NaN."""

    __slots__ = ("numbers",)
    width = 1

    def __init__(self, numbers: array[float]) -> None:
        self.numbers = numbers

    def __getitem__(self, place: slice) -> list[float | None]:
        return [None if one != one else one for one in self.numbers[place]]


class Pairs:
    """The same for pairs of numbers, that are there both or not at all."""

    __slots__ = ("numbers",)
    width = 2

    def __init__(self, numbers: array[float]) -> None:
        self.numbers = numbers

    def __getitem__(self, place: slice) -> list[tuple[float, float] | None]:
        flat = self.numbers[2 * place.start : 2 * place.stop]
        pairs = zip(flat[0::2], flat[1::2], strict=True)
        return [None if low != low or high != high else (low, high) for low, high in pairs]


def joined(columns: Sequence[Column], counts: Sequence[int]) -> Column:
    """One below the other, each with so many values."""
    alike, first = columns[0]
    kind = type(first)
    if alike and all(same and value is first for same, value in columns):
        return True, first
    if kind in (Maybes, Pairs) and all(type(value) is kind for _, value in columns):
        numbers = (value.numbers for _, value in columns)
        return False, kind(array("d", chain.from_iterable(numbers)))
    parts = zip(columns, counts, strict=True)
    every = [repeat(value, count) if same else value for (same, value), count in parts]
    return False, list(chain.from_iterable(every))


def values(columns: Iterable[Column]) -> list[Iterable[Any]]:
    return [repeat(value) if alike else value for alike, value in columns]


CHOICES, SECONDS = Table(Choice), Table(Seconds)
TUNINGS = Table(Tuning, apart=("choices", "seconds"))
_MS, _FAILED, _OFFERED = map(CHOICES.place, ("ms", "failed", "offered"))
_CHOICES, _SECONDS = vars(Tuning)["choices"], vars(Tuning)["seconds"]
_FILLING = Lock()
_PLACES: list[int] = []


class TuningColumns:
    """The choices of tunings that follow each other, so many of each, and the seconds they took."""

    __slots__ = ("_columns", "_ends", "_offered", "_seconds")

    def __init__(self, columns: list[Column], counts: Iterable[int], seconds: list[Column]) -> None:
        self._columns = columns
        self._ends = array("Q", [0, *accumulate(counts)])
        self._seconds = seconds
        self._offered = not columns or columns[_OFFERED] == (True, True)

    @property
    def told(self) -> tuple[list[int], list[Column], list[Column]]:
        """How many choices each tuning has, the columns of all, and those of the seconds."""
        return [b - a for a, b in pairwise(self._ends)], self._columns, self._seconds

    @property
    def alone(self) -> bool:
        """Whether they are of one tuning."""
        return len(self._ends) == 2

    def of(self, at: int) -> tuple[Choice, ...]:
        """Those of the tuning in this place."""
        start, end = self._ends[at : at + 2]
        if start == end:
            return ()
        count = end - start
        parts = [repeat(one, count) if alike else one[start:end] for alike, one in self._columns]
        return tuple(map(Choice, *parts))

    @property
    def size(self) -> int:
        """Of how many tunings they are."""
        return len(self._ends) - 1

    def every(self) -> tuple[list[tuple[Choice, ...]], list[Seconds]]:
        """Those of each tuning, and what it took."""
        choices = CHOICES.things(self._ends[-1], values(self._columns))
        each = [tuple(choices[start:end]) for start, end in pairwise(self._ends)]
        return each, SECONDS.things(len(each), values(self._seconds))

    def times(self, at: int) -> Sequence[float] | None:
        """Their milliseconds, fastest first, but for those that failed; None where some were not
        offered."""
        if not self._offered:
            return None
        start, end = self._ends[at], self._ends[at + 1]
        if start == end:
            return ()
        (alike, ms), (same, failed) = self._columns[_MS], self._columns[_FAILED]
        if type(ms) is array and same and not failed:  # each has a time, of most tunings
            return ms[start:end]
        told = [ms] * (end - start) if alike else ms[start:end]
        lost = repeat(failed, end - start) if same else failed[start:end]
        return [one for one, fails in zip(told, lost, strict=True) if not (fails or one is None)]

    def extremes(self, at: int) -> tuple[float, ...] | None:
        """The first and the last of these, of most tunings without a look at the others."""
        start, end = self._ends[at], self._ends[at + 1]
        if self._offered and start < end:
            (_, ms), (same, failed) = self._columns[_MS], self._columns[_FAILED]
            if type(ms) is array and same and not failed:
                return ms[start], ms[end - 1]
        times = self.times(at)
        return None if times is None else (times[0], times[-1]) if times else ()

    @property
    def all_offered(self) -> bool:
        """Whether each choice was put up beside the others of its tuning."""
        return self._offered

    def column(self, at: int, name: str) -> Sequence[Any]:
        """What this field of the choices of one tuning says."""
        start, end = self._ends[at], self._ends[at + 1]
        if start == end:
            return ()
        alike, one = self._columns[CHOICES.place(name)]
        told: Sequence[Any] = [one] * (end - start) if alike else one[start:end]
        return told

    def count(self, at: int) -> int:
        """How many choices the tuning in this place has."""
        return self._ends[at + 1] - self._ends[at]

    def seconds(self, at: int) -> Seconds:
        """What the tuning in this place took."""
        return Seconds(*[one if alike else one[at] for alike, one in self._seconds])

    def fields(self, count: int) -> tuple[Iterable[TuningColumns], Iterable[int]]:
        """What stands in the place of the choices and of the seconds of so many tunings.

        The numbers are the same objects each time: one of its own for each tuning takes room.
        """
        _PLACES.extend(range(len(_PLACES), count))
        return repeat(self), islice(_PLACES, count)


_NO_SECONDS: list[Column] = [(True, None)] * len(fields(Seconds))


class PackedTuning(Tuning):
    """A tuning of which nobody has asked for the choices: it is a Tuning as soon as one does.

    Until then the columns stand in the place of its choices, and where it is in these in the place
    of its seconds. That one is filled last, so who looks at it first finds both as they belong
    together.
    """

    __slots__ = ()

    def __new__(cls, *values: Any, **named: Any) -> Tuning:  # type: ignore[misc]
        """What `replace` makes of it is none."""
        return Tuning(*values, **named)

    @property
    def choices(self) -> tuple[Choice, ...]:
        with _FILLING:
            at, held = _SECONDS.__get__(self), _CHOICES.__get__(self)
            if isinstance(held, TuningColumns):  # else another thread was faster
                columns, held = held, held.of(at)
                _CHOICES.__set__(self, held)
                _SECONDS.__set__(self, columns.seconds(at))
                object.__setattr__(self, "__class__", Tuning)
        return cast("tuple[Choice, ...]", held)

    @property
    def seconds(self) -> Seconds:
        at, held = _SECONDS.__get__(self), _CHOICES.__get__(self)
        if isinstance(held, TuningColumns):
            return held.seconds(at)
        with _FILLING:
            return cast(Seconds, _SECONDS.__get__(self))

    @property
    def times(self) -> Sequence[float] | None:
        """What `TuningColumns` tells of it."""
        at, held = _SECONDS.__get__(self), _CHOICES.__get__(self)
        return held.times(at) if isinstance(held, TuningColumns) else None

    @property
    def extremes(self) -> tuple[float, ...] | None:
        """The same of the fastest and the slowest."""
        at, held = _SECONDS.__get__(self), _CHOICES.__get__(self)
        return held.extremes(at) if isinstance(held, TuningColumns) else None

    @property
    def place(self) -> tuple[TuningColumns | None, int]:
        """Where its choices are, unless somebody asked for them already."""
        at, held = _SECONDS.__get__(self), _CHOICES.__get__(self)
        return (held, at) if isinstance(held, TuningColumns) else (None, 0)

    @staticmethod
    def of(tuning: Tuning, columns: list[Column], count: int) -> Tuning:
        """The tuning, which has no choices and took no seconds, with so many of these columns."""
        if count:
            _CHOICES.__set__(tuning, TuningColumns(columns, (count,), _NO_SECONDS))
            _SECONDS.__set__(tuning, 0)
            object.__setattr__(tuning, "__class__", PackedTuning)
        return tuning

    def _unpacked(self) -> Tuning:
        _ = self.choices
        return self

    def __eq__(self, other: object) -> bool:
        return self._unpacked() == other

    def __hash__(self) -> int:
        return hash(self._unpacked())

    def __repr__(self) -> str:
        return repr(self._unpacked())

    def __reduce_ex__(self, protocol: Any) -> Any:
        return object.__reduce_ex__(self._unpacked(), protocol)


def unpack(tunings: Iterable[Tuning]) -> None:
    """Make the choices of all, in a fraction of the time that it takes one by one. No other thread
    may ask for them meanwhile."""
    packed: dict[TuningColumns, list[tuple[Tuning, int]]] = {}
    for tuning in tunings:
        columns, at = tuning.place if isinstance(tuning, PackedTuning) else (None, 0)
        if columns is not None and not columns.alone:
            packed.setdefault(columns, []).append((tuning, at))
    for columns, each in packed.items():
        if len(each) * 2 < columns.size:
            continue  # one by one is less
        choices, seconds = columns.every()
        for tuning, at in each:
            _CHOICES.__set__(tuning, choices[at])
            _SECONDS.__set__(tuning, seconds[at])
            object.__setattr__(tuning, "__class__", Tuning)


def choice_values(tuning: Tuning, name: str) -> Sequence[Any]:
    """What a field of its choices says; packed ones stay so."""
    columns, at = tuning.place if isinstance(tuning, PackedTuning) else (None, 0)
    if columns is not None:
        return columns.column(at, name)
    return [getattr(choice, name) for choice in tuning.choices]


def all_offered(tuning: Tuning) -> bool:
    """Whether each of its choices was put up beside the others; packed ones stay so."""
    columns = tuning.place[0] if isinstance(tuning, PackedTuning) else None
    return columns.all_offered if columns else all(each.offered for each in tuning.choices)


def choice_count(tuning: Tuning) -> int:
    """How many choices it has; packed ones stay so."""
    columns, at = tuning.place if isinstance(tuning, PackedTuning) else (None, 0)
    return len(tuning.choices) if columns is None else columns.count(at)
