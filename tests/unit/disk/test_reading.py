"""Files are read whole, or their beginning, whatever happens to them meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from backend.disk import safe
from backend.disk.safe import NotRegular, read_bytes, read_head, read_regular
from backend.errors import CacheUnreadable
from tests.support.descriptors import open_descriptors


def test_all_of_it_or_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(data := bytes(range(256)) * 50)
    assert read_regular(path) == read_bytes(path) == read_bytes(str(path)) == data
    assert read_regular(path, 100) == read_head(path, 100) == data[:100]
    assert read_regular(path, 1 << 30) == data and read_regular(path, 0) == b""
    with pytest.raises(CacheUnreadable, match="12 KiB, more than 1;"):
        read_bytes(path, 1 << 10)
    assert read_bytes(path, len(data)) == data
    with path.open("r+b") as file:
        file.truncate((2 << 20) + 1)
    with pytest.raises(CacheUnreadable, match="has 2 MiB, more than 1; move it away"):
        read_bytes(path, 1 << 20)
    path.write_bytes(b"")
    assert read_regular(path) == read_bytes(path) == b""


def test_what_it_grows_by_meanwhile_is_read_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, read = tmp_path / "file", os.read
    path.write_bytes(b"a" * 10)

    def slow(descriptor: int, most: int) -> bytes:
        """In small parts, while somebody writes."""
        if path.stat().st_size < 30:
            with path.open("ab") as more:
                more.write(b"b" * 10)
        return read(descriptor, min(most, 7))

    monkeypatch.setattr(safe.os, "read", slow)
    assert read_regular(path) == b"a" * 10 + b"b" * 20
    assert read_regular(path, 12) == b"a" * 10 + b"bb"


def test_only_regular_files_and_no_descriptor_is_left(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"data")
    (tmp_path / "link").symlink_to("file")
    before = open_descriptors()
    for odd in (tmp_path / "pipe", tmp_path):
        with pytest.raises(NotRegular):
            read_regular(odd)
        with pytest.raises(CacheUnreadable):
            read_bytes(odd)
    with pytest.raises(OSError, match="symbolic"):
        read_regular(tmp_path / "link")
    assert read_regular(tmp_path / "link", follow=True) == read_bytes(tmp_path / "link") == b"data"
    with pytest.raises(CacheUnreadable):
        read_bytes(tmp_path / "link", 2)
    assert open_descriptors() == before
