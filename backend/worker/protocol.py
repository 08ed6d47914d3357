"""The messages on the pipes: JSON objects.

To the worker, a job:     {"id": 1, "job": "verify", "token": "...", "mark": 5, ...its fields}
From the worker, events:  {"id": 1, "event": "progress", "what": "...", ...}, any number, then one
                          {"id": 1, "event": "result", "result": {...}, "spent": false}
                          {"id": 1, "event": "error", "error": "one line"}
                          {"id": 1, "event": "stale"}

A worker whose result is `spent` can do no further job; a `stale` one has not begun this one.

A job is a line. An event is one or more lines that begin with the job's token, since a choice that
runs in the worker may write to any descriptor: other lines are not ours. A line is short enough to
be written atomically. The fields are defined in `backend.wire.jobs`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import termios
import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from backend.counted import counted
from backend.measure.rounds import OnRounds, Rounds
from backend.processes.shared import MARK_SIZE, ChoiceMark
from backend.wire.codec import WireError, dumps, loads
from backend.wire.jobs import JobInvalid

Words = Mapping[str, Any]
"""A JSON object."""


class ReportProgress(Protocol):
    """Reports the progress of a job; `fields` are those of `Progress`."""

    def __call__(self, what: str, **fields: Any) -> None: ...


def rounds_reporter(
    progress: ReportProgress, names: Mapping[str, str] = MappingProxyType({}), of: str = ""
) -> OnRounds:
    """Return a reporter of a measurement's rounds, and of how many verdicts are clear."""

    def report(rounds: Rounds, seconds: float) -> None:
        standings, left = rounds.standings, round(max(0.0, seconds), 1)
        settled = sum(standing.verdict != "unclear" for standing in standings[1:])
        best = names.get(standings[0].hash, "") if standings else ""
        ahead = (
            f", {settled} of {counted(len(standings) - 1, 'verdict')} clear" if standings else ""
        )
        ahead += f", best {best}" if best else ""
        progress(
            f"{counted(rounds.clean.count, 'round')}{of}{ahead}, at most {left:.0f} s left",
            rounds=rounds.clean.count,
            settled=settled,
            choices=len(rounds.hashes),
            best=best,
            seconds_left=left,
        )

    return report


def parse_job(line: str) -> Words:
    """Parse the object of a line. Raises JobInvalid."""
    words = _object(line)
    if words is None:
        raise JobInvalid("a job is one JSON object on a line")
    return words


def _object(text: str | bytes) -> Words | None:
    try:
        value = loads(text)
    except WireError:
        return None
    return value if isinstance(value, dict) else None


_marks: dict[int, ChoiceMark] = {}


def mark_argument(words: Words) -> ChoiceMark:
    """Return the mark of `mark`, a descriptor of `MARK_SIZE` bytes; optional. Raises JobInvalid."""
    descriptor = words.get("mark")
    if descriptor is None:
        return ChoiceMark()
    try:
        if descriptor not in _marks:
            _marks[descriptor] = ChoiceMark(descriptor)
            os.close(descriptor)  # so that nobody else writes there
        return _marks[descriptor]
    except (OSError, TypeError, ValueError) as error:
        raise JobInvalid(
            f"the job's `mark` is not a descriptor of {MARK_SIZE} bytes: {error}"
        ) from error


_PART = 3000
"""Bytes of JSON in a line; with its token it has to fit into PIPE_BUF, which is 4,096."""
_MORE, _LAST = b"+", b"."
MOST = 16 << 20
"""The maximum bytes of an event."""


class EventSender:
    """Writes the events of one job to a descriptor."""

    def __init__(self, channel: int, job_id: Any, token: str) -> None:
        self._channel = channel
        self._id = job_id
        self._token = token.encode()

    def progress(self, what: str, **fields: Any) -> None:
        self._write({**fields, "event": "progress", "what": what})

    def result(self, result: Mapping[str, Any], spent: bool = False) -> None:
        await_relay()
        self._write({"event": "result", "result": dict(result), "spent": spent})

    def stale(self) -> None:
        self._write({"event": "stale"})

    def error(self, error: str) -> None:
        self._write({"event": "error", "error": " ".join(error.split())[:1000]})

    def _write(self, event: dict[str, Any]) -> None:
        text = dumps({"id": self._id, **event}).encode()
        for at in range(0, len(text), _PART):
            mark = _LAST if at + _PART >= len(text) else _MORE
            line = b"\n%b%b%b\n" % (self._token, mark, text[at : at + _PART])
            os.write(self._channel, line)


def await_relay() -> None:
    """Return when the supervisor has read the ending job's output; with a short timeout."""
    end = time.monotonic() + _RELAY
    with contextlib.suppress(OSError):
        while struct.unpack("i", fcntl.ioctl(2, termios.FIONREAD, bytes(4)))[0]:
            if time.monotonic() > end:
                return
            time.sleep(0.001)


_RELAY = 0.1


class EventReceiver:
    """The receiving end: yields the events, and counts foreign bytes."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._unread = b""
        self._parts: list[bytes] = []
        self.noise = 0

    def feed(self, data: bytes) -> Iterator[Mapping[str, Any]]:
        """Yield the events that these bytes complete."""
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            event = self._line(line)
            if event is not None:
                yield event
        if len(self._unread) > 2 * _PART:  # none of our lines is that long
            self.noise += len(self._unread)
            self._unread = b"-"  # marks the rest of this line as foreign

    def _line(self, line: bytes) -> Mapping[str, Any] | None:
        at = len(self._token)
        mark, part = line[at : at + 1], line[at + 1 :]
        if not line.startswith(self._token) or mark not in (_MORE, _LAST):
            self.noise += len(line)
            return None
        self._parts.append(part)
        if mark == _MORE and sum(map(len, self._parts)) <= MOST:
            return None
        text, self._parts = b"".join(self._parts), []
        event = _object(text)
        self.noise += len(text) if event is None else 0
        return event
