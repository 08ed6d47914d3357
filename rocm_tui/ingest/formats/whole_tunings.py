"""Tunings that a log tells all at once: most of those in a log that is there.

They are made many at a time, column by column, and their choices stay columns: a type that is
called for each choice takes four times as long as all else, and a screen asks for few of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple

from backend.model.events import ChoiceSelected
from backend.model.session import Session
from backend.model.tuning import Tuning
from backend.wire.events import WholeTuning
from rocm_tui.ingest.devices import hashes_of_log
from rocm_tui.ingest.formats.tuning_events import TuningFold, by_hash, finite, given
from rocm_tui.ingest.packed import (
    CHOICES,
    SECONDS,
    TUNINGS,
    Column,
    PackedTuning,
    TuningColumns,
    told,
    values,
)

_Row = tuple[str | None, str, float, str]
"""Name, hash, milliseconds and description of a choice; without a time it comes last."""
_HASH = itemgetter(1)
"""Of an offer."""
_MS = itemgetter(2)
_NOTHING = given("", "")


class Whole(NamedTuple):
    """A tuning of `session` that was told all at once."""

    told: WholeTuning
    session: Session | None
    sources: tuple[str, ...]

    def fold(self) -> TuningFold:
        """For what is told of it still."""
        told, start = self.told, self.told.start
        fold = TuningFold.begun(
            start.event, by_hash(start), len(start.offers), self.session, self.sources
        )
        fold.outcomes.update(told.timed)
        fold.state, fold.compiled, fold.timed = "done", told.compiled, told.timings
        fold.selected = ChoiceSelected(
            start.n,
            told.when,
            told.selected,
            told.by,
            told.benchmark_seconds,
            told.precompile_seconds,
        )
        return fold


def tunings(wholes: Sequence[Whole]) -> list[Tuning]:
    """What their folds result in, without the detour."""
    if not wholes:
        return []
    ends = [whole.told for whole in wholes]
    starts = [end.start for end in ends]
    sessions = [whole.session for whole in wholes]
    told_of = [given(start.op, text) if (text := start.options) else _NOTHING for start in starts]
    options, calls = zip(*told_of, strict=True)
    rows = list(map(_rows, ends))
    spent = told(
        [
            [finite(end.benchmark_seconds) for end in ends],
            [finite(end.precompile_seconds) for end in ends],
        ]
    )
    packed_in = TuningColumns(
        _choices(list(chain.from_iterable(rows))),
        list(map(len, rows)),
        SECONDS.filled(dict(zip(("benchmark", "precompile"), spent, strict=True))),
    )
    in_choices, in_seconds = packed_in.fields(len(wholes))
    columns: dict[str, Any] = {
        "op": [start.op for start in starts],
        "shapes": [start.shapes for start in starts],
        "strides": [start.strides for start in starts],
        "dtypes": [start.dtypes for start in starts],
        "device": [start.device for start in starts],
        "precision": [start.precision for start in starts],
        "inputs_key": [start.inputs for start in starts],
        "threads": [session.threads if session else None for session in sessions],
        "options": options,
        "call": calls,
        "choices": in_choices,
        "num_choices": [len(start.offers) for start in starts],
        "seconds": in_seconds,
        "compiled": [end.compiled for end in ends],
        "timed": [end.timings for end in ends],
        "selected": [end.selected for end in ends],
        "selected_by": [end.by for end in ends],
        "rank": [session.rank if session else None for session in sessions],
        "session": [session.id if session else None for session in sessions],
        "when": [finite(start.when) for start in starts],
        "sources": [whole.sources for whole in wholes],
        "kernel": [start.kernel for start in starts],
        "code": [start.source for start in starts],
        "device_index": _devices(wholes),
    }
    return TUNINGS.things(len(wholes), values(TUNINGS.filled(_apart(columns))), PackedTuning)


def _devices(wholes: Sequence[Whole]) -> list[int | None]:
    """The device of each tuning, as the kernels in the cache dir of its log show."""
    logs = {whole.sources[0] for whole in wholes if whole.sources}
    known = {log: hashes for log in logs if (hashes := hashes_of_log(log)) is not None}
    if not known:
        return [None] * len(wholes)
    return [
        hashes.device(map(_HASH, whole.told.start.offers))
        if whole.sources and (hashes := known.get(whole.sources[0]))
        else None
        for whole in wholes
    ]


def _rows(told: WholeTuning) -> list[_Row]:
    """Its choices, the fastest first."""
    ends, offers = told.timed, by_hash(told.start)
    rows: list[_Row] = [
        (name, key, ends.get(key, inf), text) for name, key, text in offers.values()
    ]
    if not ends.keys() <= offers.keys():
        rows += [(None, key, ms, "") for key, ms in ends.items() if key not in offers]
    rows.sort(key=_MS)
    return rows


def _choices(rows: Sequence[_Row]) -> list[Column]:
    names, keys, ms, texts = zip(*rows, strict=True)
    times = [None if one == inf else one for one in ms] if inf in ms else ms
    every = told([names, keys, times, texts])
    return CHOICES.filled(dict(zip(("name", "hash", "ms", "description"), every, strict=True)))


def _apart(columns: dict[str, Any]) -> dict[str, Column]:
    return {name: (False, column) for name, column in columns.items()}
