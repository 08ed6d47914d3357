"""The graph caches looked through again and again: all changes are seen, the rest is not read."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.model.problem import TuningKey
from backend.pins.graphs import index as graph_folders
from backend.pins.graphs.index import FolderMemory, GraphIndex, entries_below, upper_folders
from backend.pins.store import PinStore
from tests.support.graph_lab import GRAPH, KEY, TRITON, form


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
