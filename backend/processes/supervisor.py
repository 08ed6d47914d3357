"""A small process between those who start a worker and the worker, so that nothing survives it.

It adopts whatever loses its parent below it, and kills all of that as soon as the worker has ended
or those who started it are gone. What the worker prints goes through it: the end is kept. It ends
as the worker did, so that who waits for it sees the worker's own exit code or signal.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from backend.processes import tree
from backend.processes.ending import die_by, without_cores
from backend.processes.shared import Ring, is_ring

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
