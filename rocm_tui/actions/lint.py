"""Check tuned tables with the rules of `lint`: those in files, or those the screen has read."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TypeVar

from backend.errors import CacheUnreadable
from backend.tables.model import Table, TableDevice
from backend.tables.registry import TableDamaged, read_table
from rocm_tui.actions.tables import tables_below
from rocm_tui.errors import NoSuchSource
from rocm_tui.tables.findings import NOTHING, Given, Linted, RowFindings, findings_by_row
from rocm_tui.tables.lint import found_in, lint

_T = TypeVar("_T")
MOST_ROWS = 100_000
"""Rows of all tables that are checked for the screen: they take about 20 s of a core."""
_KFD = Path("/sys/class/kfd/kfd/topology/nodes")


def lint_files(
    paths: Iterable[str],
    device: TableDevice | None,
    versions: Mapping[str, str],
    only: Collection[str] = (),
    without: Collection[str] = (),
    *,
    each: bool = False,
) -> Linted:
    """Check files, and the tables in folders; with `each` there is a finding for each row.

    Raises CacheUnreadable for a path that is not there or is no table, NoSuchSource for a folder
    without a table, and UsageError.
    """
    rows: list[int] = []
    seen: set[str] = set()

    def counted() -> Iterator[Table]:
        for path in paths:
            for table in _tables(Path(path)):
                real = os.path.realpath(table.path)
                if real not in seen:  # a folder and a file in it may both be named
                    seen.add(real)
                    rows.append(len(table.entries))
                    yield table

    findings = lint(counted(), Given(device, versions), only, without, each=each)
    return Linted(findings, len(rows), sum(rows), device)


@dataclass(frozen=True, slots=True)
class Checked:
    """The findings in the tables of the screen, for `device`; `left_out` tables were not checked,
    since they go beyond `MOST_ROWS`."""

    marks: RowFindings = NOTHING
    device: TableDevice | None = None
    left_out: int = 0


async def lint_tables(tables: Sequence[Table]) -> Checked:
    """Check tables row by row in a thread, for the device of this machine."""
    checked, room = [], MOST_ROWS
    for table in tables:
        if len(table.entries) <= room:
            room -= len(table.entries)
            checked.append(table)
    device, cancelled = device_here(), Event()

    def check() -> RowFindings:
        findings = found_in(_until(cancelled, checked), Given(device), each=True)
        return findings_by_row(_until(cancelled, findings))

    try:
        marks = await asyncio.to_thread(check)
    finally:
        cancelled.set()  # the thread of a cancelled check ends soon
    return Checked(marks, device, len(tables) - len(checked))


def _until(cancelled: Event, items: Iterable[_T]) -> Iterator[_T]:
    for item in items:
        if cancelled.is_set():
            return
        yield item


def _tables(path: Path) -> Iterator[Table]:
    """Read the tables; a damaged document is a table with that problem."""
    if path.is_dir():
        none = True
        for table in tables_below(path, _damaged):
            none = False
            yield table
        if none:
            raise NoSuchSource(f"no table of a tuner that is known in {path}")
        return
    try:
        yield read_table(path)
    except TableDamaged as error:
        yield error.table


def _damaged(error: CacheUnreadable) -> Table:
    if isinstance(error, TableDamaged):
        return error.table
    raise error


def device_here(nodes: Path = _KFD) -> TableDevice | None:
    """Return this machine's GPU; None if there is none, or if its GPUs differ."""
    try:
        devices = {_device_of((node / "properties").read_text()) for node in nodes.iterdir()}
    except (OSError, ValueError):
        return None
    devices.discard(None)
    return devices.pop() if len(devices) == 1 else None


def _device_of(properties: str) -> TableDevice | None:
    """The steps of an architecture are hexadecimal: 90010 is gfx90a."""
    fields = dict(line.split(None, 1) for line in properties.splitlines() if " " in line)
    version, simds, each = (
        int(fields.get(name, "0")) for name in ("gfx_target_version", "simd_count", "simd_per_cu")
    )
    if not version:
        return None
    arch = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
    return TableDevice(arch, simds // each if each else None)
