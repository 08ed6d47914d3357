"""Events as lines of strict JSON, and back.

A line is one object: `"event"` is the type's name in snake case, the rest are its fields. JSON has
no infinity, so a float that is not finite is written as the string `"inf"`, `"-inf"` or `"nan"`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Union

from backend import events
from backend.events import Event
from backend.records import Choice
from backend.store.errors import EventInvalid, brief

MOST = (1 << 63) - 1
"""No size, count or number of a process is above it."""

_SNAKE = re.compile(r"(?<!^)(?=[A-Z])")
_NAMES: dict[type, str] = {
    kind: _SNAKE.sub("_", kind.__name__).lower() for kind in typing.get_args(events.Event)
}
_KINDS: dict[str, type] = {name: kind for kind, name in _NAMES.items()}


def encode(event: Event) -> str:
    """One line, without its end."""
    fields = dataclasses.asdict(event, dict_factory=_told)
    document = {"event": _NAMES[type(event)], **fields}
    try:
        return _dump(document)
    except ValueError:
        return _dump(_finite(document))


def decode(line: str) -> Event | None:
    """The event of a line; None for a kind that this version does not know.

    Unknown fields are left out. Raises EventInvalid for anything else that is not an event.
    """
    if not line.lstrip().startswith("{"):
        raise EventInvalid(f"not an event: {brief(line, 60)}")
    try:
        document = _JSON.decode(line)
    except (ValueError, RecursionError) as error:
        raise EventInvalid(f"not JSON: {brief(line, 60)}") from error
    if not isinstance(document, dict) or not isinstance(document.get("event"), str):
        raise EventInvalid(f"not an event: {brief(line, 60)}")
    kind = _KINDS.get(document["event"])
    if kind is None:
        return None
    event: Event = _build(kind, document)
    return event


_DERIVED = {field.name for field in dataclasses.fields(Choice) if field.metadata.get("derived")}
"""Fields that follow from what several logs tell; none of them tells it itself."""


def _told(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in pairs if name not in _DERIVED}


def _dump(document: Mapping[str, Any]) -> str:
    return json.dumps(document, allow_nan=False, separators=(",", ":"))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_JSON = json.JSONDecoder(parse_constant=_refuse_constant)
"""Made once: `json.loads` would make one for each line."""


@functools.cache
def _fields(kind: type) -> tuple[tuple[str, Any, bool], ...]:
    """Name, type and whether it may be missing, of each field of a dataclass."""
    hints = typing.get_type_hints(kind)
    return tuple(
        (
            field.name,
            hints[field.name],
            field.default is not dataclasses.MISSING
            or field.default_factory is not dataclasses.MISSING,
        )
        for field in dataclasses.fields(kind)
        if field.name not in _DERIVED
    )


def _build(kind: type, document: Mapping[str, Any]) -> Any:
    values = {}
    for name, hint, optional in _fields(kind):
        if name in document:
            values[name] = _convert(hint, document[name], name)
        elif not optional:
            raise EventInvalid(f"{kind.__name__} without {name}")
    return kind(**values)


def _convert(hint: Any, value: Any, name: str) -> Any:
    """`value` as the type `hint`: a scalar, `X | None`, `tuple[X, ...]`, Literal, dataclass."""
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in typing.get_args(hint):
            return None
        return _convert(typing.get_args(hint)[0], value, name)
    if origin is tuple and isinstance(value, list):
        inner = typing.get_args(hint)[0]
        return tuple(_convert(inner, item, name) for item in value)
    if origin is Literal and isinstance(value, str) and value in typing.get_args(hint):
        return value
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return _build(typing.cast(type, hint), value)
    if hint is float:
        return _float(value, name)
    if hint in (str, bool) and type(value) is hint:
        return value
    if hint is int and type(value) is int and abs(value) <= MOST:
        return value
    raise EventInvalid(f"{name} is not what it should be: {brief(repr(value), 60)}")


def _float(value: Any, name: str) -> float:
    if type(value) in (int, float):
        try:
            return float(value)
        except OverflowError:
            pass
    elif value in ("inf", "-inf", "nan"):
        return float(value)
    raise EventInvalid(f"{name} is no number: {brief(repr(value), 60)}")
