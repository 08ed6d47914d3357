"""The queue of a screen's jobs: one at a time on each device, several devices side by side.

Each runs in a thread of its own that waits for its worker. Others see frozen snapshots. A worker
that fails ends its own job and nothing else.
"""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from backend.disk.layout import Layout
from backend.errors import StoreError
from backend.model.problem import TuningKey
from backend.model.tuning import Tuning
from backend.wire.jobs import Progress, WorkerJob
from rocm_tui.environment import find_python
from rocm_tui.errors import RocmTuiError
from rocm_tui.harmless import plain
from rocm_tui.jobs.limits import JobError, Limits
from rocm_tui.jobs.run import RunJob, run_watched
from rocm_tui.jobs.warm import Workers
from rocm_tui.jobs.worker import Worker

R = TypeVar("R")
JobState = Literal["queued", "running", "done", "failed", "cancelled"]
JobKind = Literal["tune", "measure", "verify", "trial", "improve", "prove"]

KEPT = 200
"""Ended jobs that are remembered."""
_PATIENCE = 3.0
"""Seconds that the end of the program waits for the threads; their workers are dead by then."""


@dataclass(frozen=True, slots=True)
class Order:
    """A requested job. `work` gets a function that does a job in a worker, and says in a
    line what came out; it may raise RocmTuiError. `lane` is what it takes for itself: a device.
    `command` does the same in a shell.

    `other_lanes` are further devices that may do it instead, with the environments of their
    workers. The first that is free does it; where its worker gives no result, another one of them
    tries once more.
    """

    kind: JobKind
    title: str
    lane: str
    work: Callable[[QueueRun], str]
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    key: TuningKey | None = None
    tuning: str | None = None
    command: str = ""
    other_lanes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Job:
    """How an order is doing. Times are Unix seconds; `key` and `tuning` are what it is about.

    `step` is where a job of several is: `done` of `total` parts, and `until` when the time that it
    may take is over. `outcome` is what came out of a job that is done, `reason` why one failed;
    `log` are the last lines that its worker wrote to stderr.
    """

    id: int
    kind: JobKind
    title: str
    device: str
    key: TuningKey | None
    tuning: str | None
    state: JobState
    started: float | None = None
    ended: float | None = None
    progress: Progress = field(default_factory=Progress)
    step: str = ""
    done: int = 0
    total: int = 0
    until: float | None = None
    outcome: str = ""
    reason: str = ""
    log: tuple[str, ...] = ()
    command: str = ""

    @property
    def over(self) -> bool:
        return self.state not in ("queued", "running")

    def is_about(self, tuning: Tuning, ids: AbstractSet[str]) -> bool:
        """Whether it is about a tuning that has these ids."""
        same = self.key is not None and self.key == tuning.key
        return same or self.tuning in ids or self.progress.log in tuning.sources


@dataclass(slots=True)
class _Entry:
    order: Order
    job: Job
    lanes: dict[str, Mapping[str, str]]
    """The devices that may do it, with the environments of their workers."""
    retried: bool = False
    worker: Worker | None = None
    thread: threading.Thread | None = None


@dataclass(frozen=True, slots=True)
class QueueRun:
    """The `RunJobAt` of an order: the queue can cancel it, and shows its progress as the step."""

    queue: JobQueue
    entry: _Entry
    layout: Layout | None = None

    def __call__(self, job: WorkerJob[R]) -> R:
        return self.queue.run(self.entry, job, self.layout)

    def at(self, layout: Layout) -> RunJob:
        return replace(self, layout=layout)

    @property
    def lane(self) -> str:
        """The device that does it."""
        return self.entry.job.device

    def tell(self, step: str, done: int = 0, total: int = 0, left: float | None = None) -> None:
        """`done` of `total` parts are done; `left` are the seconds of the budget that are left."""
        self.queue.told(self.entry, step, done, total, left)


class _Cancelled(RocmTuiError):
    """The job was cancelled before its next worker was started."""


