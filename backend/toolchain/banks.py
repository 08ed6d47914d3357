"""A model of LDS banks: how many times the cycles of a conflict-free access a pattern takes.

A bank is four bytes wide and gives one word a cycle; lanes that want the same word share it. An
access of 16 bytes by 64 lanes goes in eight phases of eight lanes, for reads not in order (AMD,
"Understanding AMD GPU LDS and Bank Conflicts", documentation of Composable Kernel). Of narrower
accesses and of waves of 32 lanes nothing is published: so many lanes in order are taken as move 128
bytes.
"""

from __future__ import annotations

import ctypes
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from backend.toolchain.loader import Library

BANK_BYTES = 4
_READ_PHASES = tuple(
    tuple(range(first, first + 4)) + tuple(range(second, second + 4))
    for half in (0, 32)
    for first, second in (
        (half, half + 20),
        (half + 4, half + 16),
        (half + 8, half + 28),
        (half + 12, half + 24),
    )
)


@dataclass(frozen=True, slots=True)
class Access:
    """A vector that one thread of a block reads from LDS or writes there; in bytes."""

    thread: int
    offset: int
    size: int
    write: bool


class _Record(ctypes.Structure):
    """As `rt_cpu::Access`."""

    _fields_ = [(name, ctypes.c_uint32) for name in ("thread", "offset", "size", "write")]


def traced(library: Library) -> tuple[Access, ...]:
    """What the library recorded, which was compiled for the CPU with RT_TRACE_LDS.

    Raises LoadError where it was not.
    """
    entry = library.entry("rocm_tui_lds_trace", [ctypes.POINTER(ctypes.c_uint32)])
    entry.restype = ctypes.POINTER(_Record)  # type: ignore[attr-defined]
    count = ctypes.c_uint32(0)
    records: ctypes.Array[_Record] = entry(ctypes.byref(count))  # type: ignore[assignment]
    return tuple(
        Access(record.thread, record.offset, record.size, bool(record.write))
        for record in (records[at] for at in range(count.value))
    )


@dataclass(frozen=True, slots=True)
class Conflicts:
    """Cycles over those without a conflict: 1.0 is none. None where nothing was accessed."""

    reads: float | None
    writes: float | None


def conflicts(accesses: Iterable[Access], wave: int = 64, banks: int = 32) -> Conflicts:
    """Of a block's accesses; those of a wave's lanes go together where they are one instruction."""
    cycles, ideal = Counter[bool](), Counter[bool]()
    for lanes in _instructions(accesses, wave):
        write = next(iter(lanes.values())).write
        for phase in _phases(next(iter(lanes.values())).size, write, wave, banks):
            taken = [lanes[lane] for lane in phase if lane in lanes]
            if taken:
                cycles[write] += _cycles(taken, banks)
                ideal[write] += 1

    def ratio(write: bool) -> float | None:
        return cycles[write] / ideal[write] if ideal[write] else None

    return Conflicts(ratio(False), ratio(True))


def _instructions(accesses: Iterable[Access], wave: int) -> Iterator[dict[int, Access]]:
    """The n-th access of each lane of a wave: all run the same code. By lane."""
    counts = Counter[int]()
    together: dict[tuple[int, int, int, bool], dict[int, Access]] = defaultdict(dict)
    for access in accesses:
        key = (access.thread // wave, counts[access.thread], access.size, access.write)
        counts[access.thread] += 1
        together[key][access.thread % wave] = access
    yield from together.values()


def _phases(size: int, write: bool, wave: int, banks: int) -> Sequence[Sequence[int]]:
    if size == 16 and wave == 64 and not write:
        return _READ_PHASES
    lanes = min(wave, max(1, 32 * BANK_BYTES // max(size, BANK_BYTES)))
    return [range(first, first + lanes) for first in range(0, wave, lanes)]


def _cycles(lanes: Sequence[Access], banks: int) -> int:
    """The most different words that one bank has to give."""
    words = {
        word
        for access in lanes
        for word in range(
            access.offset // BANK_BYTES, -(-(access.offset + access.size) // BANK_BYTES)
        )
    }
    return max(Counter(word % banks for word in words).values())
