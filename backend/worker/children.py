"""Workers of a worker: other processes that each do one job, side by side."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from backend.processes.tree import end
from backend.wire.codec import dumps
from backend.wire.jobs import ResultInvalid, WorkerJob, answer_of, job_words
from backend.worker.protocol import EventReceiver

R = TypeVar("R")

_PAUSE = 1.0


class _Child:
    """A worker that does one job, and ends with its pipe."""

    def __init__(self, job: WorkerJob[Any]) -> None:
        self._job = job
        token = secrets.token_hex(16)
        self._events = EventReceiver(token)
        self.answer: Any = None
        self._process = subprocess.Popen(
            [sys.executable, *sys.orig_argv[1:]],  # as this worker was started
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self.out = self._process.stdout.fileno()
        words = {**job_words(job), "id": 1, "token": token}
        with contextlib.suppress(OSError):  # it has ended, which its output says, too
            self._process.stdin.write(dumps(words).encode() + b"\n")
            self._process.stdin.close()

    def read(self) -> bool:
        """Take what it wrote; False at the end."""
        data = os.read(self.out, 1 << 16)
        for event in self._events.feed(data):
            if event.get("event") == "result" and isinstance(event.get("result"), dict):
                with contextlib.suppress(ResultInvalid):
                    self.answer = answer_of(self._job, event["result"])
        return bool(data)

    def close(self) -> None:
        end(self._process.pid, bury=False)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def run_children(
    jobs: Sequence[WorkerJob[R]], seconds: float, tell: Callable[[], None]
) -> list[R | None]:
    """Do each job in a process of its own, all at once, within `seconds`. A job without a result
    has None; `tell` is called now and then."""
    deadline = time.monotonic() + seconds
    children: list[_Child] = []
    try:
        children += [_Child(job) for job in jobs]
        waiting = {child.out: child for child in children}
        while waiting and time.monotonic() < deadline:
            tell()
            for out in select.select(list(waiting), [], [], _PAUSE)[0]:
                if not waiting[out].read():
                    del waiting[out]
        return [child.answer for child in children]
    finally:
        for child in children:
            child.close()
