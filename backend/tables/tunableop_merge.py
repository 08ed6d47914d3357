"""Results of TunableOp put into a file of results, of which every other byte stays."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from backend.errors import brief
from backend.tables import tunableop
from backend.tables.model import BOM, Entry, Table, table_of

_OP = re.compile(r"[A-Za-z0-9]{1,40}TunableOp_[\w:<>]{1,100}", re.ASCII)
_PARAMS = re.compile(r"[nt]{2}_\w{1,200}", re.ASCII)
_NAME = re.compile(r"\w{1,60}", re.ASCII)
_VALUE = re.compile(r"[!-~](?:[ -~]{0,298}[!-~])?")


class Row(NamedTuple):
    """What was taken for a product, and how long it took."""

    op: str
    params: str
    solution: str
    ms: float

    @property
    def key(self) -> tuple[str, str]:
        return self.op, self.params


class NotMergeable(Exception):
    """The file, or what is to be put into it, is not what it should be. The text says why."""


def is_product(line: str) -> bool:
    """Whether that is `op,params`, as an untuned list has it."""
    op, _, params = line.partition(",")
    return bool(_OP.fullmatch(op) and _PARAMS.fullmatch(params))


def check_row(row: Row) -> None:
    """Raises NotMergeable for what would be no row of such a file."""
    if not (is_product(f"{row.op},{row.params}") and tunableop.SOLUTION.fullmatch(row.solution)):
        raise NotMergeable(f"{brief(','.join(row[:3]), 200)!r} is no row of TunableOp's")
    if not 0 < row.ms < math.inf:
        raise NotMergeable("no candidate ran")


def keys_in(data: bytes, validators: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """The products that a file of results has, which these `validators` stand above; none of an
    empty one. Raises NotMergeable for any other file."""
    return frozenset(_taken(_table(data, validators))) if data else frozenset()


def merged(
    data: bytes, validators: Mapping[str, str], rows: Iterable[Row], *, force: bool = False
) -> bytes:
    """The file with `rows` behind its own; of a product that it has its own row stays, with `force`
    that row has the new solution and time. An empty file gets `validators` first. Raises
    NotMergeable."""
    _check(validators)
    new: dict[tuple[str, str], Row] = {}
    for row in rows:
        check_row(row)
        new.setdefault(row.key, row)
    if not data:
        head = "".join(f"Validator,{name},{value}\n" for name, value in validators.items())
        return head.encode() + b"".join(map(_line, new.values()))
    table = _table(data, validators)
    taken = _taken(table)
    texts: dict[Entry, bytes] = {}
    for key in new.keys() & taken.keys() if force else ():
        texts[taken[key]] = _replaced(table.text(taken[key]), new[key])
    content = table.rewritten(texts) if texts else data
    lines = b"".join(_line(row) for key, row in new.items() if key not in taken)
    return content + (b"\n" if lines and not content.endswith(b"\n") else b"") + lines


def _line(row: Row) -> bytes:
    """As PyTorch writes a row: six digits of a time."""
    return f"{row.op},{row.params},{row.solution},{row.ms:g}\n".encode()


def _replaced(text: bytes, row: Row) -> bytes:
    editing = tunableop.TUNER.editing
    assert editing is not None
    return editing.edit((), text, {"solution": row.solution, "ms": f"{row.ms:g}"})


def _table(data: bytes, validators: Mapping[str, str]) -> Table:
    """A file of results for these validators. Raises NotMergeable."""
    _check(validators)
    if b"\0" in data or not tunableop.TUNER.knows(data, ""):
        raise NotMergeable("it is no file of TunableOp's results")
    if data.startswith(BOM) or b"\r" in data:
        raise NotMergeable("PyTorch ignores it, for its line ends or its byte order mark")
    table = table_of(tunableop.TUNER.name, tunableop.Reader(), data, "")
    there = dict(table.facts)  # of two of one name PyTorch takes the last
    for name in sorted({*there, *validators}):
        if there.get(name) != validators.get(name):
            told, here = there.get(name, "not told"), validators.get(name, "not told")
            raise NotMergeable(f"its {brief(name, 60)} is {brief(told, 80)}, here it is {here}")
    return table


def _taken(table: Table) -> dict[tuple[str, str], Entry]:
    """Of several rows of a product PyTorch takes the first."""
    taken: dict[tuple[str, str], Entry] = {}
    for entry in table.entries:
        if entry.solution:
            taken.setdefault((entry.op, entry.key[0][1]), entry)
    return taken


def _check(validators: Mapping[str, str]) -> None:
    """Raises NotMergeable."""
    if "PT_VERSION" not in validators:
        raise NotMergeable("PyTorch tells no validators of its own")
    for name, value in validators.items():
        if not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
            raise NotMergeable(f"{brief(f'{name},{value}', 200)!r} is no validator")
