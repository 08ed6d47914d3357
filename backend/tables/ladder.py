"""A JSON document of configs, each under its step: `{"64": {"BLOCK_SIZE_M": 16, ...}, ...}`.

Read with the place of each step in the file, a name that stands twice as often as it stands, and
numbers as they are written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from backend.tables import edit
from backend.tables.model import BOM, Editing, Entry, Fields

MAX_DOCUMENT = 4 << 20
"""Bytes. The largest public ones have 40 kB."""
_DEEPEST = 16
_BLANK = re.compile(r"[ \t\r\n]*")
_SPACES = re.compile(r"\s+")
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


@dataclass(frozen=True, slots=True)
class Step:
    """A config, `config` in the order of the file. It lies from byte `start`, where its name
    begins, to `end`, on `line` (from 1). `path` is its name, behind those of the objects it is in.
    """

    path: tuple[str, ...]
    config: Fields
    line: int
    start: int
    end: int

    @property
    def text(self) -> str:
        """`BLOCK_SIZE_M=16, BLOCK_SIZE_N=32`."""
        return ", ".join(f"{name}={value}" for name, value in self.config)


@dataclass(frozen=True, slots=True)
class Ladder:
    """`facts` is what the document says of all its steps."""

    facts: Fields
    steps: tuple[Step, ...]


def ladder_of(data: bytes) -> Ladder:
    """An object with a value that is none, below the document itself, is a step; one of objects
    alone holds steps. Raises ValueError for what is no JSON object, too large or too deep."""
    if len(data) > MAX_DOCUMENT:
        raise ValueError(f"larger than {MAX_DOCUMENT >> 20} MiB")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is no UTF-8") from error
    text = data.decode("latin-1")  # a character a byte: places in the text are places in the file
    at = _skip(text, len(BOM) if data.startswith(BOM) else 0)
    if text[at : at + 1] != "{":
        raise ValueError(_damaged(text, at))
    try:
        members, end = _members(text, at, 0)
    except RecursionError as error:
        raise ValueError("too deep") from error
    if _skip(text, end) != len(text):
        raise ValueError(_damaged(text, end))
    facts = tuple((each.name, each.text) for each in members if each.members is None)
    return Ladder(facts, tuple(_steps(text, members)))


@dataclass(frozen=True, slots=True)
class _Member:
    """`text` is its value, `members` those of a value that is an object."""

    name: str
    text: str
    members: tuple[_Member, ...] | None
    start: int
    end: int


def _members(text: str, at: int, depth: int) -> tuple[tuple[_Member, ...], int]:
    """Those of the object that begins at `at`, and where it ends."""
    if depth > _DEEPEST:
        raise ValueError("too deep")
    found: list[_Member] = []
    at = _skip(text, at + 1)
    while text[at : at + 1] == '"':
        start = at
        name, at = _scalar(text, at)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise ValueError(_damaged(text, at))
        at = _skip(text, at + 1)
        within = None
        if text[at : at + 1] == "{":
            within, end = _members(text, at, depth + 1)
            value = _written(text, at, end)
        else:
            value, end = _scalar(text, at)
        found.append(_Member(name, value, within, start, end))
        at = end
        at = _skip(text, at)
        if text[at : at + 1] != ",":
            break
        at = _skip(text, at + 1)
        if text[at : at + 1] != '"':
            raise ValueError(_damaged(text, at))
    if text[at : at + 1] != "}":
        raise ValueError(_damaged(text, at))
    return tuple(found), at + 1


def _scalar(text: str, at: int) -> tuple[str, int]:
    """A value that is no object, and its end: a text without its quotes, all else as written."""
    try:
        value, end = _DECODER.raw_decode(text, at)
    except ValueError as error:
        raise ValueError(_damaged(text, at)) from error
    if text[at] == '"':
        return _in_utf8(value), end
    return _written(text, at, end), end


def _written(text: str, start: int, end: int) -> str:
    return _in_utf8(_SPACES.sub(" ", text[start:end]))


def _in_utf8(text: str) -> str:
    try:
        return text.encode("latin-1").decode()
    except UnicodeError:  # something of it was escaped
        return text


def _steps(text: str, members: tuple[_Member, ...]) -> Iterator[Step]:
    line, counted = 1, 0
    for path, step in _objects(members, ()):
        line += text.count("\n", counted, step.start)
        counted = step.start
        config = tuple((each.name, each.text) for each in step.members or ())
        yield Step(path, config, line, step.start, step.end)


def _objects(
    members: tuple[_Member, ...], above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], _Member]]:
    for each in members:
        if each.members is None:
            continue
        path = (*above, each.name)
        if not each.members or any(within.members is None for within in each.members):
            yield path, each
        else:
            yield from _objects(each.members, path)


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    assert found is not None
    return found.end()


def _damaged(text: str, at: int) -> str:
    line = text.count("\n", 0, at) + 1
    return f"line {line} is no JSON" if at < len(text) else f"cut off on line {line}"


def _values(entry: Entry) -> dict[str, str]:
    return {name: value for name, value in entry.extra if edit.is_whole(value)}


def _edit(columns: Sequence[str], text: bytes, values: Mapping[str, str]) -> bytes:
    return edit.with_members(text, values)


EDITING = Editing(_values, _edit)
"""A step is given other numbers; those that it does not have are not added."""
