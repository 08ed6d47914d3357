"""Another solution in the place of an entry's: the new text of a row, whose every other byte stays.

A time belongs to the solution that it was taken of. Where none is given for the new one, `nan`
stands in its place, which the tuners' own readers take for a number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from backend.errors import brief

UNTIMED = "nan"
_WORD = re.compile(r"[^\s,\"'=\\]{1,400}")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,15})")
_NUMBER = re.compile(r"-?(?:[0-9]{1,17}\.?[0-9]{0,17}|\.[0-9]{1,17})(?:[eE][+-]?[0-9]{1,3})?")
_BOOLEAN = ("True", "False")


class NotEditable(Exception):
    """The entry cannot be changed so. The text is the reason."""


def word(name: str, value: str) -> str:
    """The text of a cell. Raises NotEditable for one that would be no single cell."""
    if not (_WORD.fullmatch(value) and value.isprintable()):
        raise NotEditable(f"{brief(value, 60)!r} cannot stand in the column {name}")
    return value


def time(name: str, value: str) -> str:
    """The same of a time. Raises NotEditable."""
    if not (_NUMBER.fullmatch(value) and 0 < float(value) < math.inf):
        raise NotEditable(f"{brief(value, 60)!r} is no time ({name})")
    return value


def alike(name: str, value: str, old: str, *, measured: bool = False) -> str:
    """The text of a cell in the place of `old`: another kind of value than a number, or True or
    False, would make pandas read the whole column, and so every row, as that. Whole numbers alone
    unless they are `measured`. Raises NotEditable."""
    old = old.strip()
    if measured and value == UNTIMED:
        return value
    if is_whole(old) and not measured and not is_whole(value):
        kind = "a whole number"
    elif _NUMBER.fullmatch(old) and not _NUMBER.fullmatch(value):
        kind = "a number"
    elif old in _BOOLEAN and value not in _BOOLEAN:
        kind = "True or False"
    else:
        return word(name, value)
    raise NotEditable(f"{brief(value, 60)!r} cannot stand in the column {name}: it takes {kind}")


def known(values: Mapping[str, str], names: Iterable[str]) -> None:
    """Raises NotEditable for a name of `values` that is not among `names`."""
    names = tuple(names)
    unknown = next((name for name in values if name not in names), None)
    if unknown is not None:
        raise NotEditable(f"{brief(unknown, 60)!r} is not set here; there are {', '.join(names)}")


def with_cells(
    cells: Sequence[str], columns: Sequence[str], values: Mapping[str, str], times: Iterable[str]
) -> list[str]:
    """The cells of a row with other `values`; of the columns `times` those that are not given are
    `UNTIMED`, unless all stays as it is."""
    new = [values.get(name, cell) for name, cell in zip(columns, cells, strict=False)]
    if new == list(cells):
        return new
    for name in times:
        if name in columns and name not in values and (at := columns.index(name)) < len(new):
            new[at] = UNTIMED
    return new


def is_whole(value: str) -> bool:
    """Whether that is the text of a whole number."""
    return _INTEGER.fullmatch(value) is not None


def with_members(text: bytes, values: Mapping[str, str]) -> bytes:
    """An object of JSON with other whole numbers as the values of members that it has. Raises
    NotEditable."""
    for name, value in values.items():
        if not is_whole(value):
            raise NotEditable(f"{brief(value, 60)!r} is no whole number ({brief(name, 60)})")
        member = rb'("' + re.escape(name.encode()) + rb'"\s*:\s*)-?\d+(?=\s*[,}\]])'
        text, count = re.subn(member, rb"\g<1>" + value.encode(), text)
        if count != 1:
            raise NotEditable(f"{brief(name, 60)!r} is no number of this entry")
    return text


def in_words(values: Mapping[str, str]) -> str:
    """What `assignments` takes apart."""
    return ",".join(f"{name}={value}" for name, value in values.items())


def assignments(text: str) -> dict[str, str]:
    """`NAME=VALUE,NAME=VALUE`. Raises NotEditable."""
    values: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value):
            raise NotEditable(f"{brief(text, 80)!r} is not of the form NAME=VALUE,NAME=VALUE")
        if values.setdefault(name, value) != value:
            raise NotEditable(f"{brief(name, 60)!r} is set twice")
    return values
