"""Tuned tables read from files: one set of bounds, one sentence for each thing that is wrong."""

from __future__ import annotations

from pathlib import Path

from backend.disk.safe import MAX_BYTES, read_bytes, read_head
from backend.errors import CacheUnreadable, brief
from backend.model.session import Fault
from backend.tables.model import Table, Tuner
from backend.tables.registry import HEAD, parse, sniff


class TableDamaged(CacheUnreadable):
    """A document of a tuner that cannot be parsed. `table` has that as its only problem."""

    def __init__(self, why: str, table: Table) -> None:
        super().__init__(f"{table.path} is damaged: {brief(why, 80)}")
        self.table = table


def tuner_at(path: Path) -> Tuner | None:
    """Whose table the file is, as its beginning tells; None for none. Raises CacheUnreadable."""
    return sniff(read_head(path, HEAD), str(path))


def read_table(path: Path, limit: int = MAX_BYTES) -> Table:
    """The table that a file of at most `limit` bytes is. Raises CacheUnreadable, TableDamaged."""
    return table_in(read_bytes(path, limit), path)


def table_in(data: bytes, path: Path) -> Table:
    """The table that these bytes of `path` are. Raises CacheUnreadable, TableDamaged."""
    tuner = sniff(data[:HEAD], str(path))
    if tuner is None:
        raise CacheUnreadable(f"{path} is no table of a tuner that is known here")
    try:
        table = parse(data, str(path))
    except ValueError as error:
        fault = Fault(str(path), str(error))
        table = Table(tuner.name, str(path), data, (), (), (), (fault,))
        raise TableDamaged(str(error), table) from error
    assert table is not None
    return table
