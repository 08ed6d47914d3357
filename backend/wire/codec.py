"""Dataclasses as JSON and back: the codec of all our files and pipes.

A dataclass is an object with one member per field, whose type hint is checked: str, int, float,
`int | float` (whichever was written), bool, Any, `X | None`, Literal,
`tuple[X, ...]`, `tuple[X, Y]`, `list[X]`, `dict[str, X]`, Mapping, another dataclass, or one of
these with a check: `Annotated[str, is_name]`.

- A missing member gives the field's default, or is read as null if there is none.
- A member without a field is left out. A class that keeps such members for a later version has a
  field for them, `field(default_factory=dict, metadata={"kept": True})`: they are written back.
- A field with `metadata={"missing": function}` is derived from the other members if it is missing:
  an older version may have recorded it under another name.
- A field with `metadata={"derived": True}` follows from others; it is neither written nor read.
- JSON has no infinity: a float that is not finite is written as `"inf"`, `"-inf"` or `"nan"`.
- Anything else raises a `WireError` with the location and the fault.

A year of sessions is millions of lines, so each type is analysed once.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, Union

from backend.errors import brief

Reader = Callable[[Any], Any]
Check = Callable[[Any], str]
"""Returns what is wrong with a value of the right type (`is no name`), or an empty string."""

MOST = (1 << 64) - 1
"""The upper bound of sizes, counts, times and numbers in files."""
MAX_DEPTH = 50
"""The maximum nesting of members without a field."""


class WireError(ValueError):
    """A value has the wrong type or content: `path` leads to it, `what` is wrong with it."""

    def __init__(self, what: str, *path: str | int) -> None:
        super().__init__(what)
        self.what = what
        self.path = path

    def __str__(self) -> str:
        return f"{_place(self.path) or 'it'} {self.what}"


class Key(str):
    """A part of a path that is a key of a mapping, not a field."""


_NO_OBJECT = "is not a JSON object"


def _place(path: Iterable[str | int]) -> str:
    """Write ("pins", 1, "config", Key("BLOCK_M")) as `pin 2: `config`, BLOCK_M`."""
    words: list[str] = []
    for part in path:
        if isinstance(part, int):
            words[-1:] = [f"{''.join(words[-1:]).strip('`').removesuffix('s')} {part + 1}"]
        elif isinstance(part, Key):
            words[-1:] = [f"{''.join(words[-1:])}, {brief(part, 40)}"]
        else:
            words.append(f"`{part}`")
    return ": ".join(words)


def _wrong(what: str, value: object) -> str:
    """Return `is not a number: 'x'`."""
    shown = "" if isinstance(value, (dict, list)) else f": {brief(repr(value), 60)}"
    return f"is not {what}{shown}"


def same(value: Any) -> Any:
    return value


@functools.cache
def reader_of(hint: Any) -> Reader:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _checked(reader_of(inner[0]), inner[1:])
    if origin in (Union, types.UnionType) and set(inner) == {int, float}:
        return _number
    if origin in (Union, types.UnionType) and all(map(dataclasses.is_dataclass, inner)):
        return _one_of_objects(inner)
    if origin in (Union, types.UnionType):
        (only,) = (kind for kind in inner if kind is not type(None))
        return _optional(reader_of(only)) if len(inner) > 1 else reader_of(only)
    if origin is Literal:
        return _one_of(frozenset(inner))
    if origin is tuple and inner[-1] is not Ellipsis:
        return _fixed([reader_of(kind) for kind in inner])
    if origin in (tuple, list):
        return _list_of_int if hint == tuple[int, ...] else _list(origin, reader_of(inner[0]))
    if origin in (dict, collections.abc.Mapping):
        return _mapping(reader_of(inner[1]), _AS_THEY_ARE.get(inner[1]))
    return _SCALARS[hint] if hint in _SCALARS else _object(hint)


def _one_of_objects(kinds: Sequence[type]) -> Reader:
    """Read an object as the first of the types all of whose required fields it has."""
    required = [
        {
            field.name
            for field in dataclasses.fields(kind)
            if field.default is field.default_factory is dataclasses.MISSING
        }
        for kind in kinds
    ]
    readers = [reader_of(kind) for kind in kinds]

    def read(value: Any) -> Any:
        names = value.keys() if isinstance(value, dict) else set()
        at = next((at for at, needed in enumerate(required) if needed <= names), 0)
        return readers[at](value)

    return read


def _optional(read_one: Reader) -> Reader:
    return lambda value: None if value is None else read_one(value)


def _checked(read_one: Reader, checks: Iterable[Check]) -> Reader:
    def read(value: Any) -> Any:
        value = read_one(value)
        for check in checks:
            if what := check(value):
                raise WireError(what)
        return value

    return read


def _just(kind: type, what: str) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise WireError(_wrong(what, value))
        return value

    return read


def _int(value: Any) -> Any:
    if type(value) is not int or abs(value) > MOST:
        raise WireError(_wrong("a whole number", value))
    return value


def _float(value: Any) -> float:
    kind = type(value)
    if kind is float:
        return float(value)
    if kind is int:
        try:
            return float(value)
        except OverflowError:
            pass
    elif kind is str and value in ("inf", "-inf", "nan", "Infinity", "-Infinity", "NaN"):
        return float(value)
    raise WireError(_wrong("a number", value))


def _number(value: Any) -> Any:
    """Return the number unchanged, so that it is written back as the same text."""
    number = _float(value)
    return value if type(value) is int else number


_SCALARS: dict[Any, Reader] = {
    str: _just(str, "text"),
    int: _int,
    float: _float,
    bool: _just(bool, "yes or no"),
    Any: same,
}
_AS_THEY_ARE: dict[Any, set[type]] = {str: {str}, float: {float}}
"""Types whose mapping members need no reading."""


def _one_of(allowed: frozenset[Any]) -> Reader:
    words = ", ".join(sorted(map(str, allowed)))

    def read(value: Any) -> Any:
        if type(value) not in (str, int) or value not in allowed:
            raise WireError(f"is none of {words}: {brief(repr(value), 60)}")
        return value

    return read


def _list(container: type, read_one: Reader) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not list:
            raise WireError(_wrong("a list", value))
        try:
            return container([read_one(item) for item in value])
        except WireError:
            for at, item in enumerate(value):
                _read_below(at, read_one, item)
            raise

    return read


def _list_of_int(value: Any) -> Any:
    """Read a list of integers: the sizes and strides of tensors, frequent in logs."""
    if type(value) is not list or any(type(item) is not int or abs(item) > MOST for item in value):
        raise WireError(_wrong("a list of whole numbers", value))
    return tuple(value)


def _fixed(readers: list[Reader]) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not list or len(value) != len(readers):
            raise WireError(_wrong(f"a list of {len(readers)}", value))
        return tuple(read_one(item) for read_one, item in zip(readers, value, strict=True))

    return read


def _read_below(part: str | int, read_one: Reader, value: Any) -> Any:
    try:
        return read_one(value)
    except WireError as error:
        error.path = (Key(part) if isinstance(part, str) else part, *error.path)
        raise


def _mapping(read_one: Reader, kinds: set[type] | None) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise WireError(_wrong("an object", value))
        if kinds is not None and kinds.issuperset(map(type, value.values())):
            return value
        return {name: _read_below(name, read_one, item) for name, item in value.items()}

    return read


def _object(kind: Any) -> Reader:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields: list[tuple[str | None, Reader, Reader | None]] = []
    for field in dataclasses.fields(kind):
        if field.metadata.get("kept"):
            fields.append((None, same, _kept_of(kind)))
        elif field.metadata.get("derived"):
            fields.append((None, same, _default(field)))
        else:
            fields.append((field.name, reader_of(hints[field.name]), _default(field)))

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise WireError(_NO_OBJECT)
        values = []
        name = None
        try:
            for name, read_one, default in fields:
                if name in value:
                    values.append(read_one(value[name]))
                elif default is None:
                    values.append(read_one(None))
                else:
                    values.append(default(value))
        except WireError as error:
            if name is not None:
                error.path = (name, *error.path)
            raise
        return kind(*values)

    return read


def _default(field: dataclasses.Field[Any]) -> Reader | None:
    """Return a function that supplies a missing field, or None if the field has no default."""
    if "missing" in field.metadata:
        older: Reader = field.metadata["missing"]
        return older
    if field.default is not dataclasses.MISSING:
        return lambda _: field.default
    factory = field.default_factory
    return None if factory is dataclasses.MISSING else lambda _: factory()


def _kept_of(kind: Any) -> Reader:
    """Return a reader of the members without a field, if they can be written again."""
    fields = {field.name for field in dataclasses.fields(kind) if not field.metadata.get("kept")}

    def read(value: Any) -> dict[str, Any]:
        if value.keys() <= fields:
            return {}
        kept = {name: item for name, item in value.items() if name not in fields}
        for name, item in kept.items():
            if not _is_plain(item, MAX_DEPTH):
                raise WireError("is nested too deep, or no JSON", name)
        return kept

    return read


def _is_plain(value: object, depth: int) -> bool:
    if isinstance(value, (dict, list)):
        inner = value.values() if isinstance(value, dict) else value
        return depth > 0 and all(_is_plain(item, depth - 1) for item in inner)
    return not isinstance(value, float) or math.isfinite(value)


T = TypeVar("T")
Writer = Callable[[Any], Any]


def read(kind: type[T], value: object) -> T:
    """Build a `kind` from parsed JSON. Raises WireError."""
    return reader(kind)(value)


def reader(kind: type[T]) -> Callable[[object], T]:
    """Return `read` for one dataclass, for many values."""
    hint: Any = kind
    return typing.cast("Callable[[object], T]", reader_of(hint))


def to_json(value: Any) -> dict[str, Any]:
    """Return a dataclass as an object for `json`."""
    kind: Any = type(value)
    return _fields_of(kind)(value)


def dumps(document: Mapping[str, Any]) -> str:
    """Return one line of strict JSON."""
    try:
        return _DUMP(document)
    except ValueError:
        return _DUMP(_finite(document))


def loads(text: str | bytes) -> Any:
    """Parse strict JSON. Raises WireError."""
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


# Writing: each hint's function to a JSON value; `same` if the value already is one.


def _writer(hint: Any) -> Writer:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _writer(inner[0])
    if origin in (Union, types.UnionType) and all(map(dataclasses.is_dataclass, inner)):
        by_kind = {kind: _fields_of(kind) for kind in inner}
        return lambda value: by_kind[type(value)](value)
    if origin in (Union, types.UnionType):
        write = next(
            (inner_write for kind in inner if (inner_write := _writer(kind)) is not same), same
        )
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
