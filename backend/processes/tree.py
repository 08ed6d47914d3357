"""A process and all its descendants, and ending them whatever they do: the only reaper.

A worker's children may have their own sessions, or parents that are gone; they still descend from
the worker's supervisor, which adopts orphans. /proc is read directly, because this runs in the
user's torch environment, four times a second beside measurements; without /proc the result is
unknown.

Pids are reused, and a pid within a container belongs to another process outside. The `identity` of
a process is its machine's boot, its pid namespace, its pid and its start time.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import resource
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

_PROC = "/proc"
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 1, 4, 36  # linux/prctl.h
PATIENCE = 20.0
"""Seconds of killing before the rest is left alone, for example in a disk or GPU call."""
_PAUSE = 0.002


_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Process:
    """A running process; `resident` is in bytes and counts shared pages, `started` in ticks."""

    pid: int
    parent: int
    group: int
    session: int
    resident: int
    started: int


def tree(pid: int) -> list[Process]:
    """Return the process `pid`, the others of its session, and all descendants of these."""
    everything = list(processes())
    return _with_descendants(everything, [p for p in everything if pid in (p.pid, p.session)])


def has_ended(pid: int) -> bool:
    """Return whether our child has ended; it is not reaped."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except ChildProcessError:
        return True


def below(pid: int) -> list[Process]:
    """Return all descendants of the process `pid`, without itself."""
    everything = list(processes())
    children = [process for process in everything if process.parent == pid]
    return [p for p in _with_descendants(everything, children) if p.pid != pid]


def _with_descendants(everything: Iterable[Process], roots: Iterable[Process]) -> list[Process]:
    children: dict[int, list[Process]] = {}
    for process in everything:
        children.setdefault(process.parent, []).append(process)
    descendants: dict[int, Process] = {}
    waiting = list(roots)
    while waiting:
        process = waiting.pop()
        if process.pid not in descendants:
            descendants[process.pid] = process
            waiting += children.get(process.pid, ())
    return list(descendants.values())


def processes() -> Iterator[Process]:
    """Yield all processes of this machine except zombies."""
    try:
        names = [name for name in os.listdir(_PROC) if name.isdecimal()]  # noqa: PTH208
    except OSError:
        return
    for name in names:
        process = read(int(name))
        if process is not None:
            yield process


def read(pid: int) -> Process | None:
    """Return the running process `pid`; None if it has ended."""
    fields = _fields(pid)
    if len(fields) < 22 or fields[0] in b"ZX":
        return None
    parent, group, session = (int(field) for field in fields[1:4])
    return Process(pid, parent, group, session, int(fields[21]) * _PAGE, int(fields[19]))


def mapped(pid: int) -> bytes:
    """Return the files and regions mapped by a process, from /proc. Raises OSError."""
    return Path(f"/proc/{pid}/maps").read_bytes()


def _fields(pid: int) -> list[bytes]:
    """Return the fields of proc(5) from the state on; empty if the process has ended."""
    try:
        with open(f"{_PROC}/{pid}/stat", "rb") as stream:  # noqa: PTH123 - thousands of them
            return stream.read().rpartition(b")")[2].split()  # the name may hold anything
    except OSError:
        return []


def children(*parents: int) -> set[int]:
    """Return the children of these processes; fast, but empty where the kernel does not list
    them."""
    numbers: set[int] = set()
    for pid in parents:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"{_PROC}/{pid}/task"):  # noqa: PTH208
                path = f"{_PROC}/{pid}/task/{thread}/children"
                with contextlib.suppress(OSError), open(path) as stream:  # noqa: PTH123
                    numbers.update(map(int, stream.read().split()))
    return numbers


def ticks() -> int:
    """Return the current time in the unit of processes' start times."""
    if sys.platform != "linux":
        return 0
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def end(pid: int, patience: float = PATIENCE, *, bury: bool = True) -> set[int]:
    """Kill the process `pid` and all its descendants, and return their pids; it is our own child,
    or one adopted by us or our supervisor.

    Without `bury`, its exit code is left for another waiter.
    """
    met = {pid}
    sweep(pid, patience, met)
    met |= children(pid)  # those that had ended before, too
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):  # then its dead descendants are ours to reap
        os.waitid(os.P_PID, pid, os.WEXITED | (0 if bury else os.WNOWAIT))
    reap(met - {pid})
    return met


