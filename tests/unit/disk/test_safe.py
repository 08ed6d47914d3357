"""Files that are replaced as a whole, and are on the disk once they are."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path

import pytest

from backend.disk import safe
from backend.errors import NotWritable


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
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
        (OSError("without a number"), "without a number"),
    ],
)
def test_a_write_that_fails_says_why_and_what_to_do(error: OSError, advice: str) -> None:
    assert str(safe.not_writable(Path("/c/pins"), error)).startswith(
        f"cannot write /c/pins: {advice}"
    )
