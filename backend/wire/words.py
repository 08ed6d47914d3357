"""Jobs and what comes of them as words of JSON, and back; what is read is checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import MISSING
from typing import Any, TypeVar

from backend.wire.codec import WireError, read, to_json
from backend.wire.jobs import (
    BadAnswer,
    BadJob,
    CompileJob,
    EnvironmentJob,
    MeasureJob,
    PeakJob,
    Progress,
    TrialJob,
    TuneJob,
    VerifyJob,
    WorkerJob,
)
from backend.wire.tunableop import TunableOpJob

R = TypeVar("R")

JOBS: Mapping[str, type[WorkerJob[Any]]] = {
    kind.name: kind
    for kind in (
        CompileJob,
        EnvironmentJob,
        MeasureJob,
        PeakJob,
        TrialJob,
        TunableOpJob,
        TuneJob,
        VerifyJob,
    )
}


def job_words(job: WorkerJob[Any]) -> dict[str, Any]:
    """A job as the worker reads it."""
    return {"job": job.name, **to_json(job)}


def job_of(words: Mapping[str, Any]) -> WorkerJob[Any]:
    """The job that somebody asks for. Raises BadJob."""
    name = words.get("job")
    kind: Any = JOBS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise BadJob(f"no such job: {name}")
    for needed in dataclasses.fields(kind):
        optional = needed.default is not MISSING or needed.default_factory is not MISSING
        if needed.name not in words and not optional:
            what = "the text " if needed.type == "str" else ""
            raise BadJob(f"the job needs {what}`{needed.name}`")
    try:
        job: WorkerJob[Any] = read(kind, dict(words))
    except WireError as error:
        raise BadJob(f"the job's {error}") from error
    return job


def answer_of(job: WorkerJob[R], words: Mapping[str, Any]) -> R:
    """What came of `job`. Raises BadAnswer."""
    try:
        answer: R = read(job.answer, dict(words))
    except WireError as error:
        raise BadAnswer(f"the worker's answer makes no sense: {error}") from error
    return answer


def progress_of(words: Mapping[str, Any]) -> Progress:
    """What a worker says of its progress; nothing where that makes no sense."""
    try:
        return read(Progress, dict(words))
    except WireError:
        return Progress()