class JobQueue:
    """Safe to use from several threads. `wake` is called when something changed since `look` was
    called last; it must not block."""

    def __init__(
        self,
        layout: Layout,
        wake: Callable[[], None],
        *,
        python: str | None = None,
        limits: Limits | None = None,
        workers: Workers | None = None,
    ) -> None:
        self._layout = layout
        self._wake = wake
        self._python = python
        self._python_path: str | None = None
        self._limits = limits or Limits.of_this_machine()
        self._workers = workers or Workers(layout.root)
        self._lock = threading.RLock()
        self._entries: dict[int, _Entry] = {}
        self._running: dict[str, _Entry] = {}
        self._ended: list[Job] = []
        self._last_id = 0
        self._woken = False
        self._stopping = False

    # What a screen does.

    def submit(self, order: Order) -> Job:
        """Put `order` behind the others of its devices."""
        with self._lock:
            self._last_id += 1
            job = Job(
                id=self._last_id,
                kind=order.kind,
                title=order.title,
                device=order.lane,
                key=order.key,
                tuning=order.tuning,
                command=order.command,
                state="queued",
            )
            lanes = {order.lane: order.env, **order.other_lanes}
            entry = self._entries[job.id] = _Entry(order, job, lanes)
            self._forget_old()
            self._start_on(entry.lanes)
        self._ring()
        return self._entries[job.id].job

    def cancel(self, id: int, *, wait: bool = False) -> bool:
        """End a job at once; False if it is over. With `wait` its worker is gone afterwards."""
        with self._lock:
            entry = self._entries.get(id)
            if entry is None or entry.job.over:
                return False
            self._end(entry, "cancelled")
            worker = entry.worker
        if worker is not None:
            # What it started may be in a disk or GPU call, which takes up to 20 s: not on a screen.
            killing = threading.Thread(target=worker.kill, name="kill", daemon=True)
            killing.start()
            if wait:
                killing.join()
        self._ring()
        return True

    def look(self) -> tuple[list[Job], list[Job]]:
        """Return all jobs, newest first, and the jobs that ended since the last look."""
        with self._lock:
            self._woken = False
            ended, self._ended = self._ended, []
            return self.jobs(), ended

    def jobs(self) -> list[Job]:
        """Return all jobs, newest first."""
        with self._lock:
            return [entry.job for entry in reversed(self._entries.values())]

    def about(self, tuning: Tuning, ids: AbstractSet[str]) -> Job | None:
        """Return the newest unfinished job about a tuning with these ids."""
        for job in self.jobs():
            if not job.over and job.is_about(tuning, ids):
                return job
        return None

    def log(self, id: int) -> list[str]:
        """The last lines that the worker of a job wrote to stderr, made harmless."""
        with self._lock:
            entry = self._entries.get(id)
            worker = None if entry is None else entry.worker
        if entry is None:
            return []
        return list(entry.job.log) if worker is None else [plain(line) for line in worker.log()]

    def stop(self) -> None:
        """End every job and all workers; nothing can be submitted any more."""
        with self._lock:
            self._stopping = True
            threads = [entry.thread for entry in self._running.values()]
        for job in self.jobs():
            self.cancel(job.id, wait=True)
        for thread in threads:
            if thread is not None:
                thread.join(_PATIENCE)
        self._workers.end()

    # What the threads do.

    def _start_on(self, lanes: Iterable[str]) -> None:
        """Start the oldest job that waits for each of these devices. The lock is held."""
        for lane in lanes:
            self._next(lane)

    def _next(self, lane: str) -> None:
        """Start the oldest job that waits for a free device. The lock is held."""
        if lane in self._running or self._stopping:
            return
        for entry in self._entries.values():
            if entry.job.state == "queued" and lane in entry.lanes:
                entry.job = replace(entry.job, state="running", device=lane, started=time.time())
                name = f"job {entry.job.id}"
                thread = threading.Thread(target=self._work, args=(entry,), name=name, daemon=True)
                self._running[lane], entry.thread = entry, thread
                try:
                    thread.start()
                except RuntimeError as error:  # a limit of the system: the next job may start later
                    del self._running[lane]
                    entry.thread = None
                    self._end(entry, "failed", reason=plain(str(error)))
                else:
                    return

    def _work(self, entry: _Entry) -> None:
        try:
            outcome = entry.order.work(QueueRun(self, entry))
        except (RocmTuiError, StoreError) as error:
            if not (isinstance(error, JobError) and self._retry(entry)):
                self._finish(entry, "failed", reason=str(error))
        except Exception as error:  # the outermost boundary: the screen lives on
            trace = traceback.format_exc().splitlines()
            entry.job = replace(entry.job, log=(*entry.job.log, *map(plain, trace)))
            self._finish(entry, "failed", reason=f"{type(error).__name__}: {error}")
        else:
            self._finish(entry, "done", outcome=outcome)

    def _retry(self, entry: _Entry) -> bool:
        """Queue a job again, once, for the devices that have not had it; False without any."""
        with self._lock:
            lane = entry.job.device
            lanes = {name: env for name, env in entry.lanes.items() if name != lane}
            if entry.retried or not lanes or entry.job.over or self._stopping:
                return False
            entry.retried, entry.lanes = True, lanes
            entry.job = replace(entry.job, state="queued", progress=Progress())
            del self._running[lane]
            self._start_on([*lanes, lane])
        self._ring()
        return True

    def run(self, entry: _Entry, job: WorkerJob[R], layout: Layout | None) -> R:
        """Do a job of an entry, in another cache dir if one is given."""
        if entry.job.over:
            raise _Cancelled("cancelled")
        try:
            return run_watched(
                job,
                python=self._torch_python(),
                layout=layout or self._layout,
                env=entry.lanes[entry.job.device],
                limits=self._limits,
                on_progress=lambda progress: self._progressed(entry, progress),
                on_worker=lambda worker: self._started(entry, worker),
                workers=None if layout else self._workers,
            )
        except JobError as error:
            if entry.job.over:  # its worker was ended: that says nothing of the job
                raise _Cancelled("cancelled") from error
            raise
        finally:
            with self._lock:
                worker, entry.worker = entry.worker, None
                if worker is not None:
                    log = tuple(plain(line) for line in worker.log())
                    entry.job = replace(entry.job, log=log)

    def _torch_python(self) -> str:
        """Raises NoTorchPython."""
        if self._python_path is None:
            self._python_path = find_python(self._python)
        return self._python_path

    def _started(self, entry: _Entry, worker: Worker) -> None:
        with self._lock:
            entry.worker = worker
            cancelled = entry.job.over
        if cancelled:
            worker.kill()

    def _progressed(self, entry: _Entry, progress: Progress) -> None:
        with self._lock:
            if not entry.job.over:
                entry.job = replace(entry.job, progress=progress)
        self._ring()

    def told(
        self, entry: _Entry, step: str, done: int = 0, total: int = 0, left: float | None = None
    ) -> None:
        """Where an entry of several jobs is."""
        until = None if left is None else time.time() + left
        with self._lock:
            if not entry.job.over:
                at = replace(entry.job, step=plain(step), done=done, total=total, until=until)
                entry.job = at
        self._ring()

    def _finish(self, entry: _Entry, state: JobState, outcome: str = "", reason: str = "") -> None:
        with self._lock:
            if not entry.job.over:
                self._end(entry, state, plain(outcome), plain(reason))
            del self._running[entry.job.device]
            self._next(entry.job.device)
        self._ring()

    def _end(self, entry: _Entry, state: JobState, outcome: str = "", reason: str = "") -> None:
        entry.job = replace(
            entry.job, state=state, ended=time.time(), outcome=outcome, reason=reason
        )
        self._ended.append(entry.job)

    def _forget_old(self) -> None:
        over = [id for id, entry in self._entries.items() if entry.job.over]
        for id in over[: max(0, len(over) - KEPT)]:
            del self._entries[id]

    def _ring(self) -> None:
        with self._lock:
            if self._woken:
                return
            self._woken = True
        self._wake()
