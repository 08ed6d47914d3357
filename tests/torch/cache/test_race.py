"""Stock PyTorch tunes into the cache file, without a lock, while we pin, unpin and reconcile."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import pytest

from backend.cache.autotune import merge_missing
from backend.cache.autotune import raise_ms as high
from backend.disk import exchange
from backend.disk.layout import Layout
from backend.disk.safe import load_json, read_bytes
from backend.errors import CacheUnreadable
from backend.pins.store import PinStore
from tests.support.odd_files import put_odd
from tests.support.race_lab import KEY, go, start


def keys(content: bytes) -> set[tuple[str, str, str, str]]:
    cache = json.loads(content)["cache"]
    return {
        (op, inputs, precision, choice)
        for op, by_inputs in cache.items()
        for inputs, by_precision in by_inputs.items()
        for precision, times in by_precision.items()
        for choice in times
    }


class Watched:
    """Stands in for `exchange.exchange` and `exchange.read_bytes`, does the real thing, and
    remembers what it took out of the file and saw in it.

    It looks into the contents later: until a wrong exchange is taken back, each moment counts.
    """

    def __init__(self, pause: float) -> None:
        self.real = exchange.exchange
        self._pause = pause
        self.count = 0
        self.put_back: set[Any] = set()
        """What was taken out of the file for a moment, where theirs was newer than we thought."""
        self._moves: list[tuple[bytes, bytes | None]] = []
        """What was put into the file and what was taken out, or what was seen in it and None."""
        self._theirs: set[Any] = set()

    def exchange(self, first: Path, second: Path) -> bool:
        content = first.read_bytes()
        done = self.real(first, second)
        self._moves.append((content, first.read_bytes()))
        self.count += 1
        time.sleep(self._pause)
        return done

    def read(self, path: Path) -> bytes:
        content = read_bytes(path)
        if path.name[0] != ".":
            self._moves.append((content, None))
        return content

    @property
    def theirs(self) -> set[Any]:
        """What was taken out of the file and not put back."""
        before = None
        for content, displaced in self._moves:
            taken: set[Any] = set()
            if displaced is not None:
                # What we put there, or put back, is in the file again: if it is missing later,
                # whoever wrote an older copy over it has lost it, not we. Nor is ours theirs when
                # we take it back: what it held beyond theirs, their older copy had already lost.
                is_ours = displaced == before
                taken = set() if is_ours else keys(displaced)
                self.put_back |= self._theirs & keys(content)
                before = content
            # They too may have put it there again: it was in the file while we had it there.
            self._theirs = (self._theirs | taken) - keys(content)
        self._moves.clear()
        return self._theirs


@pytest.mark.torch
@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("writers", [1, 2])
def test_no_entry_of_theirs_is_lost_by_us(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    writers: int,
    busy: bool,
) -> None:
    """On a busy machine they write between the two exchanges, and may win all rounds."""
    layout = Layout(tmp_path / "inductor")
    children = [start(layout, f"op{n}", 80) for n in range(writers)]
    for child in children:  # where the test fails, they would go on
        assert child.stdin is not None
        request.addfinalizer(child.stdin.close)
    store = PinStore(layout)
    watched = Watched(0.02 if busy else 0.0)
    monkeypatch.setattr(exchange, "exchange", watched.exchange)
    monkeypatch.setattr(exchange, "read_bytes", watched.read)
    if busy:
        monkeypatch.setattr(exchange, "ROUNDS", 2)
        monkeypatch.setattr(exchange, "RESCUE_ROUNDS", 0)
    for child in children:
        go(child)
    turns, enough = 0, False
    path = next(p for p in layout.autotune.iterdir() if not p.name.startswith("."))
    while any(child.poll() is None for child in children):
        turns += 1
        if turns % 7 == 0 and store.pins():
            store.unpin(KEY)
        elif turns % 7 == 1:
            store.pin(None, KEY, "c3", "cpp_3")
        else:
            store.reconcile()
        assert watched.theirs <= left_over(path), "the next update puts back what is left over"
        if turns > 40 and watched.count > 10 and not enough:
            enough = True
            for child in children:
                go(child)
    counts = [int(child.communicate()[0]) for child in children]

    assert all(child.returncode == 0 for child in children)
    assert enough
    store.pin(None, KEY, "c3", "cpp_3")
    (status,) = store.reconcile()
    assert status.state == "active"
    assert not watched.theirs
    kept = {op: len(inputs) for op, inputs in json.loads(path.read_bytes())["cache"].items()}
    if writers == 1:
        # Nobody but us could lose an entry: where their process reads the file between an exchange
        # and its taking back, and so goes on without the entries that were out of it just then.
        at_risk = len({inputs for op, inputs, *_ in watched.put_back if op == "op0"})
        assert counts[0] - at_risk <= kept.pop("op0") <= counts[0]
        assert kept == {"mm": 1}
    times = json.loads(path.read_bytes())["cache"]["mm"]["[pinned]"]["highest"]
    assert times == {f"c{i}": 3.5 if i == 3 else high(0.5 + i) for i in range(10)}
    assert not exchange.leftover_path(path).exists()
    store.unpin(KEY)
    times = json.loads(path.read_bytes())["cache"]["mm"]["[pinned]"]["highest"]
    assert times == {f"c{i}": 0.5 + i for i in range(10)}


def left_over(path: Path) -> set[tuple[str, str, str, str]]:
    place = exchange.leftover_path(path)
    return keys(place.read_bytes()) if place.exists() else set()


def make_file(folder: Path, entries: dict[str, float]) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "hash"
    path.write_bytes(content_of(entries))
    return path


def content_of(entries: dict[str, float]) -> bytes:
    return json.dumps({"system": {}, "cache": {"mm": {"[]": {"highest": entries}}}}).encode()


def entries_of(path: Path) -> dict[str, float]:
    entries: dict[str, float] = json.loads(path.read_bytes())["cache"]["mm"]["[]"]["highest"]
    return entries


def holding_back(data: bytes) -> bytes:
    return data.replace(b'"a": 1.0', b'"a": Infinity')


def replace_file(path: Path, content: bytes) -> None:
    other = path.with_name("their.tmp")
    other.write_bytes(content)
    other.replace(path)


@pytest.mark.parametrize("when", ["before", "within"])
def test_a_write_in_the_very_moment_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Theirs lands after we read: before our last look at the file, or right after that look."""
    path = make_file(tmp_path, {"a": 1.0, "b": 2.0})
    real_prepare, real_exchange = exchange._prepare, exchange.exchange
    theirs = [content_of({"a": 1.0, "c": 3.0}), content_of({"a": 1.0, "d": 4.0})]

    def prepare(path: Path, leftover: Path, content: bytes, *how: bool) -> None:
        real_prepare(path, leftover, content, *how)
        if when == "before" and theirs:
            replace_file(path, theirs.pop())

    def swap(first: Path, second: Path) -> bool:
        if when == "within" and theirs:
            replace_file(second, theirs.pop())
        return real_exchange(first, second)

    monkeypatch.setattr(exchange, "_prepare", prepare)
    monkeypatch.setattr(exchange, "exchange", swap)
    assert exchange.update(path, holding_back, merge_missing)
    assert not theirs
    # Before: theirs replaced theirs. Within: the second write landed on what we had put there.
    kept = {"c": 3.0} if when == "before" else {"c": 3.0, "d": 4.0}
    assert entries_of(path) == {"a": math.inf} | kept
    assert [p.name for p in tmp_path.iterdir()] == ["hash"]


