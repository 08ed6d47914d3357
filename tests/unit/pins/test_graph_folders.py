"""The graph caches looked through again and again: all changes are seen, the rest is not read."""

from __future__ import annotations

import json
import os
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.model.inductor_kernel import parse
from backend.model.problem import TuningKey
from backend.pins.graphs import index as graph_folders
from backend.pins.graphs.index import (
    FolderMemory,
    GraphIndex,
    entries_below,
    is_readable,
    kernels_in,
    move_aside,
    packages_below,
    read_entry,
    restore,
    upper_folders,
)
from backend.pins.graphs.match import WantedChoice
from backend.pins.store import PinStore
from tests.support import inductor_kernels as lab
from tests.support.graph_lab import GRAPH, KEY, TRITON, form
from tests.support.store_disks import no_descriptors


def put(root: Path, relative: str, content: str = "x") -> Path:
    path = root / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def settle() -> None:
    """Wait for the next tick of the file system's clock."""
    time.sleep(0.02)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that are read from here on; a folder is settled after a tick of the clock."""
    monkeypatch.setattr(graph_folders, "_SETTLED", 0.015)
    names: list[str] = []
    scandir = os.scandir

    def counted(path: Path) -> object:
        names.append(str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counted)
    return names


def test_drawn_changes_are_all_seen(tmp_path: Path, reads: list[str]) -> None:
    """Against a look that remembers nothing, after each of many changes of every kind."""
    draw = random.Random(1)
    index = GraphIndex(Layout(tmp_path))
    keys = [f"fxgraph/{two}/f{two}{n}" for two in ("ab", "cd") for n in range(3)]
    keys += [f"aotautograd/a{n}" for n in range(3)]
    for _ in range(300):
        key = draw.choice(keys)
        kind = draw.randrange(5)
        there = sorted((tmp_path / key).glob("*")) if (tmp_path / key).is_dir() else []
        if kind < 2:
            path = put(tmp_path, f"{key}/{draw.randrange(4)}")
            if kind:  # as a copying program does
                os.utime(path, (1, 1))
                os.utime(path.parent, (1, 1))
        elif kind == 2 and there:
            there[0].unlink()
        elif kind == 3 and there:
            for path in there:
                path.unlink()
            (tmp_path / key).rmdir()
        elif kind == 4:
            put(tmp_path, f"{key}/.temporary")
        if draw.random() < 0.3:
            settle()
        assert [e.relative for e in index.live()] == [e.relative for e in entries_below(tmp_path)]


def test_an_unchanged_tree_is_not_read(tmp_path: Path, reads: list[str]) -> None:
    for n in range(20):
        put(tmp_path, f"fxgraph/a{n % 3}/fa{n}/x")
    index = GraphIndex(Layout(tmp_path))
    settle()
    before = index.live()
    assert len(before) == 20
    reads.clear()
    assert index.live() == before and reads == []
    put(tmp_path, "fxgraph/a0/fa0/y")
    assert len(index.live()) == 21
    assert reads == [str(tmp_path / "fxgraph/a0/fa0")]


def test_a_look_at_the_upper_folders_tells_a_new_key(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    stamps = [upper_folders(layout)]
    for relative in ("fxgraph/ab/fabc/x", "fxgraph/ab/fabd/x", "fxgraph/cd/fcde/x"):
        time.sleep(0.02)
        put(tmp_path, relative)
        stamps.append(upper_folders(layout))
    put(tmp_path, "aotautograd/aabc/x")
    stamps.append(upper_folders(layout))
    assert len({repr(stamp) for stamp in stamps}) == 5
    assert upper_folders(layout) == stamps[-1]


def test_links_and_odd_things_are_left_out(tmp_path: Path) -> None:
    put(tmp_path, "fxgraph/ab/fabc/x")
    (tmp_path / "fxgraph/ab/fabc/link").symlink_to("x")
    os.mkfifo(tmp_path / "fxgraph/ab/fabc/fifo")
    (tmp_path / "fxgraph/ab/linked").symlink_to(tmp_path / "fxgraph/ab/fabc")
    (tmp_path / "fxgraph/zz").symlink_to(tmp_path / "fxgraph/ab")
    (tmp_path / "aotautograd").symlink_to(tmp_path / "fxgraph/ab")
    put(tmp_path, "fxgraph/file")
    found = list(FolderMemory().entries(tmp_path, "fxgraph", 3))
    assert [entry.relative for entry in found] == ["fxgraph/ab/fabc/x"]
    assert list(FolderMemory().entries(tmp_path, "aotautograd", 2)) == []


def test_the_same_graph_again_is_known_although_it_looks_new(tmp_path: Path) -> None:
    """A Triton template without a known configuration is judged by its age, and what a mega-cache
    brings is new. What comes under the pin, and has another content, stays and is not trusted."""
    layout = Layout(tmp_path)
    times = {"mm-c1": 1.5, "triton_mm-c2": 2.25, "triton_mm-c3": 3.0}
    content = {"system": {}, "cache": {"mm": {KEY: {"highest": times}}}}
    put(tmp_path, f"cache/{'4' * 64}", json.dumps(content))
    text = form(GRAPH) + form(TRITON)
    old = put(tmp_path, "fxgraph/ab/fabc/one", text)
    os.utime(old, (1000, 1000))
    store = PinStore(layout)
    store.pin(None, TuningKey("mm", KEY, "highest"), "triton_mm-c2")
    assert not old.exists()
    put(tmp_path, "fxgraph/ab/fabc/two", form(GRAPH) + form(TRITON, block=128))
    assert [s.state for s in store.reconcile()] == ["unproven"]
    put(tmp_path, "fxgraph/ab/fabc/one", text)
    assert [s.state for s in store.status()] == ["drifted"]
    (status,) = store.reconcile()
    assert status.state == "unproven" and status.pin.drifts == 1
    assert [entry.relative for entry in entries_below(tmp_path)] == ["fxgraph/ab/fabc/two"]
    store.unpin(TuningKey("mm", KEY, "highest"))
    assert old.read_text() == text


def test_a_package_is_read_with_the_kernels_beside_it(tmp_path: Path) -> None:
    folder = "c" * 52
    put(tmp_path, f"{folder}/m.wrapper.cpp", "wrapper")
    for name in ("b.kernel.cpp", "a.kernel.cpp", "other.cpp", "a.kernel.o"):
        put(tmp_path, f"{folder}/{name}", f" {name}")
    (entry,) = packages_below(tmp_path)
    assert read_entry(entry) == b"wrapper a.kernel.cpp b.kernel.cpp"


def test_verdicts_on_entries_of_each_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be read may hold anything; what is gone holds nothing."""
    put(tmp_path, "aotautograd/key/names another", "no code: mm 512, 256")
    put(tmp_path, "fxgraph/ab/key/a", form(TRITON + GRAPH))
    put(tmp_path, "fxgraph/ab/key/b", "something else")
    put(tmp_path, "fxgraph/ab/key/c", "mm 512, 256 in an unknown form")
    index = GraphIndex(Layout(tmp_path))
    wanted = WantedChoice("mm", KEY, "mm-c1", ("mm-c1", "triton_mm-c2"))
    entries = index.live()
    assert [entry.relative[-1] for entry in entries] == ["a", "b", "c", "r"]
    verdicts = ["other", "absent", "unclear", "absent"]
    assert index.verdicts(entries, wanted) == verdicts
    assert index.verdicts(entries, replace(wanted, hash="triton_mm-c2"))[0] == "same"
    assert index.verdicts(entries, replace(wanted, device=7)) == verdicts
    kernel = replace(wanted, op="pointwise")
    assert GraphIndex(Layout(tmp_path)).verdicts(entries, kernel) == ["absent"] * 4
    for entry in entries:
        entry.path.unlink()
    assert index.verdicts(entries, wanted) == verdicts, "each is read once"
    again = GraphIndex(Layout(tmp_path))
    assert again.verdicts(entries, wanted) == ["absent"] * 4
    for entry in entries:
        entry.path.mkdir()
    again = GraphIndex(Layout(tmp_path))
    assert again.verdicts(entries, wanted) == again.verdicts(entries, kernel) == ["unclear"] * 4
    assert not is_readable(replace(entries[0], size=(256 << 20) + 1))
    assert is_readable(replace(entries[0], size=256 << 20))


