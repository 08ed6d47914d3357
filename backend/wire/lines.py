"""Things of several kinds, one JSON object a line: `{"is": NAME, ...members}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backend.wire.codec import WireError, dumps, loads, read, to_json

Kinds = Mapping[str, type[Any]]
"""Dataclasses by the name that a line has for each."""


def named(*kinds: type[Any]) -> Kinds:
    """By their own names in small letters."""
    return {_name(kind): kind for kind in kinds}


def line_of(value: Any, **more: Any) -> bytes:
    """A dataclass by its own name, `more` before its members; with the line's end."""
    return dumps({"is": _name(type(value)), **more, **to_json(value)}).encode() + b"\n"


def in_line(line: bytes | str, kinds: Kinds) -> Any:
    """One of these kinds. Raises WireError."""
    return in_words(loads(line), kinds)


def in_words(words: object, kinds: Kinds) -> Any:
    """`in_line` of what is parsed already."""
    name = words.get("is") if isinstance(words, dict) else None
    kind = kinds.get(name) if isinstance(name, str) else None
    if kind is None:
        raise WireError("is no line of a known kind")
    return read(kind, words)


def _name(kind: type[Any]) -> str:
    return kind.__name__.lower()
