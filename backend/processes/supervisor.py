"""A small supervisor process between a worker and its parent, which ends every process the worker
started; and the restoration of the worker after each choice.

The supervisor adopts orphans among its descendants and kills them all when the worker or the parent
has ended. The worker's output passes through it, and its end is kept. It exits like the worker, so
the parent sees the worker's own exit code or signal.

Later choices run in the same process, so changes by a choice are reverted where possible. A change
that cannot be reverted ends the worker and is blamed on the choice: a new worker runs the others.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from backend.processes import tree
from backend.processes.shared import ChoiceMark, Ring, is_ring
from backend.processes.tree import die_by, without_cores

_LOOK = 5.0
"""Seconds between two checks of our parent; Linux reports its end immediately."""
_CHUNK = 1 << 16
_LAST = 1 << 20
"""Bytes of output that are still read after the worker has ended."""


def supervised(work: Callable[[], int]) -> int:
    """Run `work` in a supervised child; returns in the child only."""
    parent = os.getppid()
    tree.adopt()
    reading, writing = os.pipe()
    supervisor = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child != 0:
        os.close(writing)
        _supervise(child, parent, reading)
    os.close(reading)
    _become_worker(supervisor, writing)
    return work()


def _become_worker(supervisor: int, writing: int) -> None:
    os.setsid()  # so that a signal to the worker's group misses the supervisor
    tree.on_parents_death(signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(1)  # the parent died before its end could be reported
    if is_ring(2):
        os.dup2(writing, 2)
    os.close(writing)
    with contextlib.suppress(OSError):  # if memory runs out, the kernel kills the worker first
        Path("/proc/self/oom_score_adj").write_text("1000")
    without_cores()
    tree.bound_processes()


def _supervise(child: int, parent: int, reading: int) -> NoReturn:
    """Wait until the worker or our parent has ended. Raises nothing."""
    wake, waking = os.pipe()
    for end in (wake, waking, reading):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    for number in (signal.SIGCONT, signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, _wakes)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    tree.hide_descriptors()
    log = Ring(os.dup(2)) if is_ring(2) else None
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):  # whoever waits for their end waits for the worker's
        os.dup2(nowhere, standard)
    # This signal also continues us if we are stopped.
    tree.on_parents_death(signal.SIGCONT)
    status = _until_ended(child, parent, reading, wake, log)
    tree.sweep(os.getpid())
    if log is not None:
        _relay(reading, log, _LAST)
    _end_like(status)


def _wakes(number: int, frame: object) -> None:
    """Do nothing; unlike an ignored signal, this wakes the descriptor of `set_wakeup_fd`."""


def _until_ended(child: int, parent: int, reading: int, wake: int, log: Ring | None) -> int | None:
    """Return the wait status of the worker, that of SIGTERM if we got it: whoever waits must see
    that somebody ended us. None if nobody waits any more."""
    sources = [wake, reading]
    while os.getppid() == parent:
        status = _reaped(child)
        if status is not None:
            return status
        ready, _, _ = select.select(sources, [], [], _LOOK)
        if reading in ready and not _relay(reading, log, _CHUNK):
            sources.remove(reading)
        if wake in ready:
            with contextlib.suppress(OSError):
                if signal.SIGTERM in os.read(wake, 4096):
                    return int(signal.SIGTERM)
    return None


def _reaped(child: int) -> int | None:
    """Return the wait status of `child` if it has ended, and reap all other children."""
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                return status
            if pid == 0:
                return None
    except ChildProcessError:
        return 0


def _relay(reading: int, log: Ring | None, most: int) -> bool:
    """Keep up to `most` bytes of output; return whether more may follow."""
    while most > 0:
        try:
            data = os.read(reading, min(most, _CHUNK))
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        if log is not None:
            log.add(data)
        most -= len(data)
    return True


def _end_like(status: int | None) -> NoReturn:
    code = 1 if status is None else os.waitstatus_to_exitcode(status)
    os._exit(die_by(-code) if code < 0 else code)


_kept: dict[int, tuple[int, int]] = {}
"""Descriptors that the worker needs, and their identities."""
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
_SECONDS = 5.0
"""Seconds for ending processes that a choice left running."""


def keep(*descriptors: int) -> None:
    """Register descriptors: a choice that closes one of them ends its worker."""
    _kept.update({number: _what(number) for number in descriptors})


_spared: set[int] = set()
"""Our processes that outlive the choice during which they started."""


def spare(pid: int, yes: bool = True) -> None:
    """Exempt this process from cleanup; until it ends, no choice is blamed for it."""
    (_spared.add if yes else _spared.discard)(pid)


class LeftRunning(RuntimeError):
    """A choice left processes behind, which were ended."""


class ProcessGuard:
    """Restores this process between choices; `mark` has the current choice."""

    def __init__(self, mark: ChoiceMark) -> None:
        self._mark = mark
        self._pid = os.getpid()
        self._folder = os.getcwd()  # noqa: PTH109
        self._limits = {which: resource.getrlimit(which) for which in _LIMITS}

    def tidy(self) -> None:
        """Restore the process after a choice. Returns in this process only."""
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
    def no_leftovers(self) -> Iterator[None]:
        """Raise LeftRunning if processes started in the block are still running."""
        before, begin = _children(), tree.ticks()
        try:
            yield
        finally:
            self._only_once()
            self._end_new(before, begin)

    def _only_once(self) -> None:
        if os.getpid() != self._pid:
            os._exit(0)  # the choice forked, and this is the copy

    def _end_new(self, before: set[int], begin: int) -> None:
        end, ended = time.monotonic() + _SECONDS, set[int]()
        while left := [pid for pid in _children() - before - _spared if _since(pid, begin)]:
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
    """Return our children, and orphans that our own parent has adopted."""
    return tree.children(os.getpid(), os.getppid()) - {os.getpid()}


def _since(pid: int, begin: int) -> bool:
    """Return whether the process runs and was started at `begin` or later."""
    process = tree.read(pid)
    return process is not None and process.started >= begin
