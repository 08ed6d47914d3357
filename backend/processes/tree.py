"""A process with everything that it started, and their end, whatever they do: the one reaper.

What a worker starts may have a session of its own, or parents that are gone: it descends from the
worker's supervisor all the same, which adopts orphans. Read from /proc by hand, since this runs in
the user's torch environment, four times a second beside what is being measured; where there is no
/proc, nothing is known.

A pid is used again, and within a container it is that of another process outside. The `identity` of
a process is the boot of its machine, its namespace of pids, its pid, and when it was started.
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
"""Seconds of killing before the rest is left alone: a process in the middle of a disk's or a GPU's
call may take its time."""
_PAUSE = 0.002


_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Process:
    """One running process; `resident` is in bytes and counts shared pages, `started` in ticks."""

    pid: int
    parent: int
    group: int
    session: int
    resident: int
    started: int


def tree(pid: int) -> list[Process]:
    """The process `pid`, the others of its session, and all that descend from one of them."""
    everything = list(processes())
    return _with_descendants(everything, [p for p in everything if pid in (p.pid, p.session)])


def below(pid: int) -> list[Process]:
    """All that descend from the process `pid`, without itself."""
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
    """All that run on this machine; a zombie does not."""
    try:
        names = [name for name in os.listdir(_PROC) if name.isdecimal()]  # noqa: PTH208
    except OSError:
        return
    for name in names:
        process = read(int(name))
        if process is not None:
            yield process


def read(pid: int) -> Process | None:
    """The running process `pid`; None if it has ended."""
    fields = _fields(pid)
    if len(fields) < 22 or fields[0] in b"ZX":
        return None
    parent, group, session = (int(field) for field in fields[1:4])
    return Process(pid, parent, group, session, int(fields[21]) * _PAGE, int(fields[19]))


def mapped(pid: int) -> bytes:
    """The files and regions in a process's memory, as /proc tells them. Raises OSError."""
    return Path(f"/proc/{pid}/maps").read_bytes()


def _fields(pid: int) -> list[bytes]:
    """See proc(5); the first is the state. Nothing if it has ended."""
    try:
        with open(f"{_PROC}/{pid}/stat", "rb") as stream:  # noqa: PTH123 - thousands of them
            return stream.read().rpartition(b")")[2].split()  # the name may hold anything
    except OSError:
        return []


def children(*parents: int) -> set[int]:
    """What these have started or adopted; quick, and nothing where this Linux does not tell."""
    numbers: set[int] = set()
    for pid in parents:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"{_PROC}/{pid}/task"):  # noqa: PTH208
                path = f"{_PROC}/{pid}/task/{thread}/children"
                with contextlib.suppress(OSError), open(path) as stream:  # noqa: PTH123
                    numbers.update(map(int, stream.read().split()))
    return numbers


def ticks() -> int:
    """Now, as /proc tells when a process was started."""
    if sys.platform != "linux":
        return 0
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def end(pid: int, patience: float = PATIENCE, *, bury: bool = True) -> set[int]:
    """Kill the process `pid` with all below it, and tell their numbers; it is our own child, or one
    that we or our supervisor adopted.

    Without `bury` its exit code is left to the one who waits for it.
    """
    met = {pid}
    sweep(pid, patience, met)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):  # then the dead below it are ours to bury
        os.waitid(os.P_PID, pid, os.WEXITED | (0 if bury else os.WNOWAIT))
    reap(met - {pid})
    return met


def sweep(pid: int, patience: float = PATIENCE, met: set[int] | None = None) -> bool:
    """Kill all that descends from the process `pid`, adding its numbers to `met`; whether nothing
    is left.

    What multiplies is stopped first, until a look finds no other: what stands still starts nothing.
    A whole process group at once, so that a fork cannot slip through between two of its members.
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
    """Take note of the end of those that are our children."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def adopt(yes: bool = True) -> None:
    """Let orphans below this process become its children, and not those of process 1."""
    _prctl(_PR_SET_CHILD_SUBREAPER, int(yes))


def on_parents_death(number: int) -> None:
    """Ask Linux for this signal when the parent, or rather the thread that started us, ends."""
    _prctl(_PR_SET_PDEATHSIG, number)


def hide_descriptors() -> None:
    """Keep other processes of the same user from opening ours in /proc."""
    _prctl(_PR_SET_DUMPABLE, 0)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def bound_processes(margin: int = 1 << 13) -> None:
    """Let this process, with all that it starts, have so many more threads than its user has now.

    The system counts all threads of a user, and holds root to no number.
    """
    user = os.getuid()
    if user == 0:
        return
    wanted = margin
    for folder in Path(_PROC).iterdir():
        with contextlib.suppress(OSError, IndexError):
            if folder.name.isdecimal() and folder.stat().st_uid == user:
                wanted += int(_fields(int(folder.name))[17])
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    limits = [number for number in (soft, hard) if number != resource.RLIM_INFINITY]
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NPROC, (min([wanted, *limits]), hard))


def identity(pid: int) -> str:
    """Of a running process in our namespace of pids; empty where that cannot be read."""
    machine, process = _machine(), read(pid)
    return f"{machine} {pid} {process.started}" if machine and process is not None else ""


def lives(identity: str) -> bool | None:
    """Whether that process runs; None where it cannot be told from here."""
    machine, pid, started = identity.rsplit(" ", 2) if identity.count(" ") > 2 else ("", "", "")
    if not machine or machine != _machine() or not pid.isdecimal():
        return None
    process = read(int(pid))
    if process is not None:
        return str(process.started) == started
    return False if Path("/proc/1").exists() else None  # others' processes may be hidden from us


@functools.cache
def _machine() -> str:
    """The boot of this machine and our namespace of pids; empty without /proc."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115
    except OSError:
        return ""


def die_by(number: int) -> int:
    """End this process by a signal, without a core dump of ours; 128 + its number if that ends
    nobody."""
    without_cores()
    with contextlib.suppress(OSError, ValueError):  # some cannot be set
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number


def without_cores() -> None:
    """Crashes are expected; their cores are large."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


_MOST = 8
"""Errors of a chain that are looked at; it may be a circle."""


def from_a_handler(error: BaseException) -> BaseException | None:
    """The error that a signal's handler raised, as those of timeouts do: this one, or that of which
    it was made (`raise ... from`; what was handled before is another matter). None for no such."""
    handlers = (signal.getsignal(number) for number in signal.valid_signals())
    codes = {code for handler in handlers if (code := _code_of(handler)) is not None}
    one: BaseException | None = error if codes else None
    for _ in range(_MOST):
        if one is None or _passed(one, codes):
            return one
        one = one.__cause__
    return None


def _passed(error: BaseException, codes: set[CodeType]) -> bool:
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def _code_of(handler: Any) -> CodeType | None:
    """Of what is called; None where that is no Python."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not callable(handler):
        return None
    code = getattr(handler, "__code__", getattr(type(handler).__call__, "__code__", None))
    return code if isinstance(code, CodeType) else None
