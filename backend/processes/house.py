"""What a choice must leave as it found it, since others run in the same process after it.

What can be put back is put back. What cannot ends the worker, and the choice is to blame: a new
worker runs the others.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
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
        before, begin = _children(), tree.ticks()
        try:
            yield
        finally:
            self._only_once()
            self._end_new(before, begin)

    def _only_once(self) -> None:
        if os.getpid() != self._pid:
            os._exit(0)  # the choice has forked and came back twice

    def _end_new(self, before: set[int], begin: int) -> None:
        end, ended = time.monotonic() + _SECONDS, set[int]()
        while left := [pid for pid in _children() - before if _since(pid, begin)]:
            for pid in left:
                ended |= tree.end(pid, 1.0)
            if time.monotonic() > end:
                self._mark.end_worker("it goes on starting processes")
        if ended:
            many = f"{len(ended):,} processes" if len(ended) > 1 else "a process"
            raise LeftRunning(f"it left {many} running")


def _what(descriptor: int) -> tuple[int, int]:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return (0, 0)
    return (status.st_dev, status.st_ino)


def _children() -> set[int]:
    """Ours, and those whose parents are gone, which our own parent has adopted."""
    return tree.children(os.getpid(), os.getppid()) - {os.getpid()}


def _since(pid: int, begin: int) -> bool:
    """Whether it runs and was started at `begin` or later."""
    process = tree.read(pid)
    return process is not None and process.started >= begin
