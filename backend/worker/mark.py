"""Which choice a worker is at: memory that the parent shares, and reads when the worker is dead.

A message over the pipe before each sample would wake the parent up, which disturbs what is being
measured. Knows no torch: both sides import it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NoReturn, get_args

from backend.worker.protocol import Arguments, BadJob

SIZE = 1024
"""Bytes. The hash of a choice takes about a hundred."""

SPOILED = 86
"""The exit code of a worker that ended itself because of the choice that it was at."""

Doing = Literal["compiling", "running", "timing"]
"""`running` is a few calls, `timing` as many as Inductor wants to make."""


@dataclass(frozen=True, slots=True)
class Place:
    """The `count`th mark: the choice with this hash is being compiled, run or timed. `why` is what
    the worker found wrong with it, if that made it end itself."""

    doing: Doing
    count: int
    hash: str
    why: str = ""


class Mark:
    """The worker's side; without a descriptor nobody looks."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._memory = None if descriptor is None else mmap.mmap(descriptor, SIZE)
        self._count = 0
        self._text = ""

    @contextlib.contextmanager
    def at(self, doing: Doing, hash: str) -> Iterator[None]:
        """Say so while the block runs. The time that this takes is outside of it."""
        self._count += 1
        self._write(f"{doing} {self._count} {hash}")
        try:
            yield
        finally:
            self._write("")

    def end_worker(self, why: str) -> NoReturn:
        """The choice that we are at has spoiled this process for all others."""
        self._write(f"{self._text}\n{why}")
        os._exit(SPOILED)

    def _write(self, text: str) -> None:
        self._text = text
        if self._memory is not None:
            self._memory[:] = text.encode()[:SIZE].ljust(SIZE, b"\0")


_marks: dict[int, Mark] = {}


def mark_argument(arguments: Arguments) -> Mark:
    """From `mark`, a descriptor of `SIZE` bytes; optional. Raises BadJob."""
    descriptor = arguments.get("mark")
    if descriptor is None:
        return Mark()
    try:
        if descriptor not in _marks:
            _marks[descriptor] = Mark(descriptor)
            os.close(descriptor)  # nobody else shall write there
        return _marks[descriptor]
    except (OSError, TypeError, ValueError) as error:
        raise BadJob(f"the job's `mark` is no descriptor of {SIZE} bytes: {error}") from error


def place_of(data: bytes) -> Place | None:
    """What a mark says; None where it says nothing, or is half written."""
    doing, _, rest = data.rstrip(b"\0").decode(errors="replace").partition(" ")
    count, _, rest = rest.partition(" ")
    hash, _, why = rest.partition("\n")
    for known in get_args(Doing):
        if doing == known and count.isdecimal() and hash:
            return Place(known, int(count), hash, why)
    return None
