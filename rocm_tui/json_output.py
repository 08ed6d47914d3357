"""The JSON that commands print: the base class of its types, and their one encoder.

Each object in the output of `--json` is a `JsonObject` whose fields are the object's members.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, TypeVar

import msgspec


class JsonObject(msgspec.Struct):
    """An object of the JSON output. A member that is `UNSET` is left out; unknown is null."""


T = TypeVar("T", bound=JsonObject)
_ABSENT = object()


def fill(kind: type[T], *sources: object, **values: Any) -> T:
    """Build a `kind` of `values`, and of attributes of `sources` that have its fields' names.

    A field that is not among `values` comes from the first source that has it.
    """
    for name in kind.__struct_fields__:
        if name in values:
            continue
        for source in sources:
            value = getattr(source, name, _ABSENT)
            if value is not _ABSENT:
                values[name] = value
                break
    return kind(**values)


def builtins_of(value: object) -> Any:
    """Return `value` as dicts, lists, strings, finite numbers, booleans and None.

    A number that is not finite is unknown: null.
    """
    return _finite(msgspec.to_builtins(value, enc_hook=_other))


def encode(value: object, indent: int | None = None) -> str:
    """Return `value` as strict JSON.

    It is ASCII, so that no locale, no half character and no control character of a file can spoil
    it.
    """
    built = msgspec.to_builtins(value, enc_hook=_other)
    try:
        text = json.dumps(built, indent=indent, allow_nan=False)
    except ValueError:  # a number that is not finite, which few documents have
        text = json.dumps(_finite(built), indent=indent, allow_nan=False)
    return text.replace("\x7f", "\\u007f")


def _other(value: object) -> object:
    """Encode what msgspec does not know: paths, other mappings, subclasses of str."""
    return dict(value) if isinstance(value, Mapping) else str(value)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value
