"""Files that are replaced as a whole, and are on the disk once they are."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.disk import safe
from backend.errors import Busy, CacheUnreadable, NotWritable, UnsafePath


def test_the_content_is_synced_before_the_file_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut leaves an empty file where the old one was."""
    path = tmp_path / "pins.json"
    path.write_bytes(b"old")
    synced: list[tuple[bytes, bytes]] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        fsync(descriptor)
        file = Path(f"/proc/self/fd/{descriptor}")
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            synced.append((file.read_bytes(), path.read_bytes()))

    monkeypatch.setattr(os, "fsync", watched)
    safe.write_atomic(path, b"new")
    assert synced == [(b"new", b"old")]
    safe.temporary_path(path).write_bytes(b"half of what a killed process wrote")
    safe.write_atomic(path, b"new")
    assert path.read_bytes() == b"new" and list(tmp_path.iterdir()) == [path]


def test_a_replaced_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "pins.json"
    path.write_bytes(b"old")
    path.chmod(0o640)
    safe.write_atomic(path, b"new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_what_is_in_the_way_is_named_and_the_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "pins.json"
    path.write_bytes(b"old")
    safe.temporary_path(path).mkdir()
    with pytest.raises(NotWritable, match="is in the way; move it away"):
        safe.write_atomic(path, b"new")
    assert path.read_bytes() == b"old"


def test_a_folder_in_the_place_of_a_file_stays_and_nothing_is_left_beside_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "pins.json"
    (path / "full").mkdir(parents=True)
    with pytest.raises(NotWritable, match=f"cannot write {path}: "):
        safe.write_atomic(path, b"new")
    assert list(tmp_path.iterdir()) == [path]


def test_a_path_that_cannot_be_looked_at_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 300)
    for check in (safe.check_folder, safe.check_file):
        with pytest.raises(NotWritable, match=f"cannot look at {path}: File name too long"):
            check(tmp_path, path)
    with pytest.raises(CacheUnreadable, match=f"cannot read {path}: File name too long"):
        safe.exists(path)
    assert safe.exists(tmp_path) and not safe.exists(tmp_path / "none")


def test_a_folder_that_is_made_where_everybody_may_write_is_refused(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with pytest.raises(UnsafePath, match="every user can write there"):
            safe.make_folder(tmp_path, tmp_path / "rocm_tui")
    finally:
        os.umask(before)


def test_locks_are_where_other_versions_take_them(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "cache" / "s", tmp_path / "elsewhere"
    assert safe.lock_of(tmp_path, path) == tmp_path / "rocm_tui" / "locks" / "cache-s.lock"
    with safe.locked(tmp_path, path, 1.0, elsewhere):
        assert (elsewhere / "cache-s.lock").exists() and not (tmp_path / "rocm_tui").exists()
        with (
            pytest.raises(Busy, match=r"cache-s\.lock"),
            safe.locked(tmp_path, path, 0.0, elsewhere),
        ):
            pass


def test_a_file_that_has_nothing_for_the_moment_is_an_error(tmp_path: Path) -> None:
    """As `/proc/kmsg`, which looks like a regular file: reading gave None, or waited."""
    os.mkfifo(tmp_path / "fifo")
    reading = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    writing = os.open(tmp_path / "fifo", os.O_WRONLY)
    with io.BufferedReader(safe._RegularFile(reading)) as stream:
        os.write(writing, b"line\n")
        assert stream.readline() == b"line\n"
        for read in (stream.read, stream.readline, lambda: stream.read(10), lambda: stream.read(1)):
            with pytest.raises(BlockingIOError):
                read()
    os.close(writing)


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full; make room"),
        (OSError(errno.EACCES, "Permission denied"), "permission denied; choose another folder"),
        (OSError(errno.EPERM, "Not permitted"), "not permitted; choose another folder"),
        (OSError(errno.EROFS, "x"), "the file system is read-only; choose another folder"),
        (OSError(errno.EDQUOT, "x"), "your disk quota is used up; make room"),
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
        (OSError("without a number"), "without a number"),
    ],
)
def test_a_write_that_fails_says_why_and_what_to_do(error: OSError, advice: str) -> None:
    assert str(safe.not_writable(Path("/c/pins"), error)).startswith(
        f"cannot write /c/pins: {advice}"
    )


@pytest.mark.parametrize(
    ("put", "why"),
    [
        (lambda path: path.symlink_to("elsewhere"), "it is a symlink; replace it by a file"),
        (os.mkfifo, "it is not a regular file; move it away"),
        (Path.mkdir, "it is not a regular file; move it away"),
    ],
)
def test_only_a_regular_file_is_written_or_locked(
    tmp_path: Path, put: Callable[[Path], None], why: str
) -> None:
    path = tmp_path / "pins.json"
    lock = safe.lock_of(tmp_path, path)
    lock.parent.mkdir(parents=True)
    for odd in (path, lock):
        put(odd)
    with pytest.raises(UnsafePath, match=f"not writing to {path}: {why}"):
        safe.check_file(tmp_path, path)
    refused = pytest.raises(UnsafePath, match=f"not writing to {lock}: {why}")
    with refused, safe.locked(tmp_path, path):
        pass


def test_an_unwritten_file_and_its_lock_are_safe(tmp_path: Path) -> None:
    safe.check_file(tmp_path, tmp_path / "pins.json")
    with safe.locked(tmp_path, tmp_path / "pins.json"):
        assert safe.lock_of(tmp_path, tmp_path / "pins.json").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other groups")
def test_a_replaced_file_keeps_its_group(tmp_path: Path) -> None:
    path = tmp_path / "pins.json"
    path.write_bytes(b"old")
    os.chown(path, -1, 12345)
    safe.write_atomic(path, b"new")
    assert path.stat().st_gid == 12345
