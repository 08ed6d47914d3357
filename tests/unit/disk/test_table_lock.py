"""The lock beside a tuned table."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.disk import exchange, safe
from backend.errors import Busy, NotWritable, UnsafePath
from tests.support.store_disks import make_read_only, mounted


def test_a_table_has_one_lock_which_leaves_nothing(tmp_path: Path) -> None:
    table = tmp_path / "results0.csv"
    with safe.locked_table(table):
        with pytest.raises(Busy, match=r"another process holds .*\.results0\.csv\.rocm_tui\.lock"):
            safe.locked_table(table, seconds=0.0).__enter__()
        with safe.locked_table(tmp_path / "results1.csv", seconds=0.0):
            pass
    assert not list(tmp_path.iterdir())


def test_the_lock_of_a_process_that_was_killed_is_taken_and_removed(tmp_path: Path) -> None:
    (tmp_path / ".r.csv.rocm_tui.lock").touch(0o600)
    with safe.locked_table(tmp_path / "r.csv", seconds=0.0):
        pass
    assert not list(tmp_path.iterdir())


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / ".r.csv.rocm_tui.lock").symlink_to(tmp_path / "other")
    with pytest.raises(UnsafePath, match="symlink"):
        safe.locked_table(tmp_path / "r.csv").__enter__()
    assert not (tmp_path / "other").exists()


def test_a_table_on_a_read_only_disk_is_read_and_writing_it_is_the_error(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk") as folder:
        table = folder / "r.csv"
        table.write_bytes(b"a")
        make_read_only(folder)
        with safe.locked_table(table):
            assert not exchange.update(table, lambda data: data, exchange.newer)
            with pytest.raises(
                NotWritable, match=r"cannot write .*r\.csv: the file system is read-"
            ):
                exchange.update(table, lambda data: b"b", exchange.newer)
