"""The end of what a worker prints, in memory of a fixed size that two processes share.

Whatever a worker prints, and wherever it writes, no disk fills: the memory cannot grow. Its first
bytes say how much was printed in all.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import tempfile

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


def printed(descriptor: int) -> int:
    """Bytes that were printed so far; 0 where somebody else wrote there. Raises OSError."""
    head = os.pread(descriptor, _HEAD, 0)
    total, other = (int.from_bytes(part, "little") for part in (head[:8], head[8:]))
    return total if total ^ other == _ALL else 0


def text(descriptor: int) -> str:
    """What is kept of it; a first line says how much is not. Raises OSError."""
    total, data = printed(descriptor), os.pread(descriptor, KEPT, _HEAD)
    if total <= KEPT:
        return (data[:total] if total else data.rstrip(b"\0")).decode(errors="replace")
    at = total % KEPT
    kept = (data[at:] + data[:at]).partition(b"\n")[2] or data[at:] + data[:at]
    return f"[{total - len(kept):,} bytes before this are not kept]\n" + kept.decode(
        errors="replace"
    )
