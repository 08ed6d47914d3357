"""Tuned tables read from files, checked by the rules, for a device that is given or is here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from backend.disk.tables import TableDamaged, read_table
from backend.errors import CacheUnreadable, StoreError
from backend.tables.model import Device, Table
from rocm_tui.actions.table_files import tables_below
from rocm_tui.errors import NoSuchSource
from rocm_tui.tables.findings import Given, Linted
from rocm_tui.tables.lint import found_in, lint
from rocm_tui.tables.marks import Marks, marks_of

_KFD = Path("/sys/class/kfd/kfd/topology/nodes")


def lint_files(
    paths: Iterable[str],
    device: Device | None,
    versions: Mapping[str, str],
    only: Collection[str] = (),
    without: Collection[str] = (),
    *,
    each: bool = False,
) -> Linted:
    """Checks files, and the tables among those of folders; with `each` no rows are put together.
    Raises CacheUnreadable for a path that is not there, or is no table, NoSuchSource for a folder
    without one, UsageError."""
    rows: list[int] = []

    def counted() -> Iterator[Table]:
        for path in paths:
            for table in _tables(Path(path)):
                rows.append(len(table.entries))
                yield table

    found = lint(counted(), Given(device, versions), only, without, each=each)
    return Linted(found, len(rows), sum(rows), device)


def marks_in(paths: Iterable[str], device: Device | None) -> tuple[Marks, int]:
    """What is found in files row by row, and how many of them could not be read."""
    unread: list[str] = []

    def tables() -> Iterator[Table]:
        for path in paths:
            try:
                yield _table(Path(path))
            except StoreError:
                unread.append(path)

    marks = marks_of(found_in(tables(), Given(device), each=True))
    return marks, len(unread)


def _tables(path: Path) -> Iterator[Table]:
    if not path.is_dir():
        yield _table(path)
        return
    none = True
    for table in tables_below(path, _damaged):
        none = False
        yield table
    if none:
        raise NoSuchSource(f"no table of a tuner that is known in {path}")


def _table(path: Path) -> Table:
    """A damaged document is a table with that problem."""
    try:
        return read_table(path)
    except TableDamaged as error:
        return error.table


def _damaged(error: CacheUnreadable) -> Table:
    if isinstance(error, TableDamaged):
        return error.table
    raise error


def device_here(nodes: Path = _KFD) -> Device | None:
    """This machine's GPU as its driver tells; None where there is none, or they differ."""
    try:
        found = {_device_of((node / "properties").read_text()) for node in nodes.iterdir()}
    except (OSError, ValueError):
        return None
    found.discard(None)
    return found.pop() if len(found) == 1 else None


def _device_of(properties: str) -> Device | None:
    """The steps of an architecture are hexadecimal: 90010 is gfx90a."""
    told = dict(line.split(None, 1) for line in properties.splitlines() if " " in line)
    version, simds, each = (
        int(told.get(name, "0")) for name in ("gfx_target_version", "simd_count", "simd_per_cu")
    )
    if not version:
        return None
    arch = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
    return Device(arch, simds // each if each else None)
