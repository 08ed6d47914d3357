"""Let PyTorch's TunableOp tune products, and put its rows into a person's file of results.

Each product is a job of its own, and its row is in the file before the next one begins: what ends
it all, a crash or a person, costs the product that it was at.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from backend.counted import counted
from backend.disk import exchange, safe
from backend.disk.exchange import check_unwritten
from backend.disk.layout import Layout
from backend.errors import NotWritable
from backend.tables.model import NotEditable
from backend.tables.tunableop import NotMergeable, TunedRow, check_row, is_product, keys_in, merged
from backend.wire.jobs import TunableOpJob, TunableOpResult
from rocm_tui.actions.cover import read_files
from rocm_tui.errors import RocmTuiError, UsageError
from rocm_tui.harmless import plain
from rocm_tui.ingest import lookups
from rocm_tui.jobs.limits import JobError
from rocm_tui.jobs.run import RunJob
from rocm_tui.jobs.tune import NotTuned
from rocm_tui.tables.coverage import cover
from rocm_tui.tables.untuned import TUNABLEOP_RUN, Untuned, untuned_lists


@dataclass(frozen=True, slots=True)
class WantedProducts:
    """The products to tune with TunableOp.

    `lines` are `op,params`, the most requested first. `left_out` has reasons and counts of other
    lookups of TunableOp; `others` are lists of other tuners.
    """

    lines: tuple[str, ...]
    left_out: tuple[tuple[str, int], ...] = ()
    others: tuple[Untuned, ...] = ()


@dataclass(slots=True)
class Outcome:
    """The rows that were tuned and written, the failures by line, how many products had a row
    already, and how many the budget left."""

    rows: list[TunedRow] = field(default_factory=list)
    failed: dict[str, RocmTuiError] = field(default_factory=dict)
    there: int = 0
    skipped: int = 0


def wanted_in(paths: Iterable[Path]) -> WantedProducts:
    """Read what untuned lists and logs request of TunableOp. Raises UsageError, NoSuchSource."""
    try:
        files = read_files(paths)
    except UsageError as error:
        raise UsageError(
            "no untuned list and no log among these files: give what PYTORCH_TUNABLEOP_RECORD_"
            "UNTUNED=1 wrote, or a log with PYTORCH_TUNABLEOP_VERBOSE=3"
        ) from error
    lists = untuned_lists(cover(files.asked, []).rows)
    ours = [untuned for untuned in lists if untuned.tuner == lookups.TUNABLEOP]
    lines = tuple(dict.fromkeys(line for untuned in ours for line in untuned.text.splitlines()))
    fit = tuple(filter(is_product, lines))
    odd = [("with a word that no list can hold", len(lines) - len(fit))] * (len(lines) > len(fit))
    return WantedProducts(
        fit,
        (*(reason for untuned in ours for reason in untuned.left_out), *odd),
        tuple(untuned for untuned in lists if untuned.tuner != lookups.TUNABLEOP and untuned.rows),
    )


def tune_products(
    run: RunJob,
    layout: Layout,
    lines: Sequence[str],
    results: Path,
    outcome: Outcome,
    *,
    force: bool = False,
    budget: float | None = None,
    begins: Callable[[str, int, int], None] = lambda line, done, total: None,
) -> None:
    """Tune `lines` and write the fastest solutions into `results`; `outcome` is updated meanwhile.

    Without `force` a product that has a row there is not tuned. After `budget` seconds no other one
    is begun; `begins` is called for each with its number and their total. Raises RocmTuiErrors and
    StoreErrors, before anything is tuned if the file cannot take what PyTorch here will find.
    """
    path = Path(os.path.realpath(results))
    with _folder(layout) as folder:
        here = _able(run(TunableOpJob(str(folder))), lines)
        tuned = _merge(path, here, ())
        there = frozenset() if force else tuned
        left = [line for line in lines if tuple(line.split(",", 1)) not in there]
        outcome.there = len(lines) - len(left)
        end = None if budget is None else time.monotonic() + budget
        for done, line in enumerate(left):
            if end is not None and time.monotonic() >= end:
                outcome.skipped = len(left) - done
                return
            begins(line, done, len(left))
            try:
                result = _able(run(TunableOpJob(str(folder), line)), lines)
                rows = _fit(result)
            except JobError as error:
                outcome.failed[line] = error
                continue
            except NotMergeable as error:
                outcome.failed[line] = NotTuned(plain(str(error)))
                continue
            before = _merge(path, result, rows, force=force)
            outcome.rows += [row for row in rows if force or row.key not in before]
            key = tuple(line.split(",", 1))
            if key in before and not force:
                outcome.there += 1  # another process was faster
            elif key not in {row.key for row in rows}:
                other = f"PyTorch called it {','.join(rows[0].key)}: it is in the file"
                outcome.failed[line] = NotTuned(plain(result.reason or other))


def _able(result: TunableOpResult, lines: Sequence[str]) -> TunableOpResult:
    """Raises RocmTuiError, with what to run where there is a GPU."""
    if not result.able:
        raise RocmTuiError(
            plain(f"{counted(len(lines), 'product')} not tuned: {result.reason}; where it can: ")
            + ELSEWHERE
        )
    return result


ELSEWHERE = TUNABLEOP_RUN.replace("{file}", "UNTUNED.csv")
"""The command that tunes a list with PyTorch alone."""


def _fit(result: TunableOpResult) -> list[TunedRow]:
    """Raises NotMergeable for what does not belong into a file."""
    rows = [TunedRow(row.op, row.params, row.solution, row.ms) for row in result.rows]
    for row in rows:
        check_row(row)
    if not rows:
        raise NotMergeable(result.reason or "PyTorch reported no result")
    return rows


@contextmanager
def _folder(layout: Layout) -> Iterator[Path]:
    """Yield a temporary folder for PyTorch's own files."""
    place = layout.home / "tunableop"
    safe.make_folder(layout.root, place)
    try:
        folder = TemporaryDirectory(dir=place, ignore_cleanup_errors=True)
    except OSError as error:
        raise safe.not_writable(place, error) from error
    with folder as name:
        yield Path(name)


