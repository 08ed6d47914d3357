"""Processes that tune, and their activity. Times are Unix seconds."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from backend.model.tuning import Tuning, Word

CACHE_FILES = "cache"
"""The folder of Inductor's persistent cache, whose files are named by system hash."""


@dataclass(frozen=True, slots=True)
class Session:
    """A process that tuned something, from the header of its event log.

    `backends` are the backends configured in Inductor (`TRITON`, `CK`, ...; empty if unknown);
    `absent` has `NAME: reason` for backends that cannot appear there. `modes` are the unusual ways
    of autotuning that were on (`tuning.modes`); None if that was not recorded. `threads` is the
    thread count that its CPU kernels are generated for. `locked` is True if the log's writer holds
    a lock on the log for its whole life. `process` identifies the process among all that its
    machine ever had (`processes/tree.py`); empty if unknown.
    """

    id: str
    host: str = ""
    pid: int = 0
    rank: int | None = None
    argv: tuple[str, ...] = ()
    python: str = ""
    torch: str = ""
    device: str | None = None
    arch: str | None = None
    compute_units: int | None = None
    cache_dir: str = ""
    system_hash: str | None = None
    started: float = 0.0
    backends: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    modes: tuple[str, ...] | None = None
    threads: int | None = None
    locked: bool = False
    process: str = ""


def systems_of(tuning: Tuning, sessions: Mapping[str, Session]) -> frozenset[str]:
    """Return the hashes of the system that tuned: its session's, else those in the names of its
    cache files; empty if unknown."""
    session = sessions.get(tuning.session or "")
    if session is not None and session.system_hash:
        return frozenset((session.system_hash,))
    return _systems(tuning.sources)


@lru_cache(256)
def _systems(sources: tuple[str, ...]) -> frozenset[str]:
    """Return the system hashes in the names of cache files, each of which has many tunings."""
    places = (source.rsplit("/", 2) for source in sources)
    return frozenset(place[-1] for place in places if place[-2:-1] == [CACHE_FILES])


@dataclass(frozen=True, slots=True)
class Fault:
    """A part of a source that could not be used: location and reason, in one line."""

    source: str
    what: str
    line: int | None = None


ActivityState = Literal[
    "starting",
    "importing",
    "running",
    "compiling",
    "precompiling",
    "tuning",
    "waiting",
    "done",
    "died",
    "unknown",
]
"""The state of a process. starting: runs, torch not yet seen; importing: loads torch; running:
compiles nothing; compiling: torch compiles a graph; precompiling, tuning: choices of an op are
compiled or timed; waiting: another rank of the job will choose; done: reported its end; died: ended
without a report; unknown: cannot be observed from here. A process of another host may run a later
version and report another word."""

LIVE: frozenset[ActivityState] = frozenset(
    ("starting", "importing", "running", "compiling", "precompiling", "tuning", "waiting")
)
_OVER = frozenset(typing.get_args(ActivityState)) - LIVE


@dataclass(frozen=True, slots=True)
class Activity:
    """`last_state` is the last reported state; `state` is the same unless the process has ended or
    may have. `since` and `ended` are Unix times. For the op being tuned, `op`, `done` of `total`
    choices are compiled or timed. `rank` is the rank that the process waits for. `status` is the
    exit code, or minus the signal, if a parent saw it."""

    state: Word
    last_state: Word
    since: float | None = None
    op: str = ""
    done: int = 0
    total: int = 0
    ended: float | None = None
    status: int | None = None
    rank: int | None = None

    @property
    def lives(self) -> bool:
        """Whether the process was running when last seen."""
        return self.state not in _OVER
