"""How much memory a process takes with everything that it started, and how much there is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from backend.worker.tree import Process

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60
"""Version 1 of cgroups has a number of about this size where there is no limit."""
GIB = 1 << 30


def resident(processes: Sequence[Process]) -> int:
    """Bytes of memory, where what several share counts several times."""
    return sum(process.resident for process in processes)


def proportional(processes: Sequence[Process]) -> int:
    """Bytes of memory, where each has its part of what is shared. Takes milliseconds a process."""
    total = 0
    for process in processes:
        try:
            lines = (_PROC / str(process.pid) / "smaps_rollup").read_text().splitlines()
        except PermissionError:
            total += process.resident
            continue
        except OSError:
            continue  # it has ended
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) << 10
    return total


def memory_of_machine() -> int | None:
    """Bytes of memory that we and our workers can have: the machine's, or our cgroup's limit."""
    limits = [*_limits_of_cgroup()]
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = (_PROC / "meminfo").read_text().splitlines()
        limits.append(next(int(x.split()[1]) << 10 for x in lines if x.startswith("MemTotal:")))
    return min(limits, default=None)


def _limits_of_cgroup() -> Iterator[int]:
    """The limits of our cgroup and of those around it, of both versions."""
    try:
        lines = (_PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root, name = _CGROUPS, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = _CGROUPS / "memory", "memory.limit_in_bytes"
        else:
            continue
        inner = Path(path.lstrip("/"))
        for folder in (inner, *inner.parents):
            with contextlib.suppress(OSError, ValueError):
                limit = int((root / folder / name).read_text())  # "max" is no number
                if 0 < limit < _NO_LIMIT:
                    yield limit


def gib(size: int) -> str:
    """Bytes as `18.2 GiB`."""
    return f"{size / GIB:.1f} GiB"
