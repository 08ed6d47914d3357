"""Memory of a fixed size that a worker shares with its parent, to be read when the worker is dead.

A `Ring` holds the end of what a worker prints. Whatever that is, and wherever it writes, no disk
fills: the memory cannot grow. Its first bytes say how much was printed in all.

A `ChoiceMark` says which choice a worker is at. A message over the pipe before each sample would
wake the parent up, which disturbs what is being measured. Knows no torch: both sides import it.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NoReturn, get_args

KEPT = 1 << 18
"""Bytes of the end that are kept."""
_HEAD = 16
_ALL = (1 << 64) - 1


def fixed_memory(name: str, size: int) -> int:
    """A descriptor of zeros that can be written and mapped, but not made larger or smaller."""
    if sys.platform != "linux":
        with tempfile.TemporaryFile() as file:
            file.truncate(size)
            return os.dup(file.fileno())
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    seals = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def new_ring() -> int:
    """A descriptor for `Ring`; what is simply written to it is the beginning of what is kept."""
    descriptor = fixed_memory("rocm-tui-log", _HEAD + KEPT)
    os.lseek(descriptor, _HEAD, os.SEEK_SET)
    return descriptor


def is_ring(descriptor: int) -> bool:
    try:
        return os.fstat(descriptor).st_size == _HEAD + KEPT
    except OSError:
        return False


class Ring:
    """The side that writes: the last `KEPT` bytes stay."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._total = max(0, os.lseek(descriptor, 0, os.SEEK_CUR) - _HEAD)

    def add(self, data: bytes) -> None:
        end, data = self._total + len(data), data[-KEPT:]
        at = (end - len(data)) % KEPT
        first = min(len(data), KEPT - at)
        with contextlib.suppress(OSError):
            os.pwrite(self._descriptor, data[:first], _HEAD + at)
            os.pwrite(self._descriptor, data[first:], _HEAD)
            both = end.to_bytes(8, "little") + (end ^ _ALL).to_bytes(8, "little")
            os.pwrite(self._descriptor, both, 0)
        self._total = end


def printed_bytes(descriptor: int) -> int:
    """Bytes that were printed so far; 0 where somebody else wrote there. Raises OSError."""
    head = os.pread(descriptor, _HEAD, 0)
    total, other = (int.from_bytes(part, "little") for part in (head[:8], head[8:]))
    return total if total ^ other == _ALL else 0


def printed_text(descriptor: int, since: int = 0) -> str:
    """What is kept of it, from its byte `since` on; a first line says how much is not. Raises
    OSError."""
    total, data = printed_bytes(descriptor), os.pread(descriptor, KEPT, _HEAD)
    if total <= KEPT:
        data = data[:total] if total else data.rstrip(b"\0")
        return data[since:].decode(errors="replace")
    at, wanted = total % KEPT, max(0, total - since)
    data = data[at:] + data[:at]
    if wanted <= KEPT:
        return data[KEPT - wanted :].decode(errors="replace")
    kept = data.partition(b"\n")[2] or data
    return f"[{wanted - len(kept):,} bytes before this are not kept]\n" + kept.decode(
        errors="replace"
    )


MARK_SIZE = 1024
"""Bytes. The hash of a choice takes about a hundred."""

SPOILED = 86
"""The exit code of a worker that ended itself because of the choice that it was at."""

Doing = Literal["compiling", "running", "timing"]
"""`running` is a few calls, `timing` as many as Inductor wants to make."""


@dataclass(frozen=True, slots=True)
class ChoiceInProgress:
    """The `count`th mark: the choice with this hash is being compiled, run or timed. `why` is what
    the worker found wrong with it, if that made it end itself."""

    doing: Doing
    count: int
    hash: str
    why: str = ""


class ChoiceMark:
    """The worker's side; without a descriptor nobody looks. `named` gives the hash by which the
    other side knows a choice."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._memory = None if descriptor is None else mmap.mmap(descriptor, MARK_SIZE)
        self._count = 0
        self._text = ""
        self.named: Callable[[str], str] = str

    @contextlib.contextmanager
    def at(self, doing: Doing, hash: str) -> Iterator[None]:
        """Say so while the block runs. The time that this takes is outside of it."""
        self._count += 1
        self._write(f"{doing} {self._count} {self.named(hash)}")
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
            self._memory[:] = text.encode()[:MARK_SIZE].ljust(MARK_SIZE, b"\0")


def place_of(data: bytes) -> ChoiceInProgress | None:
    """What a mark says; None where it says nothing, or is half written."""
    doing, _, rest = data.rstrip(b"\0").decode(errors="replace").partition(" ")
    count, _, rest = rest.partition(" ")
    hash, _, why = rest.partition("\n")
    for known in get_args(Doing):
        if doing == known and count.isdecimal() and hash:
            return ChoiceInProgress(known, int(count), hash, why)
    return None


class SharedMark:
    """The parent's side of a worker's mark."""

    def __init__(self) -> None:
        self.descriptor = fixed_memory("rocm-tui-mark", MARK_SIZE)
        """What the worker is to inherit."""
        self._open = True
        self._place: ChoiceInProgress | None = None
        self._since = 0.0
        self.clear()

    def clear(self) -> None:
        os.pwrite(self.descriptor, bytes(MARK_SIZE), 0)

    def place(self) -> ChoiceInProgress | None:
        """Where the worker is, or was when it died; None once this is closed."""
        return place_of(os.pread(self.descriptor, MARK_SIZE, 0)) if self._open else None

    def running_for(self) -> tuple[float, bool]:
        """Seconds since it was first seen that a choice runs which has not ended since, and whether
        it is timed at length."""
        place, now = self.place(), time.monotonic()
        if place is None or place.doing == "compiling":
            self._place = None
            return 0.0, False
        if place != self._place:
            self._place, self._since = place, now
        return now - self._since, place.doing == "timing"

    def close(self) -> None:
        if self._open:
            self._open = False
            with contextlib.suppress(OSError):
                os.close(self.descriptor)