@pytest.mark.parametrize("what", ["choice", "kernel"])
def test_an_entry_that_could_not_be_read_once_is_read_again(tmp_path: Path, what: str) -> None:
    text, verdict = form(TRITON + GRAPH), "other"
    wanted = WantedChoice("mm", KEY, "mm-c1", ("mm-c1", "triton_mm-c2"))
    if what == "kernel":
        text, verdict = f"x = async_compile.triton('k', '''\n{lab.source()}''')\n", "unknown"
        ((op, inputs),) = kernels_in(text.encode())
        wanted = replace(wanted, op=op, inputs=inputs)
    path = put(tmp_path, "fxgraph/ab/key/a", text)
    index = GraphIndex(Layout(tmp_path))
    entries = index.live()
    with no_descriptors():
        assert index.verdicts(entries, wanted) == ["unclear"]
    path.rename(tmp_path / "aside")
    assert index.verdicts(entries, wanted) == ["absent"]
    (tmp_path / "aside").rename(path)
    assert index.verdicts(entries, wanted) == [verdict]


def test_a_graph_that_is_moved_keeps_the_age_of_its_oldest_copy(tmp_path: Path) -> None:
    layout, aside = Layout(tmp_path), tmp_path / "rocm_tui" / "evicted" / "0"
    path = put(tmp_path, "fxgraph/ab/key/a")
    os.utime(path, (1000, 1000))
    index = GraphIndex(layout)
    assert move_aside(layout, index.live(), aside) == 1
    moved = aside / "fxgraph/ab/key/a"
    assert moved.stat().st_mtime == 1000 and not path.parent.exists()
    put(tmp_path, "fxgraph/ab/key/a")
    put(tmp_path, "fxgraph/ab/key/b")
    entries = GraphIndex(layout).live()
    entries[1].path.unlink()
    assert move_aside(layout, entries, aside) == 1, "one is gone"
    assert moved.stat().st_mtime == 1000
    assert restore(layout, index.evicted(aside)) == 1
    assert path.stat().st_mtime == 1000 and not moved.parent.exists()
    os.utime(put(tmp_path, "rocm_tui/evicted/0/fxgraph/ab/key/a"), (2000, 2000))
    assert move_aside(layout, GraphIndex(layout).live(), aside) == 1
    assert moved.stat().st_mtime == 1000, "the copy there was younger"


