"""Fixed-size memory that a worker shares with its parent, readable after the worker's death.

A `Ring` holds the end of the worker's output. It cannot grow, so no amount of output fills a disk.
Its first bytes count all bytes printed.

A `ChoiceMark` records the worker's current choice. A pipe message before each sample would wake the
parent up and disturb the measurement. Imported by both sides, so without torch.
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
"""The number of bytes kept from the end of the output."""
_HEAD = 16
_ALL = (1 << 64) - 1


def fixed_memory(name: str, size: int) -> int:
    """Return a descriptor of zeroed memory that can be written and mapped, but not resized."""
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
    """Return a descriptor for `Ring`; bytes written to it directly become the first kept output."""
    descriptor = fixed_memory("rocm-tui-log", _HEAD + KEPT)
    os.lseek(descriptor, _HEAD, os.SEEK_SET)
    return descriptor


def is_ring(descriptor: int) -> bool:
    try:
        return os.fstat(descriptor).st_size == _HEAD + KEPT
    except OSError:
        return False


class Ring:
    """The writing side: keeps the last `KEPT` bytes."""

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
    """Return the number of bytes printed so far; 0 if the memory is corrupt. Raises OSError."""
    head = os.pread(descriptor, _HEAD, 0)
    total, other = (int.from_bytes(part, "little") for part in (head[:8], head[8:]))
    return total if total ^ other == _ALL else 0


def printed_text(descriptor: int, since: int = 0) -> str:
    """Return the kept output from byte `since` on, after a count of lost bytes. Raises OSError."""
    total, data = printed_bytes(descriptor), os.pread(descriptor, KEPT, _HEAD)
    if total <= KEPT:
        data = data[:total] if total else data.rstrip(b"\0")
        return data[since:].decode(errors="replace")
    at, length = total % KEPT, max(0, total - since)
    data = data[at:] + data[:at]
    if length <= KEPT:
        return data[KEPT - length :].decode(errors="replace")
    kept = data.partition(b"\n")[2] or data
    return f"[{length - len(kept):,} bytes before this are not kept]\n" + kept.decode(
        errors="replace"
    )


MARK_SIZE = 1024
"""Bytes; the hash of a choice takes about a hundred."""

SPOILED = 86
"""The exit code of a worker that ended itself because of its current choice."""

Doing = Literal["compiling", "running", "timing"]
"""`running` is a few calls, `timing` as many as Inductor's benchmark makes."""


@dataclass(frozen=True, slots=True)
class ChoiceInProgress:
    """The `count`th mark: the choice with this hash is being compiled, run or timed. `why` is the
    reason if the worker ended itself for that reason."""

    doing: Doing
    count: int
    hash: str
    why: str = ""


class ChoiceMark:
    """The worker's side; inactive without a descriptor. `named` maps a hash to the parent's."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._memory = None if descriptor is None else mmap.mmap(descriptor, MARK_SIZE)
        self._count = 0
        self._text = ""
        self.named: Callable[[str], str] = str

    @contextlib.contextmanager
    def at(self, doing: Doing, hash: str) -> Iterator[None]:
        """Mark the choice while the block runs. The cost of marking is outside of the block."""
        self._count += 1
        self._write(f"{doing} {self._count} {self.named(hash)}")
        try:
            yield
        finally:
            self._write("")

    def end_worker(self, why: str) -> NoReturn:
        """End this process, which the current choice has spoiled for all others."""
        self._write(f"{self._text}\n{why}")
        os._exit(SPOILED)

    def _write(self, text: str) -> None:
        self._text = text
        if self._memory is not None:
            self._memory[:] = text.encode()[:MARK_SIZE].ljust(MARK_SIZE, b"\0")


def place_of(data: bytes) -> ChoiceInProgress | None:
    """Parse a mark; None if it is empty or half written."""
    doing, _, rest = data.rstrip(b"\0").decode(errors="replace").partition(" ")
    count, _, rest = rest.partition(" ")
    hash, _, why = rest.partition("\n")
    for step in get_args(Doing):
        if doing == step and count.isdecimal() and hash:
            return ChoiceInProgress(step, int(count), hash, why)
    return None


class SharedMark:
    """The parent's side of a worker's mark."""

    def __init__(self) -> None:
        self.descriptor = fixed_memory("rocm-tui-mark", MARK_SIZE)
        """The descriptor for the worker to inherit."""
        self._open = True
        self._place: ChoiceInProgress | None = None
        self._since = 0.0
        self.clear()

    def clear(self) -> None:
        os.pwrite(self.descriptor, bytes(MARK_SIZE), 0)

    def place(self) -> ChoiceInProgress | None:
        """The worker's current or last choice; None once this is closed."""
        return place_of(os.pread(self.descriptor, MARK_SIZE, 0)) if self._open else None

    def running_for(self) -> tuple[float, bool]:
        """Return the seconds that a choice has been seen running, and whether it is timed at
        length."""
        place, now = self.place(), time.monotonic()
        if place is None or place.doing == "compiling":
            self._place = None
            return 0.0, False
        if place != self._place:
            self._place, self._since = place, now
        return now - self._since, place.doing == "timing"

    def skip(self, seconds: float) -> None:
        """Leave this time, in which nothing ran, out of `running_for`."""
        self._since += seconds

    def close(self) -> None:
        if self._open:
            self._open = False
            with contextlib.suppress(OSError):
                os.close(self.descriptor)
