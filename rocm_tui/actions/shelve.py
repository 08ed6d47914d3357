"""The tuned tables among the files that are watched, read for the screen of their entries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from backend.disk.exchange import signature_of
from backend.disk.tables import read_table
from backend.errors import StoreError
from backend.tables.edit import in_words
from backend.tables.model import Entry, Table
from backend.tables.registry import tuner_named
from rocm_tui.ingest.formats.tuned_table import NAMES
from rocm_tui.ingest.records import SourceStatus
from rocm_tui.ssh.address import is_far
from rocm_tui.tables.shelf import Shelf

MOST_BYTES = 1 << 30
"""Of all files together: as much is held in memory."""


@dataclass(frozen=True, slots=True)
class Shelving:
    """What was read, and how many tables were not: damaged, gone, or beyond `MOST_BYTES`. `stamps`
    tell whether a file was written since."""

    shelf: Shelf
    left_out: int = 0
    stamps: Mapping[str, object] = field(default_factory=dict)


def tables_among(sources: Iterable[SourceStatus]) -> list[str]:
    """The paths of those that are tables, on this machine."""
    return [s.path for s in sources if s.format in NAMES and not is_far(s.path)]


def shelve(paths: Iterable[str], before: Shelving | None = None) -> Shelving:
    """Read them whole; those that are as they were `before` are not read again. A million entries
    take a second or two."""
    known = {table.path: table for table in before.shelf.tables} if before else {}
    stamps = before.stamps if before else {}
    tables, left_out, room = [], 0, MOST_BYTES
    now: dict[str, object] = {}
    for path in paths:
        now[path] = signature_of(Path(path))
        if path in known and stamps.get(path) == now[path]:
            tables.append(known[path])
            room -= len(known[path].data)
            continue
        try:
            table = read_table(Path(path), room)
        except StoreError:
            left_out += 1
            continue
        room -= len(table.data)
        tables.append(table)
    return Shelving(Shelf(tables), left_out, now)


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