def sweep(pid: int, patience: float = PATIENCE, met: set[int] | None = None) -> bool:
    """Kill all descendants of the process `pid`, adding their pids to `met`; return whether none is
    left.

    Processes are stopped first, until a pass finds no new ones: a stopped process starts nothing.
    Whole process groups are signalled at once, so that a fork cannot slip through between two
    members.
    """
    end = time.monotonic() + patience
    ours = {os.getpgrp(), os.getpgid(0), 0, 1}
    while running := below(pid):
        stopped: set[int] = set()
        while time.monotonic() < end and (new := [p for p in running if p.pid not in stopped]):
            _signal(new, signal.SIGSTOP, ours)
            stopped |= {process.pid for process in new}
            running = below(pid)
        _signal(running, signal.SIGKILL, ours)
        if met is not None:
            met |= stopped | {process.pid for process in running}
        reap(process.pid for process in running)
        if time.monotonic() >= end:
            return False
        time.sleep(_PAUSE)
    return True


def _signal(targets: Iterable[Process], number: int, ours: set[int]) -> None:
    groups = {process.group for process in targets} - ours
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    for process in targets:
        if process.group not in groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, number)


def reap(pids: Iterable[int]) -> None:
    """Reap the processes that are our children and have ended."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def adopt(yes: bool = True) -> None:
    """Adopt the orphans among our descendants instead of process 1."""
    _prctl(_PR_SET_CHILD_SUBREAPER, int(yes))


def on_parents_death(number: int) -> None:
    """Make Linux send this signal when our parent's thread that started us ends."""
    _prctl(_PR_SET_PDEATHSIG, number)


def hide_descriptors() -> None:
    """Keep other processes of the same user from opening our descriptors in /proc."""
    _prctl(_PR_SET_DUMPABLE, 0)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def bound_processes(margin: int = 1 << 13) -> None:
    """Limit this process and its descendants to `margin` more threads than its user has now. The
    system counts all threads of a user, and does not limit root."""
    user = os.getuid()
    if user == 0:
        return
    limit = margin
    for folder in Path(_PROC).iterdir():
        with contextlib.suppress(OSError, IndexError):
            if folder.name.isdecimal() and folder.stat().st_uid == user:
                limit += int(_fields(int(folder.name))[17])
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    limits = [number for number in (soft, hard) if number != resource.RLIM_INFINITY]
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NPROC, (min([limit, *limits]), hard))


def identity(pid: int) -> str:
    """Return the identity of a running process in our pid namespace; empty if unreadable."""
    here, process = machine(), read(pid)
    return f"{here} {pid} {process.started}" if here and process is not None else ""


def lives(identity: str) -> bool | None:
    """Return whether that process runs; None if that cannot be seen from here."""
    where, pid, started = identity.rsplit(" ", 2) if identity.count(" ") > 2 else ("", "", "")
    if not where or where != machine() or not pid.isdecimal():
        return None
    process = read(int(pid))
    if process is not None:
        return str(process.started) == started
    return False if Path("/proc/1").exists() else None  # others' processes may be hidden from us


def machine() -> str:
    """Return the machine's boot and our pid namespace; empty without /proc."""
    try:
        return _machine()
    except OSError:
        return ""


@functools.cache  # of answers only: a failure, as without a free descriptor, may pass
def _machine() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115


def die_by(number: int) -> int:
    """End this process by a signal, without a core dump; return 128 + its number if ineffective."""
    without_cores()
    with contextlib.suppress(OSError, ValueError):  # some cannot be set
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number


def without_cores() -> None:
    """Disable core dumps: crashes are expected, and cores are large."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


_MOST = 8
"""The number of errors of a chain that are examined; a chain may be circular."""


def from_a_handler(error: BaseException) -> BaseException | None:
    """Return the error that a signal handler raised, as timeouts do: `error` or one in its chain of
    causes (`raise ... from`, not the context). None if there is none."""
    handlers = (signal.getsignal(number) for number in signal.valid_signals())
    codes = {code for handler in handlers if (code := _code_of(handler)) is not None}
    link: BaseException | None = error if codes else None
    for _ in range(_MOST):
        if link is None or _passed(link, codes):
            return link
        link = link.__cause__
    return None


def _passed(error: BaseException, codes: set[CodeType]) -> bool:
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def _code_of(handler: Any) -> CodeType | None:
    """Return the handler's code; None if it is not Python."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not callable(handler):
        return None
    code = getattr(handler, "__code__", getattr(type(handler).__call__, "__code__", None))
    return code if isinstance(code, CodeType) else None
