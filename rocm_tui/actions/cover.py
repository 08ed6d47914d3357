"""Read logs and tables, find what the logs lack in the tables, and write it as untuned lists."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from backend.counted import counted
from backend.disk.safe import write_atomic
from backend.errors import CacheUnreadable, StoreError
from backend.tables.model import Table
from backend.tables.registry import parse, read_table, tuner_at
from rocm_tui.actions.tables import tables_below, tables_within
from rocm_tui.errors import RocmTuiError, UsageError
from rocm_tui.harmless import plain
from rocm_tui.ingest import lookups
from rocm_tui.ingest.follow.sources import read_sources
from rocm_tui.ingest.lookups import (
    BEGINNING,
    Lookups,
    add_untuned_list,
    is_untuned_list,
    read_lookups,
)
from rocm_tui.ingest.records import STDIN
from rocm_tui.session.model import Model
from rocm_tui.session.stats import winner
from rocm_tui.tables.coverage import BLAS, Covered, Verdict, cover
from rocm_tui.tables.untuned import Untuned, untuned_lists


@dataclass(slots=True)
class Files:
    """The lookups of `sources` files, and the tables.

    `unread` has a line for each file in a folder that could not be read.
    """

    asked: Lookups = field(default_factory=Lookups)
    sources: int = 0
    tables: list[Table] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def read_files(paths: Iterable[Path], tables: Iterable[Path] = ()) -> Files:
    """Read lookups from logs and untuned lists, and tuned tables from tables and folders.

    Their content decides which they are; `tables` are always tables. Raises UsageError and
    CacheUnreadable.
    """
    files = Files()
    logs: list[str] = []
    for path in tables:
        if path.is_dir():
            _add_tables(path, files)
        else:
            files.tables.append(read_table(path))
    for path in paths:
        if path.is_dir():
            _add_tables(path, files)
            continue
        table = None if tuner_at(path) is None else read_table(path)
        if table is None:
            read_lookups(path, files.asked)
            logs.append(str(path))
        elif is_untuned_list(table):
            add_untuned_list(table, files.asked)
        else:
            files.tables.append(table)
            continue
        files.sources += 1
    if any(table.tuner in BLAS for table in files.tables):
        _add_tunings(logs, files.asked)
    if not files.sources:
        raise UsageError("no log and no untuned list among these files: cover LOG... TABLE...")
    return files


def _add_tunings(logs: Sequence[str], asked: Lookups) -> None:
    """Add what Inductor tuned in these logs."""
    model = Model()
    model.apply(read_sources(logs))
    for row in model.rows():
        best = winner(row.tuning)
        question = lookups.said_of_product(row.tuning.problem, best.label if best else "")
        if question is not None and row.tuning.entry is None:
            asked.add(question)


def _add_tables(folder: Path, files: Files) -> None:
    def unread(error: CacheUnreadable) -> None:
        files.unread.append(str(error))

    files.tables += (table for table in tables_below(folder, unread) if not is_untuned_list(table))


@dataclass(frozen=True, slots=True)
class Written:
    path: Path
    untuned: Untuned

    @property
    def run(self) -> str:
        """The shell command that tunes the list; empty if it is unknown."""
        return self.untuned.run.replace("{file}", quote(str(self.path)))


def write_untuned(rows: Sequence[Covered], path: Path, force: bool = False) -> list[Written]:
    """A list of what is lacking at `path`; where several tuners or tables need one each, beside it
    under their names. Raises RocmTuiError, NotWritable, OSError."""
    lists = [untuned for untuned in untuned_lists(rows) if untuned.rows]
    written = [Written(_place(path, untuned, len(lists)), untuned) for untuned in lists]
    there = [file.path for file in written if file.path.exists() or file.path.is_symlink()]
    if there and not force:
        raise RocmTuiError(f"{there[0]} exists already; nothing was written (--force replaces it)")
    for file in written:
        _check(file)
    for file in written:
        write_atomic(file.path, file.untuned.text.encode())
    return written


def _place(path: Path, untuned: Untuned, lists: int) -> Path:
    return path if lists == 1 else path.with_name(f"{path.stem}.{untuned.name}")


def _check(written: Written) -> None:
    """Raise RocmTuiError if the reader of such lists would not read back what is to be written."""
    if written.untuned.tuner not in (lookups.AITER, lookups.TUNABLEOP):
        return
    table = parse(written.untuned.text.encode(), str(written.path))
    rows = 0 if table is None or table.problems else len(table.entries)
    if rows != written.untuned.rows:
        products = counted(written.untuned.rows, "product")
        raise RocmTuiError(f"{products} would be read as {rows:,} from {written.path}: not written")


@dataclass(frozen=True, slots=True)
class Missed:
    """Lookups in the beginning of a log that tuned tables lacked.

    `products` are in none of `tables`; `nameless` misses name no product.
    """

    path: str
    products: int
    nameless: int = 0
    tables: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The command that lists them."""
        return shlex.join(["rocm-tui", "cover", self.path, *self.tables])

    @property
    def line(self) -> str:
        """`2 products missed in tuned tables: rocm-tui cover server.log`."""
        products = counted(self.products, "product")
        nameless = counted(self.nameless, "miss", "misses") + " without a name"
        parts = [products] * bool(self.products) + [nameless] * bool(self.nameless)
        lacking = ", which none of the tables here has" if self.tables and self.products else ""
        return plain(f"{' and '.join(parts)} missed in tuned tables{lacking}: {self.command}")


_MOST_NAMED = 3
"""Tables that the command of a `Missed` names; if there are more, it names none."""
_MOST_TABLE_BYTES = 256 << 20
"""The size of all tables together; tables beyond it are not read."""


def missed_in(paths: Iterable[str], tables: Iterable[str] = ()) -> list[Missed]:
    """Return what each of the logs among `paths` missed; what is no file is skipped.

    Only if a log reports a miss are the tables read: those among `paths`, and `tables`.
    """
    files = [path for path in dict.fromkeys(paths) if path != STDIN and Path(path).is_file()]
    asked_by_log = {path: asked for path in files if (asked := _missing(path)) is not None}
    if not asked_by_log:
        return []
    given = [path for path in files if _is_table(path)]
    read, _ = tables_within(_MOST_TABLE_BYTES, dict.fromkeys((*given, *tables)))
    names = tuple(table.path for table in read)
    missed = [
        Missed(
            path,
            sum(
                row.verdict is Verdict.MISSED and _is_missed(row) for row in cover(asked, read).rows
            ),
            sum(asked.nameless.values()),
            names if len(names) <= _MOST_NAMED else (),
        )
        for path, asked in asked_by_log.items()
        if path not in given
    ]
    return [line for line in missed if line.products or line.nameless]


def _missing(path: str) -> Lookups | None:
    """Return the lookups of a log, or None if it reports no miss."""
    asked = Lookups()
    try:
        read_lookups(Path(path), asked, BEGINNING)
    except OSError:
        return None
    any_missed = asked.nameless or any(tally.missed for tally in asked.tallies.values())
    return asked if any_missed else None


def _is_missed(row: Covered) -> bool:
    """Whether the log itself missed it; what a run tuned, it missed once."""
    return bool(row.tally.missed or row.tally.untold)


def _is_table(path: str) -> bool:
    try:
        return tuner_at(Path(path)) is not None
    except StoreError:
        return False
