"""Records as bytes for another process of ours. Tunings go column by column: what all of them say
alike is told once, and slots are filled without calling the types. That takes a third of what
`pickle` takes for one record after another."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from itertools import chain, groupby, islice, repeat
from operator import attrgetter, is_
from typing import Any, Generic, TypeVar, cast

from backend.model.choice import Choice
from backend.model.tuning import Seconds, Tuning
from rocm_tui.ingest.records import Record, Seen, SourceStatus

Message = tuple[list[Record], tuple[SourceStatus, ...] | None]
"""The first without records tells that all that was there at the start has come."""

_Thing = TypeVar("_Thing")
_Values = Sequence[Any]
_Column = tuple[bool, Any]
"""Whether all have the same value; that value, else all of them."""
_Run = tuple[_Values, _Values, list[_Column], int, list[_Column], list[_Column]]
"""Uids and ids of tunings in a row, the columns of these, how many choices they have in all, the
columns of those, and of the seconds."""


class _Table(Generic[_Thing]):
    """Instances of one dataclass with slots as columns, one a field, and back."""

    def __init__(self, kind: type[_Thing]) -> None:
        self._kind = kind
        self._names = [field.name for field in fields(cast(Any, kind))]
        self._values: Callable[[_Thing], tuple[Any, ...]] = attrgetter(*self._names)
        self._set = [getattr(kind, name).__set__ for name in self._names]

    def place(self, name: str) -> int:
        return self._names.index(name)

    def columns(self, things: Sequence[_Thing]) -> list[_Values]:
        """The values of each field; none of no things."""
        return list(zip(*map(self._values, things), strict=True))

    def things(self, count: int, columns: Sequence[Iterable[Any]]) -> list[_Thing]:
        """So many instances, made of their columns."""
        things = list(map(object.__new__, repeat(self._kind, count)))
        for put, column in zip(self._set, columns, strict=count > 0):
            deque(map(put, things, column), maxlen=0)
        return things


_TUNINGS, _CHOICES, _SECONDS = _Table(Tuning), _Table(Choice), _Table(Seconds)
_OWN = _TUNINGS.place("choices"), _TUNINGS.place("seconds")
"""The fields that go by tables of their own."""


def packed(message: Message) -> bytes:
    """The message as bytes, of which `unpacked` makes it again."""
    records, statuses = message
    groups = groupby(records, lambda record: type(record) is Seen)
    runs = [_run(cast("list[Seen]", list(each))) if seen else list(each) for seen, each in groups]
    return pickle.dumps((runs, statuses), pickle.HIGHEST_PROTOCOL)


def unpacked(data: bytes) -> Message:
    """The message that was `packed`."""
    runs, statuses = pickle.loads(data)
    parts = (run if isinstance(run, list) else _seen(run) for run in runs)
    return list(chain.from_iterable(parts)), statuses


def _run(records: Sequence[Seen]) -> _Run:
    tunings = [record.tuning for record in records]
    columns = _TUNINGS.columns(tunings)
    choices, seconds = _OWN
    every = list(chain.from_iterable(columns[choices]))
    spent = _told(_SECONDS.columns(columns[seconds]))
    columns[choices], columns[seconds] = list(map(len, columns[choices])), (None,)
    uids, ids = [record.uid for record in records], [tuning.id for tuning in tunings]
    return uids, ids, _told(columns), len(every), _told(_CHOICES.columns(every)), spent


def _seen(run: _Run) -> Iterable[Seen]:
    uids, ids, told, count, choices, seconds = run
    columns, at = _values(told), _OWN
    every = iter(_CHOICES.things(count, _values(choices)))
    columns[at[0]] = [tuple(islice(every, n)) for n in islice(columns[at[0]], len(uids))]
    columns[at[1]] = _SECONDS.things(len(uids), _values(seconds))
    return map(Seen, uids, _TUNINGS.things(len(uids), columns), ids)


def _told(columns: Iterable[_Values]) -> list[_Column]:
    """What is the same is told once; equal is not enough: `0` equals `0.0` and `False`."""
    return [
        (True, column[0]) if all(map(is_, column, repeat(column[0]))) else (False, column)
        for column in columns
    ]


def _values(columns: Iterable[_Column]) -> list[Iterable[Any]]:
    return [repeat(value) if alike else value for alike, value in columns]
