"""The tables that a person names: files, and folders of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from backend.disk.tables import read_table, tuner_at
from backend.errors import CacheUnreadable, StoreError
from backend.tables.model import Table
from rocm_tui.errors import UsageError

SUFFIXES = (".csv", ".json", ".txt", ".config", ".db", ".udb")
"""Of the files that are looked at in a folder."""
MOST_FILES = 20_000
"""Of a folder."""
Unread = Callable[[CacheUnreadable], Table | None]
"""Is told what cannot be read, and may have a table for it, or raise."""


def tables_within(
    room: int, paths: Iterable[str], known: Mapping[str, Table] | None = None
) -> tuple[list[Table], int]:
    """Those that `room` bytes hold together, and how many there are besides: damaged, gone, or
    beyond it. Of the paths that are `known` the table is there already."""
    tables: list[Table] = []
    left_out = 0
    for path in paths:
        table = (known or {}).get(path)
        try:
            tables.append(table or read_table(Path(path), room))
        except StoreError:
            left_out += 1
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

    found: list[Path] = []
    for root, folders, names in os.walk(folder, onerror=refused):
        folders.sort()
        paths = (Path(root, name) for name in sorted(names) if name.endswith(SUFFIXES))
        found += filter(_may_be_file, paths)
        if len(found) > MOST_FILES:
            raise UsageError(f"{folder} has more than {MOST_FILES:,} files; name a folder below it")
    return found


def _may_be_file(path: Path) -> bool:
    """Also what cannot be told: whoever reads it says so."""
    try:
        return path.is_file()
    except OSError:
        return True
