"""Lint in a process of its own says what lint says here."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.disk.tables import read_table
from backend.tables.model import Device
from rocm_tui.actions import lint_apart
from rocm_tui.actions.lint import lint_files
from tests.support import sample_tables

MI300X = Device("gfx942", 304)


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setattr(lint_apart, "device_here", lambda: MI300X)
    folder = tmp_path / "tables"
    sample_tables.write(folder)
    (folder / "ünïcode\x7f.csv").write_text("Validator,PT_VERSION,2.9\r\nx\r\n")
    return sorted(folder.rglob("*.csv"))


async def test_it_finds_what_the_command_finds(paths: list[Path]) -> None:
    tables = [read_table(path) for path in paths]
    checked = await lint_apart.lint_apart(tables)
    assert (checked.trouble, checked.device, checked.left_out) == ("", MI300X, 0)
    same = lint_files(map(str, paths), MI300X, {}, each=True).found
    assert same
    for one in same:
        assert one in checked.marks.at(one.path, one.line or 0)
    assert checked.marks.levels().total() == len(same)


async def test_a_file_that_is_gone_or_a_folder_by_then_is_left_out(paths: list[Path]) -> None:
    tables = [read_table(path) for path in paths]
    paths[0].unlink()
    paths[1].unlink()
    paths[1].mkdir()
    (paths[1] / "results0.csv").write_bytes(tables[0].data)
    checked = await lint_apart.lint_apart(tables)
    assert (checked.trouble, checked.left_out) == ("", 2)
    assert checked.marks.of.keys() <= {str(path) for path in paths[2:]}
