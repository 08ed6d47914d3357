"""The worker's life: read a job, do it, answer, until stdin ends or the parent is gone."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import traceback
from collections.abc import Mapping
from typing import Any, TextIO

from backend.worker.protocol import Answers, Arguments, BadJob, parse_job

_PR_SET_PDEATHSIG = 1  # linux/prctl.h

JOBS = ("environment", "measure", "peak", "tune", "verify")
"""Each is a module of `backend.worker.jobs` with `run(arguments, progress) -> result`."""


def main() -> int:
    parent = os.getppid()
    _die_with_parent()
    if os.getppid() != parent:
        return 1  # it died before we could ask to be told
    out = _private_stdout()
    for line in sys.stdin:
        if line.strip():
            _answer(line, out)
    return 0


def _answer(line: str, out: TextIO) -> None:
    answers = Answers(out, None)
    try:
        arguments = parse_job(line)
        answers = Answers(out, arguments.get("id"))
        answers.result(_run(arguments, answers))
    except BadJob as error:
        answers.error(str(error))
    except Exception as error:  # the outermost boundary of a job: the next one may go well
        traceback.print_exc()
        answers.error(f"{type(error).__name__}: {error}")


def _run(arguments: Arguments, answers: Answers) -> Mapping[str, Any]:
    name = arguments.get("job")
    if name not in JOBS:
        raise BadJob(f"no such job: {name}")
    job = importlib.import_module(f"backend.worker.jobs.{name}")
    result: Mapping[str, Any] = job.run(arguments, answers.progress)
    return result


def _private_stdout() -> TextIO:
    """Our stdout for ourselves; what libraries and compilers print there goes to stderr."""
    sys.stdout.flush()
    private = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return private


def _die_with_parent() -> None:
    """Ask Linux to kill us when the parent ends, however it ends."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
