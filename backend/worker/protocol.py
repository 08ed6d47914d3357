"""What goes over the pipes: one JSON object a line.

To the worker, a job:     {"id": 1, "job": "verify", ...its arguments}
From the worker, events:  {"id": 1, "event": "progress", "what": "...", ...}, any number, then one
                          {"id": 1, "event": "result", "result": {...}}
                          {"id": 1, "event": "error", "error": "one line"}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol, TextIO

Arguments = Mapping[str, Any]


class Progress(Protocol):
    """How a job says what it does; `facts` are JSON values for a program."""

    def __call__(self, what: str, **facts: Any) -> None: ...


class BadJob(Exception):
    """What was asked makes no sense: no such job, or an argument is missing or of another type."""


def text_argument(arguments: Arguments, name: str) -> str:
    """The argument `name`, a string. Raises BadJob."""
    value = arguments.get(name)
    if not isinstance(value, str):
        raise BadJob(f"the job needs the text `{name}`")
    return value


def parse_job(line: str) -> Arguments:
    """The object of a line. Raises BadJob."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadJob("a job is one JSON object on a line") from error
    if not isinstance(found, dict):
        raise BadJob("a job is one JSON object on a line")
    return found


class Answers:
    """Writes the events of one job."""

    def __init__(self, stream: TextIO, job_id: Any) -> None:
        self._stream = stream
        self._id = job_id

    def progress(self, what: str, **facts: Any) -> None:
        self._write({**facts, "event": "progress", "what": what})

    def result(self, result: Mapping[str, Any]) -> None:
        self._write({"event": "result", "result": dict(result)})

    def error(self, error: str) -> None:
        self._write({"event": "error", "error": " ".join(error.split())[:1000]})

    def _write(self, event: dict[str, Any]) -> None:
        self._stream.write(json.dumps({"id": self._id, **event}) + "\n")
        self._stream.flush()
