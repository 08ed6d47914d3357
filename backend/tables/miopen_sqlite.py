"""MIOpen's perf-dbs in SQLite (`gfx942130.db`, `gfx942130_1.1.0.udb`) as the text that its tool
`sqlite2txt` makes of them: a line a convolution, `key=solver:parameters;solver:parameters`.

A table `config` holds the convolutions, a row of `perf_db` the parameters of one solver for one of
them (MIOpen 3.3, src/include/miopen/sqlite_db.hpp, tools/sqlite2txt/main.cpp). SQLite never sees
the file: what is read is a copy of its bytes in memory, so nothing of it is locked, and nothing is
written beside it. Rows that stand in its `-wal` alone are not seen.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count, groupby

from backend.tables.begins import SQLITE

MAX_BYTES = 256 << 20
MAX_ROWS = 2_000_000
_MOST_STEPS = 100_000
"""Instructions of SQLite, in thousands: far more than as many rows take."""
_MAX_TEXT = 8 << 10
_COLUMNS = (
    *("spatial_dim", "in_channels", "in_h", "in_w", "in_d", "fil_h", "fil_w", "fil_d"),
    *("out_channels", "batchsize", "pad_h", "pad_w", "pad_d"),
    *("conv_stride_h", "conv_stride_w", "conv_stride_d"),
    *("dilation_h", "dilation_w", "dilation_d", "bias", "group_count"),
    *("layout", "data_type", "direction"),
)
"""In the order of a key."""
_QUERY = (
    f"SELECT {', '.join(f'config.{name}' for name in _COLUMNS)}, perf_db.solver, perf_db.params"
    " FROM perf_db INNER JOIN config ON perf_db.config = config.id"
    f" ORDER BY perf_db.config, perf_db.id LIMIT {MAX_ROWS + 1}"
)
_Row = tuple[object, ...]


def text_of(data: bytes) -> bytes:
    """The lines of a perf-db. Raises ValueError."""
    if len(data) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES >> 20} MiB")
    try:
        with _opened(data) as database:
            rows = database.execute(_QUERY).fetchall()
    except (sqlite3.Error, UnicodeDecodeError, OverflowError, MemoryError) as error:
        raise ValueError(f"no perf-db of MIOpen that can be read: {error}") from error
    if len(rows) > MAX_ROWS:
        raise ValueError(f"more than {MAX_ROWS:,} rows")
    return b"".join(_lines(rows))


@contextmanager
def _opened(data: bytes) -> Iterator[sqlite3.Connection]:
    """In memory, and of no more than it needs: what a file defines beside its tables is not run,
    and what would take for ever is ended. A file written ahead (WAL) is opened as it stands."""
    database = sqlite3.connect(":memory:")
    try:
        at = len(SQLITE) + 2  # write version, read version
        if sys.version_info < (3, 11):
            raise ValueError("a database in memory takes Python 3.11")
        database.deserialize(data[:at] + b"\x01\x01" + data[at + 2 :])
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_TEXT)
        database.execute("PRAGMA query_only = ON")
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA cell_size_check = ON")
        database.set_authorizer(_allowed)
        steps = count(1)
        database.set_progress_handler(lambda: next(steps) > _MOST_STEPS, 1000)
        yield database
    finally:
        database.close()


def _allowed(action: int, *_: object) -> int:
    fine = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
    return sqlite3.SQLITE_OK if fine else sqlite3.SQLITE_DENY


def _lines(rows: Sequence[_Row]) -> Iterator[bytes]:
    for key, same in groupby(rows, lambda row: row[: len(_COLUMNS)]):
        solvers = ";".join(f"{row[-2]}:{row[-1]}" for row in same)
        line = f"{'x'.join(map(str, key))}={solvers}"
        yield " ".join(line.splitlines()).encode("utf-8", "replace") + b"\n"