def test_theirs_is_the_newer_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_file(tmp_path, {"a": 1.0, "b": 2.0})
    real = exchange.exchange
    theirs = [content_of({"a": 1.0, "b": 7.0})]

    def swap(first: Path, second: Path) -> bool:
        if theirs:
            replace_file(second, theirs.pop())
        return real(first, second)

    monkeypatch.setattr(exchange, "exchange", swap)
    exchange.update(path, holding_back, merge_missing)
    assert entries_of(path) == {"a": math.inf, "b": 7.0}


def test_writes_before_and_after_the_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One write is displaced, and before it is put back another one lands on ours."""
    path = make_file(tmp_path, {"a": 1.0})
    real = exchange.exchange
    theirs = [
        content_of({"a": 1.0, "d": 2.0, "e": 5.0}),
        content_of({"a": 1.0, "c": 3.0, "d": 4.0}),
    ]

    def swap(first: Path, second: Path) -> bool:
        if theirs:
            replace_file(second, theirs.pop())
        return real(first, second)

    monkeypatch.setattr(exchange, "exchange", swap)
    assert exchange.update(path, holding_back, merge_missing)
    assert entries_of(path) == {"a": math.inf, "c": 3.0, "d": 2.0, "e": 5.0}
    assert [p.name for p in tmp_path.iterdir()] == ["hash"]


def test_two_lost_races_in_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first one displaced is not back in the file yet when the second one is lost."""
    path = make_file(tmp_path, {"a": 1.0})
    real = exchange.exchange
    theirs = [content_of({"a": 1.0, f"t{n}": float(n)}) for n in range(4)]

    def swap(first: Path, second: Path) -> bool:
        if theirs:
            replace_file(second, theirs.pop())
        return real(first, second)

    monkeypatch.setattr(exchange, "exchange", swap)
    assert exchange.update(path, holding_back, merge_missing)
    # t1 was put back, and t0, written over it, does not hold it: that is their own loss.
    assert entries_of(path).items() >= {"a": math.inf, "t0": 0.0, "t2": 2.0}.items()


