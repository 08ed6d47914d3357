"""One job in a worker of its own, within limits, and the end of its session log."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from backend.disk.layout import Layout
from backend.disk.sessions import end_log
from backend.errors import StoreError
from rocm_tui.job_log import keep_log
from rocm_tui.jobs import JobError, Limits, Worker, spawn_worker

RunJob = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Does a job in a worker and gives its result. Raises JobError."""


def run_watched(
    job: Mapping[str, Any],
    *,
    python: str,
    layout: Layout,
    env: Mapping[str, str],
    limits: Limits,
    on_event: Callable[[Mapping[str, Any]], None],
    on_worker: Callable[[Worker], None] = lambda worker: None,
) -> dict[str, Any]:
    """Do `job` in a worker; the log of its session gets an end, whatever became of the worker.

    Raises JobError, which tells where the end of what the worker wrote to stderr is kept.
    """
    log = ""

    def heard(event: Mapping[str, Any]) -> None:
        nonlocal log
        log = str(event.get("log") or log)
        on_event(event)

    try:
        with spawn_worker(python, layout.root, env) as worker:
            on_worker(worker)
            try:
                return worker.run(job, heard, limits=limits)
            except JobError as error:
                error.log = keep_log(layout, str(job.get("job")), worker.log())
                raise
    finally:
        with contextlib.suppress(StoreError):
            end_log(layout, Path(log))
