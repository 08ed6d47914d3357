"""The tuned tables among the files that are watched, read for the screen of their entries."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from backend.tables.edit import in_words
from backend.tables.model import Entry, Table
from backend.tables.registry import tuner_named
from rocm_tui.actions.table_files import tables_within
from rocm_tui.ingest.formats.tuned_table import NAMES
from rocm_tui.ingest.records import SourceStatus
from rocm_tui.tables.shelf import Shelf

MOST_BYTES = 1 << 30
"""Of all files together: as much is held in memory."""


Stamp = tuple[int, int, int, int]
"""Another one once a file was written or replaced."""


@dataclass(frozen=True, slots=True)
class Shelving:
    """What was read, and how many tables were not: damaged, gone, or beyond `MOST_BYTES`. `stamps`
    are those of all files before they were read, None for one that is not there."""

    shelf: Shelf
    left_out: int = 0
    stamps: Mapping[str, Stamp | None] = field(default_factory=dict)

    def changed_since(self, before: Shelving) -> frozenset[str]:
        """The files whose bytes are others than those read `before`, and those read only once."""
        ours, theirs = ({table.path: table for table in one.shelf.tables} for one in (self, before))
        paths = ours.keys() | theirs.keys()
        return frozenset(path for path in paths if ours.get(path) is not theirs.get(path))


def tables_among(sources: Iterable[SourceStatus]) -> list[str]:
    """The paths of those that are tables."""
    return [s.path for s in sources if s.format in NAMES]


def shelve(paths: Iterable[str], before: Shelving | None = None) -> Shelving:
    """Read them whole; those that are as they were `before` are not read again, and whose bytes are
    the same is the same table. A million entries take a second or two."""
    earlier = before or Shelving(Shelf(()))
    known = {table.path: table for table in earlier.shelf.tables}
    paths = tuple(paths)
    now = stamps_of(paths)
    kept = {path: known[path] for path in known if earlier.stamps.get(path) == now.get(path)}
    tables, left_out = tables_within(MOST_BYTES, paths, kept)
    same = (known.get(table.path, table) for table in tables)
    tables = [
        old if old.data == table.data else table for old, table in zip(same, tables, strict=True)
    ]
    return Shelving(Shelf(tables), left_out, now)


def stamps_of(paths: Iterable[str]) -> dict[str, Stamp | None]:
    """How the files are now; cheap, as hundreds are looked at every second."""
    return {path: _stamp(path) for path in paths}


def _stamp(path: str) -> Stamp | None:
    try:
        told = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return told.st_ino, told.st_mtime_ns, told.st_ctime_ns, told.st_size


def values_in_words(table: Table, entry: Entry) -> str:
    """What `pin` takes as its solution, as it is now: a word, or some `NAME=VALUE`."""
    editing = tuner_named(table.tuner).editing
    if editing is None:
        return entry.solution
    values = {name: value for name, value in editing.values(entry).items() if value}
    if editing.bare in values:
        return values[editing.bare]
    return in_words(dict(islice(values.items(), _VALUES)))


_VALUES = 3
"""Of a long row: the first ones name the kernel."""
