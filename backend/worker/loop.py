"""The worker's life: read a job, do it, answer, until stdin ends."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Mapping
from typing import Any, TextIO

from backend.worker import house
from backend.worker.protocol import Answers, Arguments, BadJob, parse_job

JOBS = ("environment", "measure", "peak", "tune", "verify")
"""Each is a module of `backend.worker.jobs` with `run(arguments, progress) -> result`."""


def main() -> int:
    jobs, channel = _private_jobs(), _private_stdout()
    house.keep(jobs.fileno(), channel, 1, 2)
    for line in jobs:
        if line.strip():
            _answer(line, channel)
    return 0


def _answer(line: str, channel: int) -> None:
    answers = Answers(channel, None, "")
    try:
        arguments = dict(parse_job(line))
        answers = Answers(channel, arguments.get("id"), str(arguments.pop("token", "")))
        answers.result(_run(arguments, answers))
    except BadJob as error:
        answers.error(str(error))
    except BaseException as error:  # the outermost boundary of a job: the next one may go well
        traceback.print_exc()
        answers.error(f"{type(error).__name__}: {error}")


def _run(arguments: Arguments, answers: Answers) -> Mapping[str, Any]:
    name = arguments.get("job")
    if name not in JOBS:
        raise BadJob(f"no such job: {name}")
    job = importlib.import_module(f"backend.worker.jobs.{name}")
    result: Mapping[str, Any] = job.run(arguments, answers.progress)
    return result


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
