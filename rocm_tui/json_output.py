"""The JSON that commands print: the base classes of its types, their one encoder, their schemas.

Each object in the output of `--json` is a `JsonObject` whose fields are the object's members. The
outermost one is a `Document`, which names its schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, TypeVar, get_args

import msgspec
import msgspec.structs
from msgspec import UNSET

from rocm_tui.errors import error_code
from rocm_tui.harmless import plain


class JsonObject(msgspec.Struct):
    """An object of the JSON output. A member that is `UNSET` is left out; unknown is null."""


class Document(JsonObject, tag_field="schema"):
    """A whole output: its first member `schema` is its tag, `rocm-tui/NAME/VERSION`."""


class ErrorBody(JsonObject):
    """What happened, and what to do if that is known; `code` is stable, `message` is not."""

    code: str
    message: str
    hint: str | None


class ErrorJson(Document, tag="rocm-tui/error/1"):
    """What a command prints with `--json` when it cannot do its work."""

    error: ErrorBody

    @classmethod
    def of(cls, error: BaseException, message: str, hint: str | None) -> ErrorJson:
        return cls(ErrorBody(code=error_code(type(error)), message=plain(message), hint=hint))


class PlanJson(Document, tag="rocm-tui/plan/1"):
    """What a command would do, as --dry-run prints it: one sentence for each step."""

    would: list[str]


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
    return _finite(_built(value))


def encode(value: object, indent: int | None = None) -> str:
    """Return `value` as strict JSON.

    It is ASCII, so that no locale, no half character and no control character of a file can spoil
    it. The members of a document are converted one after another, because all of them as dicts
    take several times the memory of the text.
    """
    try:
        text = json.dumps(_members(value), default=_built, indent=indent, allow_nan=False)
    except ValueError:  # a number that is not finite, which few documents have
        text = json.dumps(builtins_of(value), indent=indent, allow_nan=False)
    return text.replace("\x7f", "\\u007f")


def _members(value: object) -> object:
    """Return the members of an object, each as it is; any other value itself."""
    if not isinstance(value, JsonObject):
        return value
    names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    members = {name: getattr(value, field) for name, field in names}
    schema = {"schema": schema_tag(type(value))} if isinstance(value, Document) else {}
    return schema | {name: member for name, member in members.items() if member is not UNSET}


def _built(value: object) -> object:
    return msgspec.to_builtins(value, enc_hook=_other)


def kinds_below(kind: type[T]) -> set[type[T]]:
    """Return the subclasses of a type of objects, and theirs."""
    below: list[type[T]] = kind.__subclasses__()
    return {*below}.union(*(kinds_below(each) for each in below))


def schema_tag(kind: type[Document]) -> str:
    """Return the value of `schema` in documents of this type."""
    return str(kind.__struct_config__.tag)


def json_schema(kind: type[Document]) -> dict[str, Any]:
    """Return the JSON Schema of what `encode` writes for a document of this type."""
    schema = msgspec.json.schema(kind)
    ours = {each.__name__: each for each in kinds_below(JsonObject)}
    for name, part in schema["$defs"].items():
        if name in ours:
            optional = _optional(ours[name])
            part["required"] = [each for each in part["required"] if each not in optional]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": schema_tag(kind)}
    widened: dict[str, Any] = _with_unknown_numbers(schema)
    return head | widened


def _optional(kind: type[JsonObject]) -> set[str]:
    """Return the members that may be left out, whether or not their field has a default."""
    fields = msgspec.structs.fields(kind)
    return {each.encode_name for each in fields if msgspec.UnsetType in get_args(each.type)}


def _with_unknown_numbers(schema: Any) -> Any:
    """Allow null for each number that can be infinite or NaN, which `encode` writes as null."""
    if isinstance(schema, list):
        return [_with_unknown_numbers(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    widened = {key: _with_unknown_numbers(item) for key, item in schema.items()}
    return widened | {"type": ["number", "null"]} if schema.get("type") == "number" else widened


def _other(value: object) -> object:
    """Encode what msgspec does not know: paths, other mappings, subclasses of str."""
    return dict(value) if isinstance(value, Mapping) else str(value)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value
