"""The processes that tune, and what each is doing. Times of the day are Unix seconds."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from backend.model.tuning import Tuning, Word

CACHE_FILES = "cache"
"""The folder of Inductor's persistent cache, whose files are named by their system's hash."""


@dataclass(frozen=True, slots=True)
class Session:
    """One process that tuned something, as the header of its event log tells it.

    `backends` are those that it asked Inductor for (`TRITON`, `CK`, ...; empty: not told), and
    `absent` says for some of them, as `NAME: reason`, why they cannot appear there. `threads` is
    how many of them its kernels for the CPU are made for. `locked` tells that the writer of the log
    holds a lock of it as long as it lives. `process` tells this process from all others that its
    machine ever had (`processes/tree.py`); empty: not told.
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
    threads: int | None = None
    locked: bool = False
    process: str = ""


def systems_of(tuning: Tuning, sessions: Mapping[str, Session]) -> frozenset[str]:
    """The hash of the system that tuned: that of its session, else those in the names of the cache
    files that it stands in. Empty where nothing tells."""
    session = sessions.get(tuning.session or "")
    if session is not None and session.system_hash:
        return frozenset((session.system_hash,))
    return _systems(tuning.sources)


@lru_cache(256)
def _systems(sources: tuple[str, ...]) -> frozenset[str]:
    """Of cache files, of which each has many tunings."""
    places = (source.rsplit("/", 2) for source in sources)
    return frozenset(place[-1] for place in places if place[-2:-1] == [CACHE_FILES])


@dataclass(frozen=True, slots=True)
class Fault:
    """Something in a source that could not be used: where and what, in one line."""

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
"""starting: runs, and nothing of torch was seen; importing: loads torch; running: compiles nothing;
compiling: torch compiles a graph; precompiling, tuning: choices of an op are compiled, timed;
waiting: another rank of the job is to choose; done: ended by itself; died: ended without saying so;
unknown: that it lives cannot be seen from here. Of another host, whose program may be a later one,
it may be any other word: something that a process does."""

LIVE: frozenset[ActivityState] = frozenset(
    ("starting", "importing", "running", "compiling", "precompiling", "tuning", "waiting")
)
_OVER = frozenset(typing.get_args(ActivityState)) - LIVE


@dataclass(frozen=True, slots=True)
class Activity:
    """`told` is the last that was heard; `state` is the same, unless the process has ended or may
    have. `since` and `ended` are Unix times. Of `op`, which is tuned, `done` of `total` choices are
    compiled or timed. `rank` is the one that is waited for, to choose for `op`. `status` is the
    exit code, or minus the signal, where somebody saw it.
    """

    state: Word
    told: Word
    since: float | None = None
    op: str = ""
    done: int = 0
    total: int = 0
    ended: float | None = None
    status: int | None = None
    rank: int | None = None

    @property
    def lives(self) -> bool:
        """Whether the process runs, as far as was seen."""
        return self.state not in _OVER
