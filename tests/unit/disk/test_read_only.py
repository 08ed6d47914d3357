"""What changes a cache dir, on a disk that is read-only, full, or as it should be."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend.cache.fold import RecentFolds
from backend.cache.journal import Journal, Tuned, line_of
from backend.cache.variants import ChoiceVariants, write_modules
from backend.disk import exchange, safe
from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter, end_log, is_released, read_log
from backend.disk.trusted import opened_folder
from backend.errors import NotWritable
from backend.model.events import TuningFailed
from backend.model.session import Session
from backend.pins.graphs.index import GraphIndex, move_aside, restore
from tests.support.device_modules import write_choice
from tests.support.pin_lab import cache_file, make_layout
from tests.support.store_disks import make_read_only, mounted

LINE = line_of(Tuned("mm", "[a]", "highest", {"c" * 9_000: 1.0}, time.time()))
EVENT = TuningFailed(1, 1.0, "x" * 5_000)
ASIDE = "0123"


def log(layout: Layout) -> Path:
    return layout.sessions / "host-1-1-a.jsonl"


def content(layout: Layout) -> Path:
    return layout.autotune / "content"


def _write_event(layout: Layout) -> None:
    writer = EventWriter(layout, Session("b", host="gpu7", pid=7))
    written = writer.write(EVENT)
    writer.close()
    if not written:
        assert writer.error is not None
        raise NotWritable(writer.error)


def _lock(layout: Layout) -> None:
    with safe.locked(layout.root, cache_file(layout)):
        pass


def _rotate(layout: Layout) -> None:
    journal = Journal(layout.root, cache_file(layout))
    journal.rotate(journal.read(), None, exchange.signature_of(cache_file(layout)))


def _move(layout: Layout) -> None:
    folder = layout.evicted / ASIDE
    if move_aside(layout, GraphIndex(layout).live(), folder):
        restore(layout, GraphIndex(layout).evicted(folder))


def _modules(layout: Layout) -> None:
    choice = (layout.root / "choice").read_text()
    write_modules(ChoiceVariants(layout.root), [choice], (1,))


WRITERS: dict[str, tuple[Callable[[Layout], object], Callable[[Layout], Path]]] = {
    "make_folder": (
        lambda layout: safe.make_folder(layout.root, layout.home / "new"),
        lambda layout: layout.home / "new",
    ),
    "write_atomic": (lambda layout: safe.write_atomic(content(layout), LINE), content),
    "locked": (_lock, lambda layout: layout.home / "locks"),
    "update": (
        lambda layout: exchange.update(content(layout), lambda data: LINE, exchange.newer),
        content,
    ),
    "append": (
        lambda layout: Journal(layout.root, cache_file(layout)).append(LINE),
        lambda layout: layout.home / "tuned" / "hash.jsonl",
    ),
    "rotate": (_rotate, lambda layout: layout.home / "tuned" / "hash.jsonl"),
    "event": (_write_event, lambda layout: layout.sessions),
    "end_log": (lambda layout: end_log(layout, log(layout)), log),
    "move": (_move, lambda layout: layout.fxgraph / "ab" / "key" / "content"),
    "modules": (_modules, lambda layout: layout.root),
}
"""What is done, and the file that its error names."""


def prepared(root: Path) -> Layout:
    layout = make_layout(root)
    content(layout).write_bytes(b"old")
    Journal(root, cache_file(layout)).append(LINE)
    _lock(layout)
    for path in (log(layout), layout.fxgraph / "ab" / "key" / "content"):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * 4095 + b"\n")  # whole pages: there is no room left in the last one
    (layout.evicted / ASIDE / "fxgraph" / "ab" / "key").mkdir(parents=True)
    choice = write_choice(root, 0, BLOCK_M=64)
    (root / "choice").write_text(choice)
    module = ChoiceVariants(root).module(choice)
    assert module is not None
    for folder in (root / "triton" / "1", root / module.key(1)[1:3]):
        folder.mkdir(parents=True, exist_ok=True)
    return layout


def descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


@pytest.fixture(scope="module")
def read_only(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    with mounted(tmp_path_factory.mktemp("read only") / "disk") as disk:
        layout = prepared(disk / "inductor")
        make_read_only(disk)
        yield layout


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Layout]:
    with mounted(tmp_path / "disk") as disk:
        layout = prepared(disk / "inductor")
        with (
            (disk / "ballast").open("wb", buffering=0) as ballast,
            pytest.raises(OSError, match="space"),
        ):
            while True:
                ballast.write(b"x" * 4096)
        yield layout


@pytest.mark.parametrize("name", WRITERS)
def test_a_read_only_disk_is_named_with_the_file_and_the_way_out(
    read_only: Layout, name: str
) -> None:
    act, named = WRITERS[name]
    before = descriptors()
    with pytest.raises(NotWritable, match="read-only; choose another folder") as caught:
        act(read_only)
    where = named(read_only) if name not in ("append", "rotate") else read_only.home / "locks"
    assert str(caught.value).startswith(f"cannot write {where}")
    assert descriptors() == before


@pytest.mark.parametrize(
    "name", ["write_atomic", "update", "append", "rotate", "event", "end_log", "modules"]
)
def test_a_full_disk_is_named_with_the_file_and_the_way_out(full: Layout, name: str) -> None:
    act, named = WRITERS[name]
    before, files = descriptors(), sorted(full.root.rglob("*"))
    with pytest.raises(NotWritable, match="the disk is full") as caught:
        act(full)
    assert f"cannot write {named(full)}" in str(caught.value)
    assert descriptors() == before
    new = [path for path in full.root.rglob("*") if path not in files]
    assert [path.parent for path in new] == [full.sessions] * (name == "event")
    assert content(full).read_bytes() == b"old"


@pytest.mark.parametrize("name", WRITERS)
def test_no_descriptor_stays_open(tmp_path: Path, name: str) -> None:
    layout = prepared(tmp_path / "inductor")
    before = descriptors()
    for _ in range(2):
        WRITERS[name][0](layout)
    assert descriptors() == before


def test_no_descriptor_of_a_reader_stays_open(tmp_path: Path) -> None:
    layout = prepared(tmp_path / "inductor")
    before = descriptors()
    assert is_released(log(layout)) and not is_released(tmp_path / "missing")
    assert exchange.writer_of(content(layout)) is None
    assert read_log(log(layout))[1]
    with opened_folder(layout.root, layout.home):
        pass
    RecentFolds(layout.root, cache_file(layout)).add(LINE)
    assert descriptors() == before
