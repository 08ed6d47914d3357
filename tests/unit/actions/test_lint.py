"""The tables of the screen are checked as the command checks them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import cycle
from pathlib import Path
from threading import Event

import pytest

from backend.tables.model import Table, TableDevice
from backend.tables.registry import read_table
from rocm_tui.actions import lint
from rocm_tui.actions.lint import lint_files
from rocm_tui.errors import NoSuchSource
from rocm_tui.tables.findings import Finding, Given
from tests.support import sample_tables

MI300X = TableDevice("gfx942", 304)


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setattr(lint, "device_here", lambda: MI300X)
    folder = tmp_path / "tables"
    sample_tables.write(folder)
    (folder / "ünïcode\x7f.csv").write_text("Validator,PT_VERSION,2.9\r\nx\r\n")
    return sorted(folder.rglob("*.csv"))


async def test_it_finds_what_the_command_finds(paths: list[Path]) -> None:
    tables = [read_table(path) for path in paths]
    checked = await lint.lint_tables(tables)
    assert (checked.device, checked.left_out) == (MI300X, 0)
    same = lint_files(map(str, paths), MI300X, {}, each=True).found
    assert same
    for one in same:
        assert one in checked.marks.at(one.path, one.line or 0)
    assert checked.marks.levels().total() == len(same)


async def test_tables_beyond_the_limit_are_counted(
    paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [read_table(path) for path in paths]
    largest = max(tables, key=lambda table: len(table.entries))
    others = [table for table in tables if table is not largest]
    monkeypatch.setattr(lint, "MOST_ROWS", sum(len(table.entries) for table in others))
    checked = await lint.lint_tables([*others, largest])
    assert checked.left_out == 1 and checked.marks.by_file
    assert checked.marks.by_file.keys() <= {table.path for table in others}


async def test_a_cancelled_check_ends(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    tables, begun, seen = [read_table(path) for path in paths], Event(), []

    def slow(given: Iterable[Table], device: Given, *, each: bool = False) -> Iterator[Finding]:
        for table in cycle(tables):
            begun.set()
            seen.append(table.path)
            yield Finding("unreadable", "error", table.path, 1, "", "")

    monkeypatch.setattr(lint, "found_in", slow)
    check = asyncio.create_task(lint.lint_tables(tables))
    await asyncio.to_thread(begun.wait)
    check.cancel()
    with pytest.raises(asyncio.CancelledError):
        await check
    ended = asyncio.get_running_loop().shutdown_default_executor()
    await asyncio.wait_for(ended, 60)  # its thread has ended
    assert seen


def test_a_folder_without_tables_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no table\n")
    with pytest.raises(NoSuchSource, match="no table of a tuner that is known in"):
        lint_files([str(tmp_path)], MI300X, {}, each=True)
