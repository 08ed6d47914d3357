"""All pins proved in one worker, one after another.

Another worker is started only where the process cannot be a fresh program's any more: it died or
hung, a compile failed in it, the next pin needs another autotune mode (torch keeps what it made for
one) or another precision (what was set once is part of the keys of graphs), or our templates were
put into it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from backend.disk.layout import Layout
from backend.model.origin import is_own
from backend.model.pin import Pin
from backend.wire.jobs import Progress, VerifyJob, VerifyResult
from rocm_tui.jobs.limits import JobError, Limits, WorkerDied
from rocm_tui.jobs.run import try_modes
from rocm_tui.jobs.worker import Worker, spawn_worker

SECONDS = 300.0
"""How long one pin may take, the start of its worker included."""

Tell = Callable[[int, Pin, str], None]
"""Told the place of the pin that is being verified, from 1, the pin, and what the worker does."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A pin, and how many threads the process had that tuned it, where that is known."""

    pin: Pin
    threads: int | None = None


_Kind = tuple[bool, str]
"""Pins that one process can verify: with our templates or without, and the precision."""


def _kind(asked: Asked) -> _Kind:
    return is_own(asked.pin.hash), asked.pin.precision


class Verifying:
    """Use it in a `with` statement: its worker ends with it."""

    def __init__(
        self,
        python: str,
        layout: Layout,
        *,
        env: Mapping[str, str] = os.environ,
        seconds: float = SECONDS,
        tell: Tell = lambda place, pin, what: None,
    ) -> None:
        self._python = python
        self._layout = layout
        self._env = env
        self._limits = replace(Limits.of_this_machine(), seconds=seconds)
        self._tell = tell
        self._worker: Worker | None = None
        self._is: tuple[int, _Kind] | None = None
        self._broken: str | None = None
        self._place = 0
        self.workers = 0
        """How many were started."""

    def __enter__(self) -> Verifying:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def results(self, asked: Sequence[Asked]) -> Iterator[tuple[Pin, VerifyResult]]:
        """Each pin with what the worker's job says of it, as soon as it is known."""
        self._place = 1
        for question, answers in try_modes(
            sorted(asked, key=_kind),
            lambda question, mode: self._answer(question, mode),
            lambda answer: answer.conclusive,
        ):
            self._place += 1
            final = (answer for answer in answers.values() if answer.conclusive)
            yield question.pin, next(final, answers[min(answers)])

    def _answer(self, asked: Asked, mode: int) -> VerifyResult:
        """The worker's result; what becomes of the worker instead is a pin that is not verified."""
        if self._broken is not None:
            return _failed(self._broken)
        pin = asked.pin
        fresh = self._start((mode, _kind(asked)), pin)
        if self._worker is None:
            return _failed(self._broken or "no worker")
        job = VerifyJob(pin.op, pin.inputs, pin.precision, pin.hash, mode, asked.threads)

        def hear(progress: Progress) -> None:
            self._tell(self._place, pin, progress.what)

        try:
            result = self._worker.run(job, hear, limits=self._limits)
        except JobError as error:
            self._end()
            if fresh and isinstance(error, WorkerDied) and error.last is None:
                self._broken = str(error)  # it never got as far as the pin, nor will the next
            return _failed(str(error))
        if result.spent:
            self._end()
        return result

    def _start(self, kind: tuple[int, _Kind], pin: Pin) -> bool:
        """Let the worker be one of this mode and kind; is it a new one?"""
        if self._worker is not None and self._is == kind:
            return False
        self._end()
        self._tell(self._place, pin, "starting a worker")
        try:
            self._worker = spawn_worker(self._python, self._layout.root, self._env)
            self._is = kind
            self.workers += 1
        except WorkerDied as error:
            self._broken = str(error)
        return True

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def _failed(reason: str) -> VerifyResult:
    return VerifyResult(ok=False, reason=reason, modes=0)
