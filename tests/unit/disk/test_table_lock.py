"""The lock beside a tuned table."""

from __future__ import annotations

import errno
import fcntl
import os
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


def test_a_passing_lack_of_locks_removes_no_lock_of_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [errno.ENOLCK]
    flock = fcntl.flock

    def refuse_once(descriptor: int, operation: int) -> None:
        if answers:
            raise OSError(answers.pop(), "refused")
        flock(descriptor, operation)

    with safe.locked_table(tmp_path / "r.csv"):
        monkeypatch.setattr(safe.fcntl, "flock", refuse_once)
        with pytest.raises(Busy):
            safe.locked_table(tmp_path / "r.csv", seconds=0.05).__enter__()
        answers.append(errno.EIO)
        with pytest.raises(NotWritable):
            safe.locked_table(tmp_path / "r.csv").__enter__()
        with pytest.raises(Busy):
            safe.locked_table(tmp_path / "r.csv", seconds=0.0).__enter__()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_disk_without_locks_is_worked_on_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(safe.fcntl, "flock", refuse)
    monkeypatch.setattr(safe, "NO_LOCK_SECONDS", 0.0)
    with safe.locked_table(tmp_path / "r.csv"):
        pass
    assert len(list(tmp_path.iterdir())) == (code == errno.ENOLCK)
