"""A file that a program has open to write is not exchanged under its stream."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import pytest

from backend.disk import exchange
from backend.disk.exchange import check_unwritten, writer_of
from backend.errors import Busy, CacheUnreadable, NotWritable


def test_who_has_a_file_open_to_write(tmp_path: Path) -> None:
    path = tmp_path / "results0.csv"
    path.write_bytes(b"a\n")
    with path.open("rb"):
        assert writer_of(path) is None  # whoever reads loses nothing
    with path.open("ab"), pytest.raises(Busy, match="would be lost; try again"):
        check_unwritten(path)
    assert writer_of(path) is None and writer_of(tmp_path / "none") is None


def test_what_is_written_by_a_program_that_opened_it_meanwhile_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "results0.csv"
    path.write_bytes(b"a\n")
    opened: list[BinaryIO] = []

    def edit(data: bytes) -> bytes:
        if not opened:
            opened.append(path.open("ab"))
        elif not opened[0].closed:
            opened[0].write(b"more\n")
            opened[0].close()
        return data.replace(b"a", b"b")

    assert exchange.update(path, edit, exchange.newer)
    assert path.read_bytes() == b"b\nmore\n"
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_garbage_in_the_place_of_what_was_displaced_is_never_overwritten(tmp_path: Path) -> None:
    """Where it cannot be moved out of the way, the file is left alone too."""
    path = tmp_path / "hash"
    path.write_bytes(b"a\n")
    garbage = exchange.leftover_path(path)
    garbage.write_bytes(b"torn")
    (tmp_path / f".{path.name}.rocm_tui.unreadable" / "full").mkdir(parents=True)

    def merge(path: Path, newer: bytes, older: bytes) -> bytes:
        raise CacheUnreadable("no cache")

    with pytest.raises(NotWritable, match="is in the way; move it away"):
        exchange.update(path, lambda data: b"b\n", merge)
    assert (path.read_bytes(), garbage.read_bytes()) == (b"a\n", b"torn")
