"""The tables of the screen are checked as the command checks them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import cycle
from pathlib import Path
from threading import Event

import pytest

from backend.errors import CacheUnreadable
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
    same = lint_files(map(str, paths), MI300X, {}, each=True).findings
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


def node(root: Path, number: int, **facts: object) -> None:
    folder = root / str(number)
    folder.mkdir(parents=True)
    lines = [f"{name} {value}" for name, value in facts.items()]
    (folder / "properties").write_text("\n".join([*lines, "odd", ""]))


@pytest.mark.parametrize(
    ("gpus", "device"),
    [
        ([], None),
        ([(90402, 1216, 4)], TableDevice("gfx942", 304)),
        ([(90010, 416, 4)], TableDevice("gfx90a", 104)),
        ([(110000, 96, 2)], TableDevice("gfx1100", 48)),
        ([(120001, 128, 0)], TableDevice("gfx1201", None)),
        ([(90402, 1216, 4), (90402, 1216, 4)], TableDevice("gfx942", 304)),
        ([(90402, 1216, 4), (90402, 320, 4)], None),
    ],
)
def test_the_device_of_this_machine_is_read_from_the_driver(
    tmp_path: Path, gpus: list[tuple[int, int, int]], device: TableDevice | None
) -> None:
    """The first node is a CPU."""
    node(tmp_path, 0, gfx_target_version=0, simd_count=0, simd_per_cu=0)
    for at, (version, simds, each) in enumerate(gpus, 1):
        node(tmp_path, at, gfx_target_version=version, simd_count=simds, simd_per_cu=each)
    assert lint.device_here(tmp_path) == device


def test_without_a_driver_there_is_no_device(tmp_path: Path) -> None:
    assert lint.device_here(tmp_path / "none") is None
    node(tmp_path, 0, gfx_target_version="many")
    assert lint.device_here(tmp_path) is None


def test_a_path_that_is_no_table_is_refused_and_a_damaged_one_is_a_finding(tmp_path: Path) -> None:
    with pytest.raises(CacheUnreadable):
        lint_files([str(tmp_path / "none.csv")], None, {})
    damaged = tmp_path / "E=8,N=512,device_name=AMD_Instinct_MI300X.json"
    damaged.write_text('{"1": {"BLOCK_SIZE_M": 16')
    for path in (damaged, tmp_path):
        linted = lint_files([str(path)], None, {})
        assert linted.tables == 1 and len(linted.findings) == 1


def test_a_table_that_is_named_twice_is_checked_once(tmp_path: Path) -> None:
    folder = tmp_path / "tables" / "model_configs"
    folder.parent.mkdir()
    sample_tables.write(folder)
    link = folder.parent / "link.csv"
    link.symlink_to(min(folder.rglob("*.csv")))
    once = lint_files([str(folder)], MI300X, {})
    again = lint_files([str(folder), str(folder.parent), str(folder)], MI300X, {})
    assert (again.tables, again.rows) == (once.tables, once.rows)
    assert again.findings == once.findings


def test_a_ladder_that_is_cut_is_an_error(tmp_path: Path) -> None:
    """A program of AITER's ends at it, as a server does at its own."""
    for name in ("gfx942-GEMM-A16W16.json", "E=8,N=512,device_name=AMD_Instinct_MI300X.json"):
        (tmp_path / name).write_text('{"M_LEQ_64": {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N"')
        (found,) = lint_files([str(tmp_path / name)], None, {}).findings
        assert (found.rule, found.level) == ("unreadable", "error")
