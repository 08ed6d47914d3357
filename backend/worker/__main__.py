"""`python -m backend.worker`: jobs on stdin, events on stdout, what libraries print on stderr.

The worker's life: read a job, do it, answer, until stdin ends.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import traceback
from typing import Any, TextIO

from backend.processes.supervisor import apart, keep
from backend.wire.codec import to_json
from backend.wire.jobs import BadJob, job_of
from backend.worker.protocol import Answers, Words, mark_argument, parse_job


def main() -> int:
    jobs, channel = _private_jobs(), _private_stdout()
    keep(jobs.fileno(), channel, 1, 2)
    for line in jobs:
        if line.strip():
            _answer(line, channel)
            _tidy()
    return 0


def _answer(line: str, channel: int) -> None:
    answers = Answers(channel, None, "")
    try:
        words = dict(parse_job(line))
        answers = Answers(channel, words.get("id"), str(words.pop("token", "")))
        boundary = _boundary()
        if boundary is not None and boundary.stale():
            answers.stale()
            return
        result = _run(words, answers)
        boundary = _boundary()
        answers.result(result, boundary is not None and boundary.spent())
    except BadJob as error:
        answers.error(str(error))
    except BaseException as error:  # the outermost boundary of a job: the next one may go well
        traceback.print_exc()
        answers.error(f"{type(error).__name__}: {error}")


def _run(words: Words, answers: Answers) -> Words:
    """Each kind of job is a module, which loads torch: `run(job, tell, mark)` gives the result."""
    job, mark = job_of(words), mark_argument(words)
    gc.disable()  # `begin` enables it: half a second of looking for garbage in torch's modules
    kind = importlib.import_module(f"backend.worker.jobs.{job.name}")
    boundary = importlib.import_module("backend.worker.boundary")
    boundary.begin()
    return to_json(boundary.run_here(kind.run, job, answers.progress, mark))


def _tidy() -> None:
    """Once the answer is out, for the next job. Raises RuntimeError where there can be none."""
    boundary = _boundary()
    if boundary is not None:
        boundary.tidy()


def _boundary() -> Any:
    """The module `boundary`, which loads torch; None before the first job."""
    return sys.modules.get("backend.worker.boundary")


def _private_jobs() -> TextIO:
    """Our stdin for ourselves; there is nothing to be read for a choice."""
    private = os.fdopen(os.dup(0), encoding="utf-8", errors="replace")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return private


def _private_stdout() -> int:
    """Our stdout for ourselves; what libraries and compilers print there goes to stderr."""
    sys.stdout.flush()
    private = os.dup(1)
    os.dup2(2, 1)
    return private


if __name__ == "__main__":
    sys.exit(apart(main))