def _merge(
    path: Path,
    result: TunableOpResult,
    rows: Sequence[TunedRow],
    *,
    force: bool = False,
) -> frozenset[tuple[str, str]]:
    """Put rows into the file, which is made where there is none; the products that it had before.
    Nothing is written without rows. Raises RocmTuiError, StoreErrors."""
    before = keys = frozenset[tuple[str, str]]()

    def edit(data: bytes) -> bytes:
        nonlocal before, keys
        before = keys_in(data, result.validators)
        content = merged(data, result.validators, rows, force=force) if rows or data else data
        keys = keys_in(content, result.validators)
        return content

    safe.check_table(path)
    check_unwritten(path)
    try:
        with safe.locked_table(path):
            if not safe.exists(path):
                content = edit(b"")
                if not content or _made(path, content):
                    return before
            if not rows:
                edit(safe.read_bytes(path))
            elif (
                not exchange.update(path, edit, exchange.newer)
                and not {row.key for row in rows} <= keys
            ):
                raise NotWritable(f"{path} is written by others all the time; end them, try again")
    except (NotMergeable, NotEditable) as error:
        raise RocmTuiError(
            plain(f"{path}: {error}; nothing was changed, take another file with -o")
        ) from error
    return before


def _made(path: Path, content: bytes) -> bool:
    """Write a new file whole; False if there is one by now. Raises NotWritable."""
    temporary = safe.temporary_path(path)
    safe.write_temporary(temporary, content, like=path)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        try:
            temporary.replace(path)
        except OSError as error:
            raise safe.not_writable(path, error) from error
    finally:
        safe.remove(temporary)
    safe.sync(path.parent)
    return True
