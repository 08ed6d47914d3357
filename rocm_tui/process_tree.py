"""A process with everything that it started: how much memory they take, and their end.

What a worker starts may have a session of its own (a compiler that is to be stopped as a whole), so
both the session and the line of parents count. Read from /proc; where there is none, nothing is
known and only the process group is ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60
"""Version 1 of cgroups has a number of about this size where there is no limit."""
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Process:
    """One running process; `resident` is in bytes and counts shared pages."""

    pid: int
    parent: int
    group: int
    session: int
    resident: int


def tree(pid: int) -> list[Process]:
    """The process `pid`, the others of its session, and all that descend from one of them."""
    everything = list(_processes())
    found = {
        process.pid: process for process in everything if pid in (process.pid, process.session)
    }
    growing = True
    while growing:
        young = [p for p in everything if p.parent in found and p.pid not in found]
        found |= {process.pid: process for process in young}
        growing = bool(young)
    return list(found.values())


def _processes() -> Iterator[Process]:
    page = os.sysconf("SC_PAGE_SIZE")
    try:
        names = [name for name in os.listdir(_PROC) if name.isdecimal()]  # noqa: PTH208
    except OSError:
        return
    for name in names:
        try:
            text = (_PROC / name / "stat").read_text(errors="replace")
        except OSError:
            continue  # it has ended
        # The name in parentheses may hold anything; see proc(5) for the fields behind it.
        fields = text.rpartition(")")[2].split()
        if len(fields) < 22 or fields[0] in "ZX":
            continue
        parent, group, session = (int(field) for field in fields[1:4])
        yield Process(int(name), parent, group, session, int(fields[21]) * page)


def resident(processes: Sequence[Process]) -> int:
    """Bytes of memory, where what several share counts several times."""
    return sum(process.resident for process in processes)


def proportional(processes: Sequence[Process]) -> int:
    """Bytes of memory, where each has its part of what is shared. Takes milliseconds a process."""
    total = 0
    for process in processes:
        try:
            lines = (_PROC / str(process.pid) / "smaps_rollup").read_text().splitlines()
        except OSError:
            total += process.resident
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) << 10
    return total


def end(pid: int) -> None:
    """Kill the process group `pid` and whatever else belongs to its `tree`, at once."""
    groups = {process.group for process in tree(pid)} - {os.getpgrp(), 0, 1}
    for group in (pid, *sorted(groups - {pid})):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def prefer_for_oom(pid: int) -> None:
    """Where memory runs out, let Linux end this process and its children first, not us."""
    with contextlib.suppress(OSError):
        (_PROC / str(pid) / "oom_score_adj").write_text("1000")


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
