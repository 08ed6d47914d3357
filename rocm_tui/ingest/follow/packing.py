"""Records as bytes for another process of ours. Tunings go column by column: what all of them say
alike is told once, and slots are filled without calling the types. That takes a third of what
`pickle` takes for one record after another."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import cast

from backend.model.tuning import Tuning
from rocm_tui.ingest.packed import (
    CHOICES,
    SECONDS,
    TUNINGS,
    Column,
    PackedTuning,
    Table,
    TuningColumns,
    Values,
    joined,
    told,
    values,
)
from rocm_tui.ingest.records import Record, Seen, SourceStatus

Message = tuple[list[Record], tuple[SourceStatus, ...] | None]
"""The first without records tells that all that was there at the start has come."""

_Columns = tuple[int, list[Column], list[int], list[Column], list[Column]]
"""How many tunings, their columns, how many choices each has, the columns of those, and of the
seconds."""
_Run = tuple[Values, Values, _Columns]
"""Uids and ids of tunings in a row, and the columns of these."""


_SEEN = Table(Seen)
_OWN = TUNINGS.place("choices"), TUNINGS.place("seconds")
"""The fields that go by tables of their own."""


_ALONE = "alone"
"""The kind of tunings that are packed one by one."""


def packed(message: Message) -> bytes:
    """The message as bytes, of which `unpacked` makes it again."""
    records, statuses = message
    runs = [
        _run(cast("list[Seen]", list(each)), kind) if kind else list(each)
        for kind, each in groupby(records, _kind)
    ]
    return pickle.dumps((runs, statuses), pickle.HIGHEST_PROTOCOL)


def unpacked(data: bytes) -> Message:
    """The message that was `packed`."""
    runs, statuses = pickle.loads(data)
    parts = (run if isinstance(run, list) else _seen(run) for run in runs)
    return list(chain.from_iterable(parts)), statuses


def columns_of(tunings: Sequence[Tuning]) -> tuple[list[int], list[_Columns]]:
    """Tunings in any order as columns, those that are packed together in a row; and the places
    they had."""
    homes: dict[TuningColumns | str, list[tuple[int, int]]] = {}
    for at, tuning in enumerate(tunings):
        columns, place = tuning.place if isinstance(tuning, PackedTuning) else (None, 0)
        homes.setdefault(tuning.state if columns is None else columns, []).append((place, at))
    order = [at for each in homes.values() for _, at in sorted(each)]
    runs = groupby([tunings[at] for at in order], _home)
    return order, [_columns(list(each), kind) for kind, each in runs]


def tunings_of(order: Sequence[int], runs: Iterable[_Columns]) -> list[Tuning]:
    """The tunings of which `columns_of` made these."""
    made = [(at, one) for at, one in zip(order, chain.from_iterable(map(_made, runs)), strict=True)]
    made.sort(key=itemgetter(0))
    return [one for _, one in made]


def _kind(record: Record) -> TuningColumns | str:
    """Where its tuning is packed; empty of what is none."""
    return _home(record.tuning) if type(record) is Seen else ""


def _home(tuning: Tuning) -> TuningColumns | str:
    """Where it is packed, if it is, else how far it is. One that runs still lacks times: beside
    those that are done their columns would not be numbers alone."""
    columns = tuning.place[0] if isinstance(tuning, PackedTuning) else None
    return tuning.state if columns is None else _ALONE if columns.alone else columns


def _run(records: Sequence[Seen], kind: TuningColumns | str) -> _Run:
    tunings = [record.tuning for record in records]
    uids, ids = [record.uid for record in records], [tuning.id for tuning in tunings]
    return uids, ids, _columns(tunings, kind)


def _columns(tunings: Sequence[Tuning], kind: TuningColumns | str) -> _Columns:
    counts, choices, spent = _apart(tunings, kind)
    return len(tunings), told(TUNINGS.columns(tunings)), counts, choices, spent


def _apart(
    tunings: Sequence[Tuning], kind: TuningColumns | str
) -> tuple[list[int], list[Column], list[Column]]:
    """How many choices each has, and the columns of all, and of the seconds: those they are packed
    in, if it has no others."""
    if isinstance(kind, TuningColumns):
        told_there = kind.told
        places = [cast(PackedTuning, tuning).place[1] for tuning in tunings]
        if places == list(range(len(told_there[0]))):
            return told_there
    if kind == _ALONE:
        return _joined([cast(PackedTuning, tuning).place[0] for tuning in tunings])
    every = [tuning.choices for tuning in tunings]
    spent = told(SECONDS.columns([tuning.seconds for tuning in tunings]))
    choices = told(CHOICES.columns(list(chain.from_iterable(every))))
    return list(map(len, every)), choices, spent


def _joined(
    tables: Sequence[TuningColumns | None],
) -> tuple[list[int], list[Column], list[Column]]:
    """Those of tunings that are packed one by one."""
    counts, choices, seconds = zip(*(table.told for table in tables if table), strict=True)
    each = [one for (one,) in counts]
    columns = [joined(column, each) for column in zip(*choices, strict=True)]
    return each, columns, [joined(column, [1] * len(each)) for column in zip(*seconds, strict=True)]


def _seen(run: _Run) -> Iterable[Seen]:
    uids, ids, columns = run
    return _SEEN.things(len(uids), (uids, _made(columns), ids))


def _made(run: _Columns) -> list[Tuning]:
    count, columns, counts, choices, seconds = run
    filled, at = values(columns), _OWN
    filled[at[0]], filled[at[1]] = TuningColumns(choices, counts, seconds).fields(count)
    return TUNINGS.things(count, filled, PackedTuning)
