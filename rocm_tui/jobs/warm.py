"""Workers that are kept for the next job: starting one takes seconds, a warm one is ready at once.

A worker serves jobs with equal `Needs`, in one Python, one environment and one cache dir. It is not
kept after a job without a result, or when it reports that it is spent. A worker that is idle for
some minutes ends, and all workers end with us.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from backend.disk.layout import Layout
from backend.model.origin import is_own
from backend.processes import tree
from backend.wire.jobs import (
    CompileJob,
    EnvironmentJob,
    MeasureJob,
    TrialJob,
    TuneJob,
    VerifyJob,
    WorkerJob,
)
from rocm_tui.jobs.limits import Limits, memory_of_machine, proportional, resident
from rocm_tui.jobs.worker import OnProgress, Stale, Worker, spawn_worker

R = TypeVar("R")

IDLE = 300.0
"""Seconds that a worker waits for its next job."""
MOST = 2
"""Workers of one Python and environment. On a GPU each holds a context, some 500 MB."""
IDLE_SHARE = 0.25
"""The part of the machine's memory above which a worker is not kept."""


@dataclass(frozen=True, slots=True)
class Needs:
    """State of a process that cannot be reset; a job only goes to a worker with equal needs.

    `kind`: a proof about a fresh program needs a process that has not tuned or measured; a worker
    that has only described its environment accepts a tuning of any needs. `mode`: torch keeps the
    kernels that it generated in one autotune mode. `precision`: once set, it is part of the keys of
    compiled graphs. `templates`: they stay registered. `private`: the cache dir of trials, instead
    of the person's.
    """

    kind: str
    mode: int = 0
    precision: str | None = None
    templates: bool = False
    private: bool = False


_TOGETHER = {MeasureJob.name, TuneJob.name}
"""Jobs that one process may do one after another."""
_CHOICES, _FRESH = "choices", "fresh"


def needs_of(job: WorkerJob[Any]) -> Needs:
    return Needs(
        _kind(job),
        int(getattr(job, "mode", 0)),
        getattr(job, "precision", None),
        _offers_ours(job),
        isinstance(job, TrialJob) and not job.stock,
    )


def _kind(job: WorkerJob[Any]) -> str:
    """A process that compiles for a GPU takes that one for real to its end."""
    if isinstance(job, CompileJob):
        return f"{job.name} {job.gpu}"
    if job == EnvironmentJob():
        return _FRESH
    return _CHOICES if job.name in _TOGETHER else job.name


def _serves(idle: Needs, wanted: Needs) -> bool:
    """Whether a worker with the needs `idle` may do a job with the needs `wanted`."""
    return idle == wanted or (idle.kind == _FRESH and wanted.kind == _CHOICES)


def _offers_ours(job: WorkerJob[Any]) -> bool:
    if isinstance(job, MeasureJob):
        return any(map(is_own, job.hashes))
    if isinstance(job, VerifyJob):
        return is_own(job.hash)
    return bool(getattr(job, "templates", False))


_Lane = tuple[str, tuple[tuple[str, str], ...]]
"""A Python and an environment."""


@dataclass(slots=True)
class _Idle:
    lane: _Lane
    needs: Needs
    worker: Worker
    since: float = field(default_factory=time.monotonic)


