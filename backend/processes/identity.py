"""Which process it was, so that a later one with its pid is not taken for it.

A pid comes again, and within a container it is that of another process outside. What names one for
good is the boot of its machine, its namespace of pids, its pid, and when it was started. Read from
/proc; where there is none, nothing is known.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from backend.processes import tree


def identity(pid: int) -> str:
    """Of a running process in our namespace of pids; empty where that cannot be read."""
    machine, process = _machine(), tree.read(pid)
    return f"{machine} {pid} {process.started}" if machine and process is not None else ""


def lives(identity: str) -> bool | None:
    """Whether that process runs; None where it cannot be told from here."""
    machine, pid, started = identity.rsplit(" ", 2) if identity.count(" ") > 2 else ("", "", "")
    if not machine or machine != _machine() or not pid.isdecimal():
        return None
    process = tree.read(int(pid))
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
