"""`python -m backend.worker`: jobs on stdin, events on stdout, output of libraries on stderr.

The worker reads a job, runs it, answers, and repeats until stdin ends.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import traceback
from typing import Any, TextIO

from backend.processes.supervisor import keep, supervised
from backend.wire.codec import to_json
from backend.wire.jobs import JobInvalid, job_of
from backend.worker.protocol import EventSender, Words, mark_argument, parse_job


def main() -> int:
    jobs, channel = _private_jobs(), _private_stdout()
    keep(jobs.fileno(), channel, 1, 2)
    for line in jobs:
        if line.strip():
            _answer(line, channel)
            _tidy()
    return 0


def _answer(line: str, channel: int) -> None:
    answers = EventSender(channel, None, "")
    try:
        words = dict(parse_job(line))
        answers = EventSender(channel, words.get("id"), str(words.pop("token", "")))
        boundary = _boundary()
        if boundary is not None and boundary.stale():
            answers.stale()
            return
        result = _run(words, answers)
        boundary = _boundary()
        answers.result(result, boundary is not None and boundary.spent())
    except JobInvalid as error:
        answers.error(str(error))
    except BaseException as error:  # the outermost boundary of a job: the next one may succeed
        traceback.print_exc()
        answers.error(f"{type(error).__name__}: {error}")


def _run(words: Words, answers: EventSender) -> Words:
    """Run a job in its kind's module, which loads torch: `run(job, progress, mark)`."""
    job, mark = job_of(words), mark_argument(words)
    gc.disable()  # `begin` enables it; collecting in torch's modules takes half a second
    kind = importlib.import_module(f"backend.worker.jobs.{job.name}")
    boundary = importlib.import_module("backend.worker.boundary")
    boundary.begin()
    return to_json(boundary.run_here(kind.run, job, answers.progress, mark))


def _tidy() -> None:
    """Clean up for the next job, after the answer. Raises RuntimeError if none is possible."""
    boundary = _boundary()
    if boundary is not None:
        boundary.tidy()


def _boundary() -> Any:
    """Return the module `boundary`, which loads torch; None before the first job."""
    return sys.modules.get("backend.worker.boundary")


def _private_jobs() -> TextIO:
    """Return our stdin; a choice that reads stdin gets nothing."""
    private = os.fdopen(os.dup(0), encoding="utf-8", errors="replace")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return private


def _private_stdout() -> int:
    """Return our stdout; output of libraries and compilers goes to stderr."""
    sys.stdout.flush()
    private = os.dup(1)
    os.dup2(2, 1)
    return private


if __name__ == "__main__":
    sys.exit(supervised(main))
