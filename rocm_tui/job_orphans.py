"""What a worker leaves behind where its supervisor was killed: we adopt it, and end it.

As long as the supervisor lives, even stopped, all that the worker started descends from it. When it
is killed, that comes to us: children that we did not start, with the worker's mark in their
environment.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import threading
from pathlib import Path

from backend.worker import tree

_NAME = "WORKER_OF_ROCM_TUI"
_lock = threading.Lock()
_workers = 0
"""How many there are. Without any, orphans are none of our business."""


class Orphans:
    """Those of one worker."""

    def __init__(self) -> None:
        self.mark = {_NAME: secrets.token_hex(16)}
        """What the worker's environment is to have."""
        self._forgotten = False
        _count(1)

    def end(self, supervisor: int | None) -> None:
        """Kill the process `supervisor`, which we have not waited for, with all below it, and
        whatever of it has come to us."""
        met: set[int] = set()
        if supervisor is not None:
            tree.sweep(supervisor, met=met)
            with contextlib.suppress(ProcessLookupError):
                os.kill(supervisor, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):  # then its dead are ours to bury
                os.waitid(os.P_PID, supervisor, os.WEXITED | os.WNOWAIT)
            tree.reap(met)
        for pid in self._adopted():
            tree.sweep(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        if supervisor is None:
            self.forget()

    def forget(self) -> None:
        """The worker has ended."""
        if not self._forgotten:
            self._forgotten = True
            _count(-1)

    def _adopted(self) -> list[int]:
        ((name, value),) = self.mark.items()
        wanted = f"{name}={value}".encode()
        found = []
        here, session = os.getpid(), os.getsid(0)
        for process in tree.processes():
            if process.parent == here and process.session != session:
                with contextlib.suppress(OSError):
                    text = Path(f"/proc/{process.pid}/environ").read_bytes()
                    if wanted in text.split(b"\0"):
                        found.append(process.pid)
        return found


def _count(by: int) -> None:
    global _workers
    with _lock:
        _workers += by
        tree.adopt(_workers > 0)
