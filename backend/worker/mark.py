"""Which choice a worker is at: memory that the parent shares, and reads when the worker is dead.

A message over the pipe before each sample would wake the parent up, which disturbs what is being
measured. Knows no torch: both sides import it.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from backend.worker.protocol import Arguments, BadJob

SIZE = 1024
"""Bytes. The hash of a choice takes about a hundred."""

Doing = Literal["compiling", "running"]


@dataclass(frozen=True, slots=True)
class Place:
    """The `count`th mark: the choice with this hash is being compiled, or run."""

    doing: Doing
    count: int
    hash: str


class Mark:
    """The worker's side; without a descriptor nobody looks."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._memory = None if descriptor is None else mmap.mmap(descriptor, SIZE)
        self._count = 0

    @contextlib.contextmanager
    def at(self, doing: Doing, hash: str) -> Iterator[None]:
        """Say so while the block runs. The time that this takes is outside of it."""
        self._count += 1
        self._write(f"{doing} {self._count} {hash}")
        try:
            yield
        finally:
            self._write("")

    def _write(self, text: str) -> None:
        if self._memory is not None:
            self._memory[:] = text.encode()[:SIZE].ljust(SIZE, b"\0")


def mark_argument(arguments: Arguments) -> Mark:
    """From `mark`, a descriptor of `SIZE` bytes; optional. Raises BadJob."""
    descriptor = arguments.get("mark")
    if descriptor is None:
        return Mark()
    try:
        return Mark(descriptor)
    except (OSError, TypeError, ValueError) as error:
        raise BadJob(f"the job's `mark` is no descriptor of {SIZE} bytes: {error}") from error


def place_of(data: bytes) -> Place | None:
    """What a mark says; None where it says nothing, or is half written."""
    doing, _, rest = data.rstrip(b"\0").decode(errors="replace").partition(" ")
    count, _, hash = rest.partition(" ")
    for known in get_args(Doing):
        if doing == known and count.isdecimal() and hash:
            return Place(known, int(count), hash)
    return None