def test_a_writer_that_never_rests_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every exchange is lost to a write: we give up for now and leave the file to them."""
    path = make_file(tmp_path, {"a": 1.0})
    real_prepare = exchange._prepare
    count = 0

    def prepare(path: Path, leftover: Path, content: bytes, *how: bool) -> None:
        nonlocal count
        count += 1
        real_prepare(path, leftover, content, *how)
        replace_file(path, content_of({"a": 1.0, f"t{count}": 1.0}))

    with monkeypatch.context() as patched:
        patched.setattr(exchange, "_prepare", prepare)
        assert not exchange.update(path, holding_back, merge_missing)
    assert entries_of(path) == {"a": 1.0, f"t{exchange.ROUNDS}": 1.0}
    assert exchange.update(path, holding_back, merge_missing)
    assert entries_of(path) == {"a": math.inf, f"t{exchange.ROUNDS}": 1.0}
    assert [p.name for p in tmp_path.iterdir()] == ["hash"]


def test_giving_up_puts_back_what_the_last_race_displaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_file(tmp_path, {"a": 1.0})
    real = exchange.exchange
    theirs = [content_of({"a": 1.0, f"t{n}": 1.0}) for n in range(2 * exchange.ROUNDS)]

    def swap(first: Path, second: Path) -> bool:
        if theirs:
            replace_file(second, theirs.pop())
        return real(first, second)

    monkeypatch.setattr(exchange, "exchange", swap)
    assert not exchange.update(path, holding_back, merge_missing)
    assert not theirs
    assert entries_of(path).items() >= {"a": 1.0, "t0": 1.0, "t1": 1.0}.items()
    assert [p.name for p in tmp_path.iterdir()] == ["hash"]


def test_what_a_killed_process_had_displaced_comes_back(tmp_path: Path) -> None:
    path = make_file(tmp_path, {"a": 1.0, "b": 2.0})
    exchange.leftover_path(path).write_bytes(content_of({"b": 9.0, "c": 3.0}))
    exchange.update(path, lambda data: data, merge_missing)
    assert entries_of(path) == {"a": 1.0, "b": 2.0, "c": 3.0}
    exchange.leftover_path(path).write_bytes(b"{torn")
    exchange.update(path, holding_back, merge_missing)
    assert entries_of(path) == {"a": math.inf, "b": 2.0, "c": 3.0}
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == [".hash.rocm_tui.unreadable", "hash"]


def test_garbage_put_there_in_the_very_moment_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_file(tmp_path, {"a": 1.0})
    real = exchange.exchange
    theirs = [b"{torn"]

    def swap(first: Path, second: Path) -> bool:
        if theirs:
            replace_file(second, theirs.pop())
        return real(first, second)

    def edit(data: bytes) -> bytes:
        load_json(path, data)
        return holding_back(data)

    monkeypatch.setattr(exchange, "exchange", swap)
    with pytest.raises(CacheUnreadable):
        exchange.update(path, edit, merge_missing)
    assert path.read_bytes() == b"{torn"


def test_where_files_cannot_be_exchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on NFS: the kernel says EINVAL."""
    path = make_file(tmp_path, {"a": 1.0})
    monkeypatch.setattr(exchange, "_RENAME_EXCHANGE", 2 | 1)  # the two flags exclude each other
    assert not exchange.exchange(path, path)
    assert exchange.update(path, holding_back, merge_missing)
    assert entries_of(path) == {"a": math.inf}
    assert [p.name for p in tmp_path.iterdir()] == ["hash"]


@pytest.mark.parametrize("kind", ["fifo", "folder", "zero", "loop", "link", "nothing"])
def test_odd_things_in_the_place_of_what_was_displaced(tmp_path: Path, kind: str) -> None:
    """Read unchecked, the first waits for ever and the third fills the memory."""
    path = make_file(tmp_path / "cache", {"a": 1.0})
    put_odd(exchange.leftover_path(path), kind)
    assert exchange.update(path, holding_back, merge_missing)
    assert entries_of(path) == {"a": math.inf}
    assert not os.path.lexists(exchange.leftover_path(path))
