"""One job in a worker, within limits, and the end of its session's log.

The end of what a failed worker wrote to stderr is kept below the cache dir: its own memory dies
with it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from backend.disk import safe
from backend.disk.layout import Layout
from backend.disk.sessions import end_log
from backend.errors import StoreError
from backend.wire.jobs import Progress, WorkerJob
from rocm_tui.jobs.limits import JobError, Limits
from rocm_tui.jobs.warm import Workers
from rocm_tui.jobs.worker import OnProgress, Worker

R = TypeVar("R")
Q = TypeVar("Q")


class RunJob(Protocol):
    """Does a job in a worker and returns its result. Raises JobError."""

    def __call__(self, job: WorkerJob[R]) -> R: ...


class RunJobAt(RunJob, Protocol):
    """A `RunJob` that can also use other cache dirs, with a new worker for each job."""

    def at(self, layout: Layout) -> RunJob: ...


def run_watched(
    job: WorkerJob[R],
    *,
    python: str,
    layout: Layout,
    env: Mapping[str, str],
    limits: Limits,
    on_progress: OnProgress,
    on_worker: Callable[[Worker], None] = lambda worker: None,
    workers: Workers | None = None,
) -> R:
    """Do `job` in one of `workers`, or in a new worker; end the log of its session in any case.

    Raises JobError, which names the file with the end of the worker's stderr.
    """
    log = ""
    used: Worker | None = None

    def hear(progress: Progress) -> None:
        nonlocal log
        log = progress.log or log
        on_progress(progress)

    def take(worker: Worker) -> None:
        nonlocal used
        used = worker
        on_worker(worker)

    keeper = workers or Workers(layout.root, most=0)
    try:
        return keeper.run(job, hear, python=python, env=env, limits=limits, on_worker=take)
    except JobError as error:
        if used is not None:
            error.log = keep_log(layout, job.name, used.log())
        raise
    finally:
        with contextlib.suppress(StoreError):
            end_log(layout, Path(log))


class OfModes(Protocol):
    """An answer of a worker that worked in one of torch's `modes`."""

    @property
    def modes(self) -> int: ...


A = TypeVar("A", bound=OfModes)


def try_modes(
    questions: Iterable[Q], ask: Callable[[Q, int], A], settles: Callable[[A], bool]
) -> Iterator[tuple[Q, dict[int, A]]]:
    """Each question with its answers by torch mode, in the order in which they came, as soon as one
    settles it or it was asked in all modes.

    torch keeps what it made for one mode, so each mode needs a worker of its own. That of the last
    question is tried first for the next: programs seldom mix them.
    """
    left = [(question, dict[int, A]()) for question in questions]
    mode, modes, fits = 0, 1, set[int]()
    while left:
        pending = next((pair for pair in left if mode not in pair[1]), None)
        if pending is None:
            mode = (mode + 1) % modes
            continue
        question, answers = pending
        answer = answers[mode] = ask(question, mode)
        modes, settled = max(modes, answer.modes), settles(answer)
        if settled and answer.modes:
            fits.add(mode)
        if settled or len(answers) >= modes:
            left = [pair for pair in left if pair is not pending]
            yield pending
        elif mode not in fits:
            mode = (mode + 1) % modes


LEAST_BUDGET = 1.0
"""Seconds that the other choices get when one has ended the worker at the end of the budget."""


def without_broken(
    ask: Callable[[float], Q], blame: Callable[[JobError], None], budget: float
) -> Q:
    """Call `ask` with a budget in seconds, again with the rest whenever a worker dies.

    `blame` removes the choice that ended the worker, or raises if no choice is to blame.
    """
    while True:
        try:
            return ask(budget)
        except JobError as error:
            blame(error)
            left = None if error.last is None else error.last.seconds_left
            if left is not None:
                budget = max(LEAST_BUDGET, min(budget, left))


KEPT = 20
"""Logs that are kept, the newest."""


def keep_log(layout: Layout, name: str, lines: Sequence[str]) -> Path | None:
    """Write the lines as a file of the job `name`; None if there are none, or they cannot be kept.

    They are what libraries and compilers printed: a file to look at, not yet fit for a terminal.
    """
    if not any(line.strip() for line in lines):
        return None
    folder = layout.home / "failed"
    now = time.time_ns()
    when = time.strftime("%Y%m%d-%H%M%S", time.localtime(now // 10**9))
    path = folder / f"{when}-{now % 10**9:09d}-{name}.log"
    try:
        safe.make_folder(layout.root, folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o666), "w", encoding="utf-8") as stream:
            stream.writelines(f"{line}\n" for line in lines)
    except (OSError, StoreError):
        return None
    others = sorted(old for old in folder.glob("*.log") if old != path)
    for old in others[: -(KEPT - 1)]:  # the clock may have been set back
        with contextlib.suppress(OSError):
            old.unlink()
    return path
