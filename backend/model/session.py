"""The processes that tune. Times of the day are Unix seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # types only: a screen shows its first rows before all of these are loaded
    from backend.model.tuning import Tuning

CACHE_FILES = "cache"
"""The folder of Inductor's persistent cache, whose files are named by their system's hash."""

LATEST = 253_402_300_799.0
"""The end of the year 9999, Unix seconds; what is later no calendar can print."""


@dataclass(frozen=True, slots=True)
class Session:
    """One process that tuned something, as the header of its event log tells it.

    `backends` are those that it asked Inductor for (`TRITON`, `CK`, ...; empty: not told), and
    `absent` says for some of them, as `NAME: reason`, why they cannot appear there. `threads` is
    how many of them its kernels for the CPU are made for. `locked` tells that the writer of the log
    holds a lock of it as long as it lives. `process` tells this process from all others that its
    machine ever had (`processes/identity.py`); empty: not told.
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
