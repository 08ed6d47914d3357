"""A small process between those who start a worker and the worker, so that nothing survives it;
and what a choice must leave in the worker as it found it.

The supervisor adopts whatever loses its parent below it, and kills all of that as soon as the
worker has ended or those who started it are gone. What the worker prints goes through it: the end
is kept. It ends as the worker did, so that who waits for it sees the worker's own exit code or
signal.

Others run in a choice's process after it, so what it changed is put back where that can be done.
What cannot be put back ends the worker, and the choice is to blame: a new worker runs the others.
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
"""Seconds between two looks at our parent; its end is told at once where Linux tells it."""
_CHUNK = 1 << 16
_LAST = 1 << 20
"""Bytes that are still read of what was printed when the worker has ended."""


def apart(work: Callable[[], int]) -> int:
    """Do `work` in a child and watch over it; returns in the child alone."""
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
    os.setsid()  # a signal to its group is not for the supervisor
    tree.on_parents_death(signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(1)  # it died before we could ask to be told
    if is_ring(2):
        os.dup2(writing, 2)
    os.close(writing)
    with contextlib.suppress(OSError):  # where memory runs out, this one goes first
        Path("/proc/self/oom_score_adj").write_text("1000")
    without_cores()
    tree.bound_processes()


def _supervise(child: int, parent: int, reading: int) -> NoReturn:
    """Until the worker ends, or we are alone. Raises nothing."""
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
    for standard in (0, 1):  # who waits for the end of these waits for the worker's
        os.dup2(nowhere, standard)
    # Also where we are stopped: this signal makes us go on.
    tree.on_parents_death(signal.SIGCONT)
    status = _until_ended(child, parent, reading, wake, log)
    tree.sweep(os.getpid())
    if log is not None:
        _relay(reading, log, _LAST)
    _end_like(status)


def _wakes(number: int, frame: object) -> None:
    """Not ignored: the descriptor of `set_wakeup_fd` becomes readable."""


def _until_ended(child: int, parent: int, reading: int, wake: int, log: Ring | None) -> int | None:
    """The wait status of the worker; None where nobody waits for it any more."""
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
                    return None
    return None


def _reaped(child: int) -> int | None:
    """The wait status of `child` if it has ended; no other of our children stays a zombie."""
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
    """Keep up to `most` bytes of what was printed; whether there may be more one day."""
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
"""Descriptors that the worker cannot do without, and what they are."""
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
_SECONDS = 5.0
"""For ending what a choice left running."""


def keep(*descriptors: int) -> None:
    """A choice that closes one of these ends its worker."""
    _kept.update({number: _what(number) for number in descriptors})


_spared: set[int] = set()
"""Processes of ours that outlive the choice for which they were first needed."""


def spare(pid: int, yes: bool = True) -> None:
    """No choice is blamed for this process, and none of them ends it; until it is over."""
    (_spared.add if yes else _spared.discard)(pid)


class LeftRunning(RuntimeError):
    """A choice left processes behind, which were ended."""


class House:
    """Looks after this process; `mark` knows which choice runs in it."""

    def __init__(self, mark: ChoiceMark) -> None:
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
    """Ours, and those whose parents are gone, which our own parent has adopted."""
    return tree.children(os.getpid(), os.getppid()) - {os.getpid()}


def _since(pid: int, begin: int) -> bool:
    """Whether it runs and was started at `begin` or later."""
    process = tree.read(pid)
    return process is not None and process.started >= begin
