"""One job in a worker of its own, within limits, and the end of its session's log.

The end of what a failed worker wrote to stderr is kept below the cache dir: its own memory dies
with it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from backend.disk import safe
from backend.disk.layout import Layout
from backend.disk.sessions import end_log
from backend.errors import StoreError
from backend.wire.jobs import Progress, WorkerJob
from rocm_tui.jobs.limits import JobError, Limits
from rocm_tui.jobs.worker import OnProgress, Worker, spawn_worker

R = TypeVar("R")


class RunJob(Protocol):
    """Does a job in a worker and gives what comes of it. Raises JobError."""

    def __call__(self, job: WorkerJob[R]) -> R: ...


def run_watched(
    job: WorkerJob[R],
    *,
    python: str,
    layout: Layout,
    env: Mapping[str, str],
    limits: Limits,
    on_progress: OnProgress,
    on_worker: Callable[[Worker], None] = lambda worker: None,
) -> R:
    """Do `job` in a worker; the log of its session gets an end, whatever became of the worker.

    Raises JobError, which tells where the end of what the worker wrote to stderr is kept.
    """
    log = ""

    def hear(progress: Progress) -> None:
        nonlocal log
        log = progress.log or log
        on_progress(progress)

    try:
        with spawn_worker(python, layout.root, env) as worker:
            on_worker(worker)
            try:
                return worker.run(job, hear, limits=limits)
            except JobError as error:
                error.log = keep_log(layout, job.name, worker.log())
                raise
    finally:
        with contextlib.suppress(StoreError):
            end_log(layout, Path(log))


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
    for old in sorted(folder.glob("*.log"))[:-KEPT]:
        with contextlib.suppress(OSError):
            old.unlink()
    return path
