"""Workers of a worker: other processes that each do one job, side by side."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from backend import VISIBLE
from backend.processes.tree import end
from backend.wire.codec import dumps
from backend.wire.jobs import ResultInvalid, WorkerJob, answer_of, job_words
from backend.worker.protocol import EventReceiver

R = TypeVar("R")

_PAUSE = 1.0
END_SECONDS = 10.0
"""Seconds that a process with a result has to end, before it is ended: a driver may hang."""


class _Child:
    """A worker that does one job, and ends with its pipe. `answer` is its result, or a line that
    says why there is none."""

    def __init__(self, job: WorkerJob[Any], gpu: str | None) -> None:
        self._job = job
        token = secrets.token_hex(16)
        self._events = EventReceiver(token)
        self.answer: Any = "one of the processes gave no result"
        self.answered: float | None = None
        """When it gave its result or error, by the monotonic clock."""
        words = {**job_words(job), "id": 1, "token": token}
        self._process = subprocess.Popen(
            [sys.executable, *sys.orig_argv[1:]],  # as this worker was started
            env=None if gpu is None else {**os.environ, **dict.fromkeys(VISIBLE, gpu)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self.out = self._process.stdout.fileno()
        with contextlib.suppress(OSError):  # it has ended, which its output says, too
            self._process.stdin.write(dumps(words).encode() + b"\n")
            self._process.stdin.close()

    def read(self) -> bool:
        """Take what it wrote; False at the end."""
        data = os.read(self.out, 1 << 16)
        for event in self._events.feed(data):
            if event.get("event") in ("error", "result"):
                self.answered = time.monotonic()
            if event.get("event") == "error":
                self.answer = str(event.get("error"))
            elif event.get("event") == "result" and isinstance(event.get("result"), dict):
                with contextlib.suppress(ResultInvalid):
                    self.answer = answer_of(self._job, event["result"])
        if not data and self.answered is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                if (status := self._process.wait(_PAUSE)) < 0:
                    self.answer = f"one of the processes died of {signal.Signals(-status).name}"
        return bool(data)

    @property
    def lingers(self) -> bool:
        """Whether it has had its time to end after its result."""
        return self.answered is not None and time.monotonic() > self.answered + END_SECONDS

    def close(self) -> None:
        if self._process.returncode is None:
            end(self._process.pid, bury=False)
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def run_children(
    jobs: Sequence[WorkerJob[R]],
    seconds: float,
    tell: Callable[[], None],
    at_once: int = 0,
    gpus: Sequence[str] = (),
) -> list[R | str]:
    """Do each job in a process of its own, `at_once` of them (0: all) at the same time, within
    `seconds`. With `gpus`, each process sees one of them, and the next process the next one. A job
    without a result has a line instead that says why; `tell` is called now and then. Raises OSError
    if not even the first process can be started."""
    deadline = time.monotonic() + seconds
    children: list[_Child | str] = []
    waiting: dict[int, _Child] = {}
    try:
        while waiting or len(children) < len(jobs):
            while len(children) < len(jobs) and len(waiting) < (at_once or len(jobs)):
                gpu = gpus[len(children) % len(gpus)] if gpus else None
                try:
                    child = _Child(jobs[len(children)], gpu)
                except OSError as error:
                    if not children:
                        raise
                    children.append(f"one of the processes did not start: {error.strerror}")
                    continue
                children.append(child)
                waiting[child.out] = child
            tell()
            for out in select.select(list(waiting), [], [], _PAUSE)[0]:
                if not waiting[out].read():
                    waiting.pop(out).close()
            for out in [out for out, child in waiting.items() if child.lingers]:
                waiting.pop(out).close()
            if time.monotonic() > deadline:
                late = f"it was ended after {seconds:.0f} s"
                for child in waiting.values():
                    if child.answered is None:
                        child.answer = late
                return [*map(_answer, children), *[late] * (len(jobs) - len(children))]
        return [*map(_answer, children)]
    finally:
        for each in children:
            if isinstance(each, _Child):
                each.close()


def _answer(child: _Child | str) -> Any:
    return child if isinstance(child, str) else child.answer
