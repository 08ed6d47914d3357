"""A file that a program has open to write is not exchanged under its stream."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import pytest

from backend.disk import exchange, safe
from backend.disk.exchange import check_unwritten, writer_of
from backend.errors import Busy, CacheUnreadable, NotWritable


def test_who_has_a_file_open_to_write(tmp_path: Path) -> None:
    path = tmp_path / "results0.csv"
    path.write_bytes(b"a\n")
    with path.open("rb"):
        assert writer_of(path) is None  # whoever reads loses nothing
    ours = rf"is open in .* \(process {os.getpid()}\), .* would be lost; try again"
    with path.open("ab"), pytest.raises(Busy, match=ours):
        check_unwritten(path)
    assert writer_of(path) is None and writer_of(tmp_path / "none") is None
    check_unwritten(path)


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


def test_a_file_system_that_exchanges_no_files_gets_a_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "exchange", lambda first, second: False)
    path = tmp_path / "hash"
    path.write_bytes(b"a\n")
    assert exchange.update(path, lambda data: data + b"b\n", exchange.newer)
    assert path.read_bytes() == b"a\nb\n" and list(tmp_path.iterdir()) == [path]


def test_what_is_written_meanwhile_is_kept_on_a_file_system_that_exchanges_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "exchange", lambda first, second: False)
    path = tmp_path / "hash"
    path.write_bytes(b"a\n")
    others = [b"a\ntheirs\n"]

    def edit(data: bytes) -> bytes:
        if others:
            (tmp_path / "new").write_bytes(others.pop())
            (tmp_path / "new").replace(path)
        return data + b"ours\n"

    assert exchange.update(path, edit, exchange.newer)
    assert path.read_bytes() == b"a\ntheirs\nours\n"


@pytest.mark.parametrize("keep", [False, True])
def test_a_changed_file_is_new_unless_its_time_is_kept(tmp_path: Path, keep: bool) -> None:
    path = tmp_path / "hash"
    path.write_bytes(b"a\n")
    os.utime(path, (1000, 1000))
    assert not exchange.update(path, lambda data: data, exchange.newer, keep)
    assert exchange.update(path, lambda data: b"b\n", exchange.newer, keep)
    assert path.read_bytes() == b"b\n" and (path.stat().st_mtime == 1000) is keep


def lines_of_both(path: Path, newer: bytes, older: bytes) -> bytes:
    if b"torn" in newer:
        raise CacheUnreadable("no cache")
    return b"".join(dict.fromkeys(newer.splitlines(True) + older.splitlines(True)))


def test_what_a_killed_process_had_displaced_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "hash"
    path.write_bytes(b"a\n")
    leftover, temporary = exchange.leftover_path(path), safe.temporary_path(path)
    assert not exchange.is_unfinished(path)
    for left in (temporary, leftover):
        left.write_bytes(b"theirs\n")
        assert exchange.is_unfinished(path)
        assert exchange.update(path, lambda data: data + b"ours\n", lines_of_both)
        assert not exchange.is_unfinished(path)
    assert sorted({*path.read_bytes().split()}) == [b"a", b"ours", b"theirs"]


@pytest.mark.parametrize("kind", ["link", "garbage"])
def test_what_no_killed_process_left_is_moved_aside(tmp_path: Path, kind: str) -> None:
    path, elsewhere = tmp_path / "hash", tmp_path / "elsewhere"
    path.write_bytes(b"a\n")
    elsewhere.write_bytes(b"of somebody else\n")
    leftover = exchange.leftover_path(path)
    if kind == "link":
        leftover.symlink_to(elsewhere)
    else:
        leftover.write_bytes(b"torn")
    assert exchange.update(path, lambda data: b"b\n", lines_of_both)
    assert (path.read_bytes(), elsewhere.read_bytes()) == (b"b\n", b"of somebody else\n")
    names = {entry.name for entry in tmp_path.iterdir()}
    assert names == {"hash", "elsewhere", ".hash.rocm_tui.unreadable"}


def test_a_file_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    path = tmp_path / "hash"
    with pytest.raises(CacheUnreadable, match=f"cannot read {path}: it was removed"):
        exchange.update(path, lambda data: b"b\n", exchange.newer)
    path.symlink_to(path.name)
    with pytest.raises(CacheUnreadable, match=f"cannot read {path}: Too many"):
        exchange.update(path, lambda data: b"b\n", exchange.newer)
    path.unlink()
    path.write_bytes(b"a\n")
    with pytest.raises(OSError, match="No such file"):
        exchange.exchange(tmp_path / "none", path)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_what_was_displaced_earlier_outlives_a_writer_who_displaced_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second writer is in time to lose its content, the third is not."""
    path = tmp_path / "hash"
    path.write_bytes(b"")
    others = [b"first\n", b"second\n", b"third\n"]
    stock = exchange.exchange

    def exchange_late(one: Path, other: Path) -> bool:
        if others:
            (tmp_path / "theirs").write_bytes(others.pop(0))
            (tmp_path / "theirs").replace(path)
        return stock(one, other)

    def merge(path: Path, newer: bytes, older: bytes) -> bytes:
        return b"".join(dict.fromkeys(older.splitlines(True) + newer.splitlines(True)))

    def edit(data: bytes) -> bytes:
        return data if b"ours\n" in data else data + b"ours\n"

    monkeypatch.setattr(exchange, "exchange", exchange_late)
    assert exchange.update(path, edit, merge)
    assert sorted(path.read_bytes().split()) == [b"ours", b"second", b"third"]
    assert list(tmp_path.iterdir()) == [path]
