"""Events as lines of strict JSON, and back.

A line is one object: `"event"` is the type's name in snake case, the rest are its fields.
"""

from __future__ import annotations

import functools
import re
import typing
from collections.abc import Callable

from backend.errors import EventInvalid, brief
from backend.model.events import Event
from backend.wire.codec import WireError, dumps, loads, reader, to_json

_SNAKE = re.compile(r"(?<!^)(?=[A-Z])")
_NAMES: dict[type, str] = {
    kind: _SNAKE.sub("_", kind.__name__).lower() for kind in typing.get_args(Event)
}
BEGINS = rf'\{{"event"\s*:\s*"(?:{"|".join(_NAMES.values())})"'
"""A pattern of a line's beginning; structlog also writes `event` first, followed by any text."""


@functools.cache
def _readers() -> dict[str, Callable[[object], Event]]:
    """Return the readers of all events; a process that only writes events does not need them."""
    return {name: reader(kind) for kind, name in _NAMES.items()}


def encode(event: Event) -> str:
    """Return one line, without its newline."""
    return dumps({"event": _NAMES[type(event)], **to_json(event)})


def decode(line: str) -> Event | None:
    """Return the event of a line; None if this version does not have the kind. Raises EventInvalid
    for anything else that is not an event."""
    # Logs may have many lines of other programs, and a JSON error message is slow to build.
    if not line.lstrip().startswith("{"):
        raise EventInvalid(f"not an event: {brief(line, 60)}")
    try:
        document = loads(line)
    except WireError as error:
        raise EventInvalid(f"not JSON: {brief(line, 60)}") from error
    if not isinstance(document.get("event"), str):
        raise EventInvalid(f"not an event: {brief(line, 60)}")
    reader_of_kind = _readers().get(document["event"])
    try:
        return None if reader_of_kind is None else reader_of_kind(document)
    except WireError as error:
        raise EventInvalid(str(error)) from error
