"""What `rocm-tui tail` tells of the sources that it reads: one JSON object a line, typed by the
codec, `{"is": NAME, ...members}`. Nothing of it is run or unpickled, and no name of the far side
stands for one of this side: each lies below `ssh://host`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, cast

from backend.model.activity import Activity
from backend.model.choice import Choice, Measurement
from backend.model.graph import Graph, GraphTimes
from backend.model.options import of_text, text_of
from backend.model.problem import Shape
from backend.model.session import Fault, Session
from backend.model.trial import Trial
from backend.model.tuning import Seconds, State, TableEntry, Tuning
from backend.model.word import Word
from backend.wire.codec import NAMES, WireError, dumps, loads, to_json
from backend.wire.lines import Kinds, in_line
from rocm_tui.ingest.records import (
    ActivitySeen,
    Dropped,
    Gone,
    GraphSeen,
    MeasurementSeen,
    Record,
    Seen,
    SessionSeen,
    SourceStatus,
    TrialSeen,
    Unread,
)

PROTOCOL = 1
BEAT = 5.0
"""Seconds between two signs of life, of either side."""
LONGEST = 8 << 20
"""Bytes of a line: a tuning of 40,000 choices."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The first line: who speaks. `protocol` differs where the two programs do not fit together."""

    version: str
    host: str = ""
    protocol: int = PROTOCOL


@dataclass(frozen=True, slots=True)
class Settled:
    """All that was there at the start has been told."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The far side lives. How far sources have been read, of those where that has changed; and
    those that are none any more."""

    sources: tuple[SourceStatus, ...] = ()
    gone: tuple[str, ...] = ()


_Choice = tuple[
    str | None,
    str | None,
    float | None,
    str,
    bool,
    str | None,
    bool,
    tuple[float, float] | None,
    str | None,
    str | None,
    str | None,
    bool,
]
"""The fields of a `Choice`, in their order."""


@dataclass(frozen=True, slots=True)
class ToldTuning:
    """A `Seen`, its tuning's fields beside its own; `options` as text."""

    uid: str
    op: str
    id: str = ""
    shapes: tuple[Shape, ...] = ()
    strides: tuple[Shape, ...] = ()
    dtypes: tuple[str, ...] = ()
    device: str | None = None
    precision: str | None = None
    inputs_key: str | None = None
    dims: Shape = ()
    threads: int | None = None
    options: str = ""
    call: str = ""
    choices: tuple[_Choice, ...] = ()
    num_choices: int | None = None
    seconds: Seconds = field(default_factory=Seconds)
    state: State = "done"
    compiled: int = 0
    timed: int = 0
    selected: str | None = None
    selected_by: Word | None = None
    rank: int | None = None
    session: str | None = None
    when: float | None = None
    sources: tuple[str, ...] = ()
    kernel: str = ""
    code: str = ""
    entry: TableEntry | None = None
    device_index: int | None = None


Told = Record | Hello | Settled | Beat

_KINDS: Kinds = {
    "tuning": ToldTuning,
    "dropped": Dropped,
    "gone": Gone,
    "session": SessionSeen,
    "activity": ActivitySeen,
    "measurement": MeasurementSeen,
    "graph": GraphSeen,
    "trial": TrialSeen,
    "unread": Unread,
    "fault": Fault,
    "hello": Hello,
    "settled": Settled,
    "beat": Beat,
}
_NAME = {kind: name for name, kind in _KINDS.items()}
_TYPES = {k.__name__: k for k in (Activity, Graph, GraphTimes, Measurement, Session, Trial)}
NAMES.update({kind: _TYPES for kind in _KINDS.values()})  # noqa: C420 - and RUF024
_ALIKE = [name for name in ToldTuning.__slots__ if name not in ("uid", "id", "options", "choices")]
_CHOICE = Choice.__slots__


@cache
def _defaults() -> Mapping[str, Any]:
    """What needs not be told of a tuning."""
    return to_json(ToldTuning("", ""))


def line_of(told: Told) -> bytes:
    """As a line, with its end. Raises KeyError for a record that is this side's own."""
    if isinstance(told, Seen):
        members = {k: v for k, v in _tuning(told).items() if v != _defaults().get(k)}
    else:
        members = to_json(told)
    kind = ToldTuning if isinstance(told, Seen) else type(told)
    return dumps({"is": _NAME[kind], **members}).encode() + b"\n"


def told_in(line: bytes) -> Told:
    """Raises WireError for what is no such line."""
    told = in_line(line, _KINDS)
    return _seen(told) if isinstance(told, ToldTuning) else told


def is_told(line: bytes) -> bool:
    """Whether it may be a line of a later version, though `told_in` cannot read it."""
    try:
        words = loads(line)
    except WireError:
        return False
    return isinstance(words, dict) and isinstance(words.get("is"), str)


def _tuning(seen: Seen) -> dict[str, Any]:
    tuning = seen.tuning
    members = {name: getattr(tuning, name) for name in _ALIKE}
    members["choices"] = [[getattr(c, name) for name in _CHOICE] for c in tuning.choices]
    members["seconds"] = to_json(tuning.seconds)
    members["entry"] = to_json(tuning.entry) if tuning.entry else None
    return {"uid": seen.uid, "id": seen.id, "options": text_of(tuning.options), **members}


def _seen(told: ToldTuning) -> Seen:
    members = {name: getattr(told, name) for name in _ALIKE}
    choices = tuple([Choice(*row) for row in told.choices])
    tuning = Tuning(**members, options=of_text(told.options), choices=choices)
    return Seen(told.uid, tuning, told.id)


def placed(record: Record, at: Callable[[str], str]) -> Record:
    """The record with all that it names there named from here. What the far machine calls by a
    path is never taken for a path of this one."""
    if isinstance(record, Seen):
        tuning = record.tuning
        sources = tuple(map(at, tuning.sources)) or (at(record.uid.rpartition("#")[0]),)
        code = at(tuning.code) if tuning.code else ""
        return replace(
            record, uid=at(record.uid), tuning=replace(tuning, sources=sources, code=code)
        )
    if isinstance(record, Dropped):
        return Dropped(at(record.uid))
    if isinstance(record, SessionSeen):
        session = record.session
        root = at(session.cache_dir) if session.cache_dir else ""
        return SessionSeen(replace(session, cache_dir=root))
    named: Any = record  # each of the others has a source
    return cast(Record, replace(named, source=at(named.source)))
