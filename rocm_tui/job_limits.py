"""What a worker may take: time, silence, memory."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rocm_tui import process_tree
from rocm_tui.job_errors import JobTimeout, TooMuchMemory
from rocm_tui.job_mark import SharedMark

SILENCE = 900.0
"""Seconds without a word after which a worker counts as hung. A kernel may compile for minutes."""

SHARE = 0.8
"""The part of the machine's memory that a worker with all that it starts may take."""

STUCK = 60.0
"""Seconds that one choice may run before it counts as hung: a sample is a few calls."""

_LOOK = 0.25
"""Seconds between two looks at a worker."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a job may take; None is no limit. `memory` is in bytes, of `of` bytes that there are;
    `stuck` is for a single choice that the worker has marked as running."""

    seconds: float | None = None
    silence: float | None = SILENCE
    stuck: float | None = STUCK
    memory: int | None = None
    of: int | None = None

    @classmethod
    def of_this_machine(cls) -> Limits:
        """No end, but a worker must say something now and then, and leave memory for others."""
        there = process_tree.memory_of_machine()
        return cls(memory=None if there is None else int(there * SHARE), of=there)


class Clock:
    """Looks at the limits of one job while its worker is silent."""

    def __init__(self, limits: Limits, mark: SharedMark) -> None:
        self._limits = limits
        self._mark = mark
        self._began = self._heard = self._next = time.monotonic()

    @property
    def wait(self) -> float:
        """Seconds until the next look."""
        return max(0.0, min(self._left(), self._next - time.monotonic()))

    def heard(self) -> None:
        self._heard = time.monotonic()

    def look(self, pid: int) -> None:
        """Raises JobTimeout and TooMuchMemory."""
        limits, now = self._limits, time.monotonic()
        if limits.seconds is not None and now - self._began >= limits.seconds:
            raise JobTimeout(
                f"the worker gave no result within {limits.seconds:.0f} s and was killed"
            )
        if limits.silence is not None and now - self._heard >= limits.silence:
            raise JobTimeout(f"the worker said nothing for {limits.silence:.0f} s and was killed")
        if now >= self._next:
            self._next = now + _LOOK
            if limits.stuck is not None and self._mark.running_for() >= limits.stuck:
                raise JobTimeout(f"it ran for {limits.stuck:.0f} s without an end and was killed")
            if limits.memory is not None:
                _check_memory(pid, limits.memory, limits.of)

    def _left(self) -> float:
        now = time.monotonic()
        ends = [
            since + limit - now
            for since, limit in (
                (self._began, self._limits.seconds),
                (self._heard, self._limits.silence),
            )
            if limit is not None
        ]
        return min(ends, default=_LOOK)


def _check_memory(pid: int, limit: int, of: int | None) -> None:
    processes = process_tree.tree(pid)
    if process_tree.resident(processes) <= limit:
        return
    used = process_tree.proportional(processes)
    if used > limit:
        there = process_tree.gib(of if of is not None else limit)
        raise TooMuchMemory(f"it used {process_tree.gib(used)} of {there} and was ended")
