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
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Union

from backend import events
from backend.errors import EventInvalid, brief
from backend.events import ChoiceTimed, Event
from backend.records import Choice

MOST = (1 << 63) - 1
"""No size, count or number of a process is above it."""

_SNAKE = re.compile(r"(?<!^)(?=[A-Z])")
_NAMES: dict[type, str] = {
    kind: _SNAKE.sub("_", kind.__name__).lower() for kind in typing.get_args(events.Event)
}
_KINDS: dict[str, type] = {name: kind for kind, name in _NAMES.items()}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_JSON = json.JSONDecoder(parse_constant=_refuse_constant)


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
        line = line.strip()
        document, end = _JSON.raw_decode(line)
        if end != len(line):
            raise ValueError("more than one value")
    except (ValueError, RecursionError) as error:
        raise EventInvalid(f"not JSON: {brief(line, 60)}") from error
    if not isinstance(document, dict) or not isinstance(document.get("event"), str):
        raise EventInvalid(f"not an event: {brief(line, 60)}")
    kind = _KINDS.get(document["event"])
    if kind is None:
        return None
    event: Event = _reader(kind)(document, "event")
    return event


_TIMED = re.compile(
    rb'\{"event":"choice_timed","n":(\d{1,9}),"hash":"([ !#-\[\]-~]*)",'
    rb'"ms":(\d{1,9}\.\d{1,20}(?:e-?\d{1,2})?)\}\s*'
)


def decode_timed(line: bytes) -> ChoiceTimed | None:
    """What `decode` makes of the line that logs have most of, as `encode` writes it; else None."""
    found = _TIMED.fullmatch(line)
    if found is None:
        return None
    n, hash_, ms = found.groups()
    return ChoiceTimed(int(n), hash_.decode("ascii"), float(ms))


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


Reader = Callable[[Any, str], Any]
"""Makes what a type asks for of a JSON value, which the name says in errors; or EventInvalid.

A year of sessions is millions of lines: what a type asks for is worked out once.
"""


@functools.cache
def _reader(hint: Any) -> Reader:
    """Of a scalar, `X | None`, `tuple[X, ...]`, Literal, dataclass."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return _optional(_reader(inner[0])) if type(None) in inner else _reader(inner[0])
    if origin is tuple:
        return _list_of_int if inner[0] is int else _list(_reader(inner[0]))
    if origin is Literal:
        return _one_of(frozenset(inner))
    if hint is float:
        return _float
    if hint is int:
        return _int
    if hint in (str, bool):
        return _just(hint)
    return _object(hint)


def _wrong(value: Any, name: str) -> EventInvalid:
    return EventInvalid(f"{name} is not what it should be: {brief(repr(value), 60)}")


def _optional(read: Reader) -> Reader:
    return lambda value, name: None if value is None else read(value, name)


def _just(kind: type) -> Reader:
    def read(value: Any, name: str) -> Any:
        if type(value) is not kind:
            raise _wrong(value, name)
        return value

    return read


def _int(value: Any, name: str) -> Any:
    if type(value) is not int or abs(value) > MOST:
        raise _wrong(value, name)
    return value


def _one_of(known: frozenset[str]) -> Reader:
    def read(value: Any, name: str) -> Any:
        if type(value) is not str or value not in known:
            raise _wrong(value, name)
        return value

    return read


def _list(read_one: Reader) -> Reader:
    def read(value: Any, name: str) -> Any:
        if type(value) is not list:
            raise _wrong(value, name)
        return tuple([read_one(item, name) for item in value])

    return read


def _list_of_int(value: Any, name: str) -> Any:
    if type(value) is not list or any(type(item) is not int or abs(item) > MOST for item in value):
        raise _wrong(value, name)
    return tuple(value)


def _object(kind: type) -> Reader:
    hints = typing.get_type_hints(kind)
    fields = [
        (field.name, _reader(hints[field.name]), _default(field))
        for field in dataclasses.fields(kind)
        if field.name not in _DERIVED
    ]

    def read(value: Any, name: str) -> Any:
        if type(value) is not dict:
            raise _wrong(value, name)
        told = []
        for field, read_one, default in fields:
            if field in value:
                told.append(read_one(value[field], field))
            elif default is None:
                raise EventInvalid(f"{kind.__name__} without {field}")
            else:
                told.append(default())
        return kind(*told)

    return read


def _default(field: dataclasses.Field[Any]) -> Callable[[], Any] | None:
    """Makes what stands for a field that is missing; None where it may not be."""
    if field.default is not dataclasses.MISSING:
        return lambda: field.default
    return None if field.default_factory is dataclasses.MISSING else field.default_factory


def _float(value: Any, name: str) -> float:
    kind = type(value)
    if kind is float:
        return float(value)
    if kind is int:
        try:
            return float(value)
        except OverflowError:
            pass
    elif kind is str and value in ("inf", "-inf", "nan"):
        return float(value)
    raise EventInvalid(f"{name} is no number: {brief(repr(value), 60)}")
