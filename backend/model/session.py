"""The processes that tune, and what in their files could not be used."""

from __future__ import annotations

from dataclasses import dataclass

LATEST = 253_402_300_799.0
"""The end of the year 9999, Unix seconds; what is later no calendar can print."""


@dataclass(frozen=True, slots=True)
class Session:
    """One process that tuned something, as the header of its event log tells it.

    `backends` are those that it asked Inductor for (`TRITON`, `CK`, ...; empty: not told), and
    `absent` says for some of them, as `NAME: reason`, why they cannot appear there. `threads` is
    how many of them its kernels for the CPU are made for. `locked` tells that the writer of the log
    holds a lock of it as long as it lives.
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


@dataclass(frozen=True, slots=True)
class Fault:
    """Something in a source that could not be used: where and what, in one line."""

    source: str
    what: str
    line: int | None = None
