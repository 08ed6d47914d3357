"""Dataclasses as JSON and back: one rule for all that lies in files or goes through pipes.

A dataclass is an object with one member a field, and its type hints say what each may be: str, int,
float, `int | float` (either, as it stands there), bool, Any, `X | None`, Literal,
`tuple[X, ...]`, `tuple[X, Y]`, `list[X]`, `dict[str, X]`, Mapping, another dataclass, or one of
these with a check: `Annotated[str, is_name]`.

- A member that is missing gives the field's default; where there is none, it is read as null.
- A member that no field is for is left out. A class that keeps such members for a later version has
  a field for them, `field(default_factory=dict, metadata={"kept": True})`: they are written back.
- A field with `metadata={"missing": function}` is made of the other members where it is missing: an
  older version may have told the same under another name.
- A field with `metadata={"derived": True}` follows from others; it is neither written nor read.
- JSON has no infinity: a float that is not finite is written as `"inf"`, `"-inf"` or `"nan"`.
- Anything else is one `WireError`, which says where it is and what is wrong with it.

A year of sessions is millions of lines: what a type asks for is worked out once.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar, Union

from backend.errors import brief
from backend.wire.reading import WireError as WireError
from backend.wire.reading import reader_of, same

T = TypeVar("T")
Writer = Callable[[Any], Any]


def read(kind: type[T], value: object) -> T:
    """The `kind` that `value`, parsed JSON, stands for. Raises WireError."""
    return reader(kind)(value)


def reader(kind: type[T]) -> Callable[[object], T]:
    """`read` of one dataclass, for many values."""
    hint: Any = kind
    return typing.cast("Callable[[object], T]", reader_of(hint))


def to_json(value: Any) -> dict[str, Any]:
    """What `json` can write of a dataclass."""
    kind: Any = type(value)
    return _fields_of(kind)(value)


def dumps(document: Mapping[str, Any]) -> str:
    """One line of strict JSON."""
    try:
        return _DUMP(document)
    except ValueError:
        return _DUMP(_finite(document))


def loads(text: str | bytes) -> Any:
    """The value of strict JSON. Raises WireError."""
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text), "surrogatepass")
        text = text.strip(" \t\n\r")
        value, end = _JSON.raw_decode(text)
        if end != len(text):
            raise ValueError("more than one value")
    except (ValueError, RecursionError) as error:
        raise WireError(f"is not strict JSON ({brief(str(error), 80)})") from error
    return value


_DUMP = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_JSON = json.JSONDecoder(parse_constant=_refuse_constant)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


# Writing: for each hint a function to what `json` can write; `same` where it can as it is.


def _writer(hint: Any) -> Writer:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _writer(inner[0])
    if origin in (Union, types.UnionType):
        write = next((made for kind in inner if (made := _writer(kind)) is not same), same)
        return write if write is same else lambda value: None if value is None else write(value)
    if origin is tuple and inner[-1] is not Ellipsis:
        writers = [_writer(kind) for kind in inner]
        return lambda value: [write(item) for write, item in zip(writers, value, strict=True)]
    if origin in (tuple, list):
        write = _writer(inner[0])
        return write if write is same else lambda value: [write(item) for item in value]
    if origin in (dict, collections.abc.Mapping):
        write = _writer(inner[1])
        if write is same:
            return dict
        return lambda value: {name: write(item) for name, item in value.items()}
    is_object: bool = dataclasses.is_dataclass(hint)
    return _fields_of(hint) if is_object else same


@functools.cache
def _fields_of(kind: Any) -> Callable[[Any], dict[str, Any]]:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = [field for field in dataclasses.fields(kind) if not field.metadata.get("derived")]
    kept = next((field.name for field in fields if field.metadata.get("kept")), None)
    written = [(field.name, _writer(hints[field.name])) for field in fields if field.name != kept]

    def write(value: Any) -> dict[str, Any]:
        document = {} if kept is None else dict(getattr(value, kept))
        for name, write_one in written:
            item = getattr(value, name)
            document[name] = item if write_one is same else write_one(item)
        return document

    return write