class Workers:
    """The workers of one cache dir, safe to use from several threads.

    Two jobs at once have two workers. With `most` 0 none is kept: each job has a new worker.
    """

    def __init__(self, root: Path, *, most: int = MOST, idle: float = IDLE) -> None:
        self._root = root
        self._most = most
        self._seconds = idle
        self._lock = threading.Lock()
        self._idle: list[_Idle] = []  # the one that was used last is the last
        self._timer: threading.Timer | None = None
        self._over = False

    def run(
        self,
        job: WorkerJob[R],
        on_progress: OnProgress,
        *,
        python: str,
        env: Mapping[str, str] = os.environ,
        limits: Limits,
        on_start: Callable[[], None] = lambda: None,
        on_worker: Callable[[Worker], None] = lambda worker: None,
    ) -> R:
        """Do `job` in a warm worker, else in a new one; `on_start` is called before one is started,
        `on_worker` gets the one that is taken. Raises JobError."""
        lane, needs = (python, tuple(sorted(env.items()))), needs_of(job)
        fresh = bool(getattr(job, "fresh", False))
        worker = None if fresh else self._take(lane, needs)
        while True:
            warm = worker is not None
            if worker is None:
                on_start()
                root = Layout(self._root).trials if needs.private else self._root
                worker = spawn_worker(python, root, env)
            with self._using(worker, lane, needs) as keep:
                on_worker(worker)
                try:
                    result = worker.run(job, on_progress, limits=limits)
                except Stale:
                    if not warm:
                        raise
                else:
                    keep(not fresh and not worker.spent and not getattr(result, "spent", False))
                    return result
            worker = None

    @contextlib.contextmanager
    def _using(self, worker: Worker, lane: _Lane, needs: Needs) -> Iterator[Callable[[bool], None]]:
        """The worker ends with the block, unless it is said to keep it."""
        kept: list[bool] = []
        try:
            yield kept.append
        finally:
            if not (any(kept) and self._put_back(_Idle(lane, needs, worker))):
                worker.close()

    def end(self) -> None:
        """End all that wait; those at work end with their job."""
        with self._lock:
            self._over = True
            self._stop_timer()
            idle, self._idle = self._idle, []
        _close(idle)

    @property
    def waiting(self) -> list[int]:
        """The process ids of the workers that wait for a job."""
        with self._lock:
            return [idle.worker.pid for idle in self._idle]

    def _take(self, lane: _Lane, needs: Needs) -> Worker | None:
        """Return a warm worker, or end the oldest of this lane to make room for a new one."""
        taken: Worker | None = None
        with self._lock:
            ended = [idle for idle in self._idle if not idle.worker.alive]
            fitting = [
                idle
                for idle in self._idle
                if idle not in ended and idle.lane == lane and _serves(idle.needs, needs)
            ]
            if fitting:
                taken = fitting[-1].worker
            else:
                others = [idle for idle in self._idle if idle not in ended and idle.lane == lane]
                ended += others[: max(0, len(others) - self._most + 1)]
            self._idle = [
                idle for idle in self._idle if idle not in ended and idle.worker is not taken
            ]
        _close(ended)
        return taken

    def _put_back(self, idle: _Idle) -> bool:
        if self._most == 0 or not idle.worker.alive or _is_large(idle.worker):
            return False
        with self._lock:
            if self._over:
                return False
            others = [other for other in self._idle if other.lane == idle.lane]
            ended = others[: max(0, len(others) - self._most + 1)]
            self._idle = [*(other for other in self._idle if other not in ended), idle]
            self._start_timer()
        _close(ended)
        return True

    def _end_old(self) -> None:
        with self._lock:
            self._timer = None
            latest = time.monotonic() - self._seconds
            ended = [idle for idle in self._idle if idle.since <= latest]
            self._idle = [idle for idle in self._idle if idle.since > latest]
            self._start_timer()
        _close(ended)

    def _start_timer(self) -> None:
        """Start the timer for the worker that has waited longest; the lock is held."""
        self._stop_timer()
        if self._idle and not self._over:
            left = min(idle.since for idle in self._idle) + self._seconds - time.monotonic()
            self._timer = threading.Timer(max(0.0, left), self._end_old)
            self._timer.daemon = True
            self._timer.start()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _close(ended: list[_Idle]) -> None:
    for idle in ended:
        idle.worker.close()


def _is_large(worker: Worker) -> bool:
    """Whether a worker is too large to keep; memory shared with its compilers counts once."""
    processes, most = tree.tree(worker.pid), memory_of_machine() * IDLE_SHARE
    return resident(processes) > most and proportional(processes) > most
