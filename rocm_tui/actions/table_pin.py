"""Pin another solution for an entry of a tuned table: another value in its row, taken back by
`unpin`, undone by `undo` as any pin is."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.disk.layout import Layout
from backend.disk.tables import read_table
from backend.errors import PinRefused
from backend.model.pin import Pin
from backend.model.problem import TuningKey
from backend.pins.plan import PinPlan
from backend.pins.state import PinReport
from backend.pins.store import PinStore
from backend.pins.tables import editing_of, entry_of, rewritten
from backend.tables.edit import NotEditable, assignments, in_words
from backend.tables.keys import key_of, system_of
from backend.tables.model import Table
from rocm_tui.errors import NoSuchTuning
from rocm_tui.tables.shelf import Shelved

_PLACE = re.compile(r"(.+):([1-9][0-9]{0,9})")


@dataclass(frozen=True, slots=True)
class Solution:
    """Other values of an entry: what they are called, and what the row becomes with them."""

    values: dict[str, str]
    label: str
    text: str


def is_place(text: str) -> bool:
    """Whether a person means a row by `FILE:LINE`."""
    found = _PLACE.fullmatch(text)
    return found is not None and Path(found[1]).is_file()


def row_at(text: str) -> Shelved:
    """The entry on the line of `FILE:LINE`. Raises NoSuchTuning and StoreErrors."""
    found = _PLACE.fullmatch(text)
    if found is None:
        raise NoSuchTuning(f"{text!r} is no place in a table; it is written FILE:LINE")
    path = Path(os.path.realpath(found[1]))
    table, line = read_table(path), int(found[2])
    entry = table.at_line(line)
    if entry is None:
        raise NoSuchTuning(_none_at(table, line, found[1]))
    meant = entry_of(table, key_of(table.tuner, entry))
    if meant is not None and meant.line != line:
        raise NoSuchTuning(
            f"line {line} of {found[1]} says again what line {meant.line} says, which is taken"
        )
    return Shelved(table, entry)


def _none_at(table: Table, line: int, path: str) -> str:
    """With the line that may be meant: a step of a ladder has several."""
    why = f"on line {line} of {path} begins no entry of the {table.tuner} table"
    before = [number for number in table.numbers if number < line]
    near = before[-1] if before else next(iter(table.numbers), None)
    return why if near is None else f"{why}; one begins on line {near}"


def pins_at(pins: Sequence[Pin], text: str) -> list[Pin]:
    """Those of the row at `FILE:LINE`. Raises NoSuchTuning and StoreErrors."""
    row = row_at(text)
    key, system = _key_of(row), system_of(Path(row.table.path))
    meant = [pin for pin in pins if (pin.key, pin.system_hash) == (key, system)]
    if not meant:
        raise NoSuchTuning(f"{row.place} is not pinned; `rocm-tui pins` prints what is")
    return meant


def _key_of(row: Shelved) -> TuningKey:
    return key_of(row.table.tuner, row.entry)


def solution_of(row: Shelved, text: str) -> Solution:
    """What a person means by `text`: `NAME=VALUE,...`, a solution's name where the tuner has such,
    or another table that has this very entry. Raises PinRefused, StoreErrors."""
    bare = editing_of(row.table).bare
    if Path(text).is_file():
        values = _values_in(Path(text), row)
    elif bare and "=" not in text:
        values = {bare: text}
    else:
        try:
            values = assignments(text)
        except NotEditable as error:
            raise PinRefused(str(error)) from error
    written = rewritten(row.table, row.table.text(row.entry), values)
    label = values.get(bare) or in_words(values)
    return Solution(values, label, written.decode("utf-8", "replace"))


def _values_in(path: Path, row: Shelved) -> dict[str, str]:
    """What another table of the same tuner says of the same entry."""
    other = read_table(path)
    if other.tuner != row.table.tuner:
        raise PinRefused(f"{path} is a table of {other.tuner}, not of {row.table.tuner}")
    there = entry_of(other, _key_of(row))
    if there is None:
        raise PinRefused(f"{path} has no entry for what {row.place} is for")
    told = editing_of(other).values(there)
    return {name: value for name, value in told.items() if value}


def plan_row(row: Shelved, solution: Solution, layout: Layout) -> PinPlan:
    """What pinning it would change; changes nothing. Raises StoreError."""
    return _store(row, layout).plan(
        None, _key_of(row), solution.label, solution.values, table=Path(row.table.path)
    )


def pin_row(row: Shelved, solution: Solution, layout: Layout, *, note: str = "") -> PinReport:
    """Write it into the table, whose other bytes stay. Raises StoreErrors."""
    return _store(row, layout).pin(
        None,
        _key_of(row),
        solution.label,
        label=solution.label,
        note=note,
        config=solution.values,
        table=Path(row.table.path),
    )


def _store(row: Shelved, layout: Layout) -> PinStore:
    """Which does not parse the table again that the person has seen, if it still is as it was."""
    store = PinStore(layout)
    store.remember(row.table)
    return store
