"""Files read as what was asked for and as tables, and what is to be tuned written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from backend.counted import counted
from backend.disk.safe import write_atomic
from backend.disk.tables import read_table, tuner_at
from backend.errors import CacheUnreadable
from backend.tables.model import Table
from backend.tables.registry import parse
from rocm_tui.actions.table_files import tables_below
from rocm_tui.errors import RocmTuiError, UsageError
from rocm_tui.ingest.asked import aiter, inductor, tunableop
from rocm_tui.ingest.asked.ask import Asked
from rocm_tui.ingest.asked.lists import asked_by, is_list
from rocm_tui.ingest.asked.logs import asked_in
from rocm_tui.ingest.follow.reading import read_sources
from rocm_tui.session.model import Model
from rocm_tui.session.stats import winner
from rocm_tui.tables.coverage import Covered
from rocm_tui.tables.lookup import BLAS
from rocm_tui.tables.untuned import Untuned, untuned_lists


@dataclass(slots=True)
class Files:
    """What was read: questions, of how many files, and tables; `unread` are files of folders that
    could not be, a line each."""

    asked: Asked = field(default_factory=Asked)
    sources: int = 0
    tables: list[Table] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def read_files(paths: Iterable[Path], tables: Iterable[Path] = ()) -> Files:
    """Logs and untuned lists are what was asked for, tuned tables and folders of them what there
    is: by their content, but for those named as `tables`. Raises UsageError, CacheUnreadable."""
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
            asked_in(path, files.asked)
            logs.append(str(path))
        elif is_list(table):
            asked_by(table, files.asked)
        else:
            files.tables.append(table)
            continue
        files.sources += 1
    if any(table.tuner in BLAS for table in files.tables):
        _add_tunings(logs, files.asked)
    if not files.sources:
        raise UsageError("no log and no untuned list among these files: cover LOG... TABLE...")
    return files


def _add_tunings(logs: Sequence[str], asked: Asked) -> None:
    """What Inductor tuned in these logs."""
    model = Model()
    model.apply(read_sources(logs))
    for row in model.rows():
        best = winner(row.tuning)
        one = inductor.said(row.tuning.problem, best.label if best else "")
        if one is not None and row.tuning.entry is None:
            asked.add(one)


def _add_tables(folder: Path, files: Files) -> None:
    def unread(error: CacheUnreadable) -> None:
        files.unread.append(str(error))

    files.tables += (table for table in tables_below(folder, unread) if not is_list(table))


@dataclass(frozen=True, slots=True)
class Written:
    path: Path
    untuned: Untuned

    @property
    def run(self) -> str:
        """What tunes it, for a shell; empty where that is not known."""
        return self.untuned.run.replace("{file}", quote(str(self.path)))


def write_untuned(rows: Sequence[Covered], path: Path, force: bool = False) -> list[Written]:
    """A list of what is lacking at `path`; where several tuners or tables need one each, beside it
    under their names. Raises RocmTuiError, NotWritable, OSError."""
    lists = [one for one in untuned_lists(rows) if one.rows]
    written = [Written(_place(path, one, len(lists)), one) for one in lists]
    there = [one.path for one in written if one.path.exists() or one.path.is_symlink()]
    if there and not force:
        raise RocmTuiError(f"{there[0]} exists already; nothing was written (--force replaces it)")
    for one in written:
        data = one.untuned.text.encode()
        _check(one, data)
        write_atomic(one.path, data)
    return written


def _place(path: Path, untuned: Untuned, lists: int) -> Path:
    return path if lists == 1 else path.with_name(f"{path.stem}.{untuned.name}")


def _check(written: Written, data: bytes) -> None:
    """What is written is read again first, by the reader of such files."""
    if written.untuned.tuner not in (aiter.TUNER, tunableop.TUNER):
        return
    table = parse(data, str(written.path))
    rows = 0 if table is None or table.problems else len(table.entries)
    if rows != written.untuned.rows:
        products = counted(written.untuned.rows, "product")
        raise RocmTuiError(f"{products} would be read as {rows:,} from {written.path}: not written")
