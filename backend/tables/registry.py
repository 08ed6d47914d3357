"""The table of tuners, which of them wrote a file, and the reading of their files from disk.

A new tuner is a `Tuner` in this folder and one line in `TUNERS`.
"""

from __future__ import annotations

from pathlib import Path, PurePath

from backend.disk.safe import MAX_BYTES, read_bytes, read_head
from backend.errors import CacheUnreadable, brief
from backend.model.problem import Problem
from backend.model.session import Fault
from backend.tables import aiter, hipblaslt, ladder, miopen, tunableop
from backend.tables.model import BOM, Entry, Table, Tuner

TUNERS = (
    tunableop.TUNER,
    hipblaslt.TUNER,
    miopen.TUNER,
    aiter.TUNER,
    ladder.MOE,
    ladder.AITER_TRITON,
)
"""The first tuner that recognises a file has written it."""
HEAD = 16 << 10
"""Bytes that are enough to recognise a tuner."""
_BY_NAME = {tuner.name: tuner for tuner in TUNERS}


def sniff(head: bytes, name: str) -> Tuner | None:
    """Who wrote the file of this name (or path) that begins with `head`; None for no table."""
    head = head[:HEAD].removeprefix(BOM)
    name = PurePath(name).name
    return next((tuner for tuner in TUNERS if tuner.knows(head, name)), None)


def parse(data: bytes, path: str) -> Table | None:
    """The table that these bytes are, of the file `path`; None for none. Raises ValueError for a
    document that is damaged."""
    tuner = sniff(data[:HEAD], path)
    return None if tuner is None else tuner.table(data, path)


def tuner_named(name: str) -> Tuner:
    """Raises KeyError."""
    return _BY_NAME[name]


def problem_of_entry(table: Table, entry: Entry) -> Problem:
    """Return the problem of torch that an entry solves. Raises NotAProblem."""
    return _BY_NAME[table.tuner].problem(entry)


class TableDamaged(CacheUnreadable):
    """A document of a tuner that cannot be parsed. `table` has that as its only problem."""

    def __init__(self, why: str, table: Table) -> None:
        super().__init__(f"{table.path} is damaged: {brief(why, 80)}")
        self.table = table


def tuner_at(path: Path) -> Tuner | None:
    """Return the tuner of the file by its beginning; None for no table. Raises CacheUnreadable."""
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
        return tuner.table(data, str(path))
    except ValueError as error:
        fault = Fault(str(path), str(error))
        table = Table(tuner.name, str(path), data, (), (), (), (fault,))
        raise TableDamaged(str(error), table) from error
