"""What a choice must leave as it found it, since others run in the same process after it.

What can be put back is put back. What cannot ends the worker, and the choice is to blame: a new
worker runs the others.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator

from backend.processes import tree
from backend.processes.shared import Mark

_kept: dict[int, tuple[int, int]] = {}
"""Descriptors that the worker cannot do without, and what they are."""
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
_SECONDS = 5.0
"""For ending what a choice left running."""


def keep(*descriptors: int) -> None:
    """A choice that closes one of these ends its worker."""
    _kept.update({number: _what(number) for number in descriptors})


class LeftRunning(RuntimeError):
    """A choice left processes behind, which were ended."""


class House:
    """Looks after this process; `mark` knows which choice runs in it."""

    def __init__(self, mark: Mark) -> None:
        self._mark = mark
        self._pid = os.getpid()
        self._folder = os.getcwd()  # noqa: PTH109
        self._limits = {which: resource.getrlimit(which) for which in _LIMITS}

    def tidy(self) -> None:
        """After each visit of a choice. Returns in this process only."""
        self._only_once()
        if any(_what(number) != what for number, what in _kept.items()):
            self._mark.end_worker("it closed the worker's descriptors")
        for timer in _TIMERS:
            signal.setitimer(timer, 0)
        try:
            self._restore()
        except (OSError, ValueError) as error:
            self._mark.end_worker(f"it changed the worker's process for good: {error}")

    def _restore(self) -> None:
        try:
            moved = os.getcwd() != self._folder  # noqa: PTH109
        except FileNotFoundError:
            moved = True
        if moved:
            os.chdir(self._folder)
        for which, limit in self._limits.items():
            if resource.getrlimit(which) != limit:
                resource.setrlimit(which, limit)

    @contextlib.contextmanager
    def leaving_nobody(self) -> Iterator[None]:
        """Raises LeftRunning if processes were started in the block and still run."""
        before, begin = _children(), _ticks()
        try:
            yield
        finally:
            self._only_once()
            self._end_new(before, begin)

    def _only_once(self) -> None:
        if os.getpid() != self._pid:
            os._exit(0)  # the choice has forked and came back twice

    def _end_new(self, before: set[int], begin: int) -> None:
        end, found = time.monotonic() + _SECONDS, set[int]()
        while left := {pid for pid in _children() - before if _started(pid) >= begin}:
            for pid in left:
                found |= {pid, *(process.pid for process in tree.below(pid))}
                tree.sweep(pid, 1.0)
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
            if time.monotonic() > end:
                self._mark.end_worker("it goes on starting processes")
        if found:
            many = f"{len(found):,} processes" if len(found) > 1 else "a process"
            raise LeftRunning(f"it left {many} running")


def _what(descriptor: int) -> tuple[int, int]:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return (0, 0)
    return (status.st_dev, status.st_ino)


def _children() -> set[int]:
    """Ours, and those whose parents are gone, which our own parent has adopted. Nothing where this
    Linux does not tell."""
    found: set[int] = set()
    for pid in (os.getpid(), os.getppid()):
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
                with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as f:  # noqa: PTH123
                    found.update(map(int, f.read().split()))
    return found - {os.getpid()}


def _ticks() -> int:
    """Now, as /proc tells when a process was started."""
    if sys.platform != "linux":
        return 0
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def _started(pid: int) -> int:
    """-1 if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:  # noqa: PTH123
            fields = stream.read().rpartition(b")")[2].split()
    except OSError:
        return -1
    return -1 if fields[0] in b"ZX" else int(fields[19])
