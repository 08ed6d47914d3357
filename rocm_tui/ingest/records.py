"""What readers make of the bytes of a source: upserts, withdrawals, problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from backend.model.choice import Measurement
from backend.model.session import Fault, Session
from backend.model.tuning import Tuning


@dataclass(frozen=True, slots=True)
class Seen:
    """A tuning as its source tells it now; the same `uid` again replaces the earlier version.

    `uid` is `<source>#<n>` and stays the same while the source only grows.
    """

    uid: str
    tuning: Tuning


@dataclass(frozen=True, slots=True)
class Dropped:
    """The tuning of this `uid` is no longer in its source."""

    uid: str


@dataclass(frozen=True, slots=True)
class Gone:
    """Nothing that `source` said before holds any more: tunings, measurements and problems."""

    source: str


@dataclass(frozen=True, slots=True)
class SessionSeen:
    """The process that wrote a source; the same `session.id` again replaces it."""

    session: Session


@dataclass(frozen=True, slots=True)
class MeasurementSeen:
    """A source tells of a repeated measurement."""

    source: str
    measurement: Measurement


Record = Seen | Dropped | Gone | SessionSeen | MeasurementSeen | Fault

SourceState = Literal["waiting", "reading", "following", "unreadable"]
"""waiting: does not exist yet; unreadable: the last attempt failed, and why is a problem."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """How far a source has been read. `size` and `read` are bytes, `problems` a count.

    `format` is the name of one that is known, or `folder`; `empty` has nothing to tell it by yet,
    `` is unknown.
    """

    path: str
    format: str
    size: int
    read: int
    problems: int
    watched_by: Literal["inotify", "polling"]
    state: SourceState


def uid_of(source: str, n: int) -> str:
    """The uid of the `n`th tuning of `source`."""
    return f"{source}#{n}"


def source_of(uid: str) -> str:
    """The source that a uid belongs to."""
    return uid.rpartition("#")[0]