def test_packages_are_regular_files_in_folders_named_by_a_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"c{letter * 51}" for letter in "ba"]
    for name in (*names, "c" * 51, "x" + "a" * 51):
        put(tmp_path, f"{name}/m.wrapper.cpp")
        put(tmp_path, f"{name}/m.kernel.cpp")
    (tmp_path / names[0] / "link.wrapper.cpp").symlink_to("m.wrapper.cpp")
    put(tmp_path, f"{names[0]}/a.wrapper.cpp")
    found = [entry.relative for entry in packages_below(tmp_path)]
    assert found == [
        f"{names[1]}/m.wrapper.cpp", f"{names[0]}/a.wrapper.cpp", f"{names[0]}/m.wrapper.cpp",
    ]  # fmt: skip
    monkeypatch.setattr(graph_folders, "MAX_PACKAGES", 1)
    assert [entry.relative for entry in packages_below(tmp_path)] == found[:1]
    assert packages_below(tmp_path / "none") == []


def test_the_kernels_in_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (lab.source(added=float(n)) for n in range(2))
    text = "".join(f"x = async_compile.triton('k', '''\n{each}''')\n" for each in (first, second))
    expected = {(k.op, k.inputs) for each in (first, second) if (k := parse(each))}
    assert len(expected) == 2 and kernels_in(text.encode()) == expected
    assert kernels_in(first.encode()) == frozenset(), "it is no kernel of a graph"
    monkeypatch.setattr(graph_folders, "MAX_KERNELS", 1)
    assert len(kernels_in(text.encode())) == 1
