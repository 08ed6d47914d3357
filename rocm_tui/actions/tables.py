"""Read other tuners' tables from files and folders, and pin another solution for one of their rows.

`unpin` restores the row, and `undo` works as for any other pin.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from backend.disk.layout import Layout
from backend.disk.safe import NotRegular
from backend.errors import CacheUnreadable, PinRefused, StoreError
from backend.model.problem import TuningKey
from backend.model.tuning import Pin, Tuning
from backend.pins.plan import PinPlan
from backend.pins.state import PinReport
from backend.pins.store import PinStore
from backend.pins.tables import editing_of, entry_of, rewritten
from backend.tables.model import (
    Entry,
    NotEditable,
    Table,
    assignments,
    assignments_text,
    entry_key,
    table_system,
)
from backend.tables.registry import read_table, tuner_at, tuner_named
from rocm_tui.errors import NoSuchTuning, UsageError
from rocm_tui.ingest.formats.tuned_table import NAMES, tuning_of
from rocm_tui.ingest.records import SourceStatus
from rocm_tui.tables.collection import TableCollection, TableRow

SUFFIXES = (".csv", ".json", ".txt", ".config", ".db", ".udb")
"""The files that are read in a folder."""
MOST_FILES = 20_000
"""The most files of a folder."""
Unread = Callable[[CacheUnreadable], Table | None]
"""Handles what cannot be read: returns a table for it, or raises."""


def tables_within(
    room: int,
    paths: Iterable[str],
    known: Mapping[str, Table] | None = None,
    unread: Callable[[str], object] = bool,
) -> tuple[list[Table], int]:
    """Read the tables that fit into `room` bytes together; also return how many do not.

    Damaged and missing tables are not read either. A table of `known` is not read again. `unread`
    is called with each path whose reading failed though its file may be as before.
    """
    tables: list[Table] = []
    left_out = 0
    for path in paths:
        table = (known or {}).get(path)
        try:
            tables.append(table or read_table(Path(path), room))
        except StoreError as error:
            left_out += 1
            # A changed permission changes the file's stamp; a stale handle does not.
            lasting = (PermissionError, NotRegular)
            if isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, lasting):
                unread(path)
        else:
            room -= len(tables[-1].data)
    return tables, left_out


def tables_below(folder: Path, unread: Unread) -> Iterator[Table]:
    """Each table of a folder and those below it, behind no link to a folder. Raises
    UsageError for too many files, and what `unread` raises."""
    for path in _files(folder, unread):
        try:
            table = read_table(path) if tuner_at(path) is not None else None
        except CacheUnreadable as error:
            table = unread(error)
        if table is not None:
            yield table


def _files(folder: Path, unread: Unread) -> list[Path]:
    def refused(error: OSError) -> None:
        unread(CacheUnreadable(f"cannot read {error.filename}: {error.strerror}"))

    files: list[Path] = []
    for root, folders, names in os.walk(folder, onerror=refused):
        folders.sort()
        paths = (Path(root, name) for name in sorted(names) if name.endswith(SUFFIXES))
        files += filter(_may_be_file, paths)
        if len(files) > MOST_FILES:
            raise UsageError(f"{folder} has more than {MOST_FILES:,} files; name a folder below it")
    return files


def _may_be_file(path: Path) -> bool:
    """Whether it is a file; also if that is unknown, so that reading it reports the error."""
    try:
        return path.is_file()
    except OSError:
        return True


MOST_SCREEN_BYTES = 1 << 30
"""The most bytes of all files together, which are held in memory."""


Stamp = tuple[int, int, int, int]
"""Another one once a file was written or replaced."""


@dataclass(frozen=True, slots=True)
class LoadedTables:
    """The tables that were read; `left_out` are damaged, gone, or beyond `MOST_SCREEN_BYTES`.

    `stamps` are those of all files before they were read, None for a file that is not there or
    whose reading failed, so that it is read again.
    """

    collection: TableCollection
    left_out: int = 0
    stamps: Mapping[str, Stamp | None] = field(default_factory=dict)

    def changed_since(self, before: LoadedTables) -> frozenset[str]:
        """The files whose bytes are others than those read `before`, and those read only once."""
        ours, theirs = (
            {table.path: table for table in tables.collection.tables} for tables in (self, before)
        )
        paths = ours.keys() | theirs.keys()
        return frozenset(path for path in paths if ours.get(path) is not theirs.get(path))


def tables_among(sources: Iterable[SourceStatus]) -> list[str]:
    """Return the paths of the sources that are tables."""
    return [s.path for s in sources if s.format in NAMES]


def load_tables(paths: Iterable[str], before: LoadedTables | None = None) -> LoadedTables:
    """Read tables as a whole; unchanged files are taken from `before`.

    A file with the same bytes keeps its table object. A million entries take a second or two.
    """
    earlier = before or LoadedTables(TableCollection(()))
    earlier_tables = {table.path: table for table in earlier.collection.tables}
    paths = tuple(paths)
    now = stamps_of(paths)
    kept = {
        path: earlier_tables[path]
        for path in earlier_tables
        if earlier.stamps.get(path) == now.get(path)
    }
    unread: list[str] = []
    tables, left_out = tables_within(MOST_SCREEN_BYTES, paths, kept, unread.append)
    now |= dict.fromkeys(unread)
    same = (earlier_tables.get(table.path, table) for table in tables)
    tables = [
        old if old.data == table.data else table for old, table in zip(same, tables, strict=True)
    ]
    return LoadedTables(TableCollection(tables), left_out, now)


def stamps_of(paths: Iterable[str]) -> dict[str, Stamp | None]:
    """How the files are now; cheap, as hundreds are looked at every second."""
    return {path: _stamp(path) for path in paths}


def _stamp(path: str) -> Stamp | None:
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size


def values_in_words(table: Table, entry: Entry) -> str:
    """Return the present solution in the form that `pin` takes: a word, or `NAME=VALUE` pairs."""
    editing = tuner_named(table.tuner).editing
    if editing is None:
        return entry.solution
    values = {name: value for name, value in editing.values(entry).items() if value}
    if editing.bare in values:
        return values[editing.bare]
    return assignments_text(dict(islice(values.items(), _SHOWN_VALUES)))


_SHOWN_VALUES = 3
"""The most values of a row with many; the first ones name the kernel."""


def row_of(tuning: Tuning) -> TableRow | None:
    """Return the row that a tuning was read from, as the file has it now; None if it has none."""
    if tuning.entry is None:
        return None
    path, line = tuning.sources[0], tuning.entry.line
    try:
        table = read_table(Path(path))
    except StoreError:
        return None
    problem = tuner_named(table.tuner).problem
    for number, at in enumerate(table.numbers):
        if at == line:
            entry = table.entries[number]
            read = tuning_of(table.tuner, entry, problem, path)
            if read.inputs_key == tuning.inputs_key:
                return TableRow(table, entry)
    return None


_PLACE = re.compile(r"(.+):([1-9][0-9]{0,9})")


@dataclass(frozen=True, slots=True)
class Solution:
    """Other values of an entry: what they are called, and what the row becomes with them."""

    values: dict[str, str]
    label: str
    text: str


def is_place(text: str) -> bool:
    """Whether a person means a row by `FILE:LINE`."""
    match = _PLACE.fullmatch(text)
    return match is not None and _is_file(match[1])


def _is_file(text: str) -> bool:
    """Whether a person may mean a file: no name of a kernel is too long to ask."""
    return os.path.isfile(text)  # noqa: PTH113 - Path.is_file raises for a name that is too long


def row_at(text: str) -> TableRow:
    """The entry on the line of `FILE:LINE`. Raises NoSuchTuning and StoreErrors."""
    match = _PLACE.fullmatch(text)
    if match is None:
        raise NoSuchTuning(f"{text!r} is no place in a table; it is written FILE:LINE")
    path = Path(os.path.realpath(match[1]))
    table, line = read_table(path), int(match[2])
    entry = table.at_line(line)
    if entry is None:
        raise NoSuchTuning(_none_at(table, line, match[1]))
    meant = entry_of(table, entry_key(table.tuner, entry))
    if meant is not None and meant.line != line:
        raise NoSuchTuning(
            f"line {line} of {match[1]} says again what line {meant.line} says, which is taken"
        )
    return TableRow(table, entry)


def _none_at(table: Table, line: int, path: str) -> str:
    """Say that no entry begins on a line, with the line that may be meant."""
    why = f"on line {line} of {path} begins no entry of the {table.tuner} table"
    before = [number for number in table.numbers if number < line]
    near = before[-1] if before else next(iter(table.numbers), None)
    return why if near is None else f"{why}; one begins on line {near}"


def pins_at(pins: Sequence[Pin], text: str) -> list[Pin]:
    """Return the pins of the row at `FILE:LINE`. Raises NoSuchTuning and StoreErrors."""
    row = row_at(text)
    key, system = _key_of(row), table_system(Path(row.table.path))
    meant = [pin for pin in pins if (pin.key, pin.system_hash) == (key, system)]
    if not meant:
        raise NoSuchTuning(f"{row.place} is not pinned; `rocm-tui pin` lists the pins")
    return meant


def _key_of(row: TableRow) -> TuningKey:
    return entry_key(row.table.tuner, row.entry)


def solution_of(row: TableRow, text: str) -> Solution:
    """Return the solution that a person means by `text`.

    It is `NAME=VALUE,...`, a solution's name if the tuner has names, or another table that has this
    entry. Raises PinRefused and StoreErrors.
    """
    bare = editing_of(row.table).bare
    if _is_file(text):
        values = _values_in(Path(text), row)
    elif bare and "=" not in text:
        values = {bare: text}
    else:
        try:
            values = assignments(text)
        except NotEditable as error:
            raise PinRefused(str(error)) from error
    written = rewritten(row.table, row.table.text(row.entry), values)
    label = values.get(bare) or assignments_text(values)
    return Solution(values, label, written.decode("utf-8", "replace"))


def _values_in(path: Path, row: TableRow) -> dict[str, str]:
    """Return the values of the same entry in another table of the same tuner."""
    other = read_table(path)
    if other.tuner != row.table.tuner:
        raise PinRefused(f"{path} is a table of {other.tuner}, not of {row.table.tuner}")
    there = entry_of(other, _key_of(row))
    if there is None:
        raise PinRefused(f"{path} has no entry for what {row.place} is for")
    values = editing_of(other).values(there)
    return {name: value for name, value in values.items() if value}


def plan_row(row: TableRow, solution: Solution, layout: Layout) -> PinPlan:
    """Plan what pinning it would change, changing nothing. Raises StoreError."""
    return _store(row, layout).plan(
        None, _key_of(row), solution.label, solution.values, table=Path(row.table.path)
    )


def pin_row(row: TableRow, solution: Solution, layout: Layout, *, note: str = "") -> PinReport:
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


def _store(row: TableRow, layout: Layout) -> PinStore:
    """Return a pin store that has the table, so that an unchanged file is not parsed again."""
    store = PinStore(layout)
    store.remember(row.table)
    return store
