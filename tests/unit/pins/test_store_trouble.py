"""Pins where a disk or another process is in the way: killed in between, read-only, full, links."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backend.cache.autotune import raise_ms as high
from backend.disk import safe
from backend.disk.exchange import leftover_path
from backend.disk.layout import Layout
from backend.errors import CacheUnreadable, NotWritable, PinRefused, UnsafePath
from backend.pins.store import PinStore
from tests.support.pin_lab import (
    KEY,
    TIMES,
    cache_file,
    make_layout,
    nothing_left_behind,
    read,
    states,
    times,
    write,
)
from tests.support.store_disks import make_read_only, make_stale, make_writable, mounted


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return make_layout(tmp_path / "inductor")


CHILD = """
import os, signal, sys
from pathlib import Path
from backend.disk.layout import Layout
from backend.pins.store import PinStore
from backend.model.problem import TuningKey
root, what, stop = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = PinStore(Layout(Path(root)))
import filelock
from backend.disk import exchange
exchange._renameat2()
key = TuningKey(*sys.argv[4:7])
seen = 0
def hook(event, arguments):
    global seen
    if event in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod"):
        seen += 1
        if seen == stop:
            os.kill(os.getpid(), signal.SIGKILL)
real = exchange.exchange
def exchanging(first, second):
    hook("open", ())
    done = real(first, second)
    hook("open", ())
    return done
exchange.exchange = exchanging
sys.addaudithook(hook)
if what == "unpin":
    store.unpin(key)
else:
    store.pin(None, key, what)
os._exit(0)
"""


def run_killed(root: Path, what: str, stop: int) -> int:
    arguments = [sys.executable, "-c", CHILD, str(root), what, str(stop)]
    return subprocess.run([*arguments, KEY.op, KEY.inputs, KEY.precision]).returncode


@pytest.mark.parametrize("what", ["Cpp-c2", "mm-c1", "unpin"])
def test_a_kill_between_any_two_steps_is_repaired(tmp_path: Path, what: str) -> None:
    """The child is killed before each system call that changes something or opens a file."""
    start = make_layout(tmp_path / "start")
    original = cache_file(start).read_bytes()
    if what != "Cpp-c2":
        PinStore(start).pin(None, KEY, "Cpp-c2")
    for stop in range(1, 200):
        root = tmp_path / f"run{stop}"
        shutil.copytree(start.root, root)
        layout = Layout(root)
        status = run_killed(root, what, stop)
        store = PinStore(layout)
        statuses = store.reconcile()
        assert [s.state for s in statuses] == ["active"] * len(statuses)
        json.loads(cache_file(layout).read_bytes())
        pins = [pin.hash for pin in store.pins()]
        assert pins in ([], ["Cpp-c2"], ["mm-c1"])
        if not pins:
            assert cache_file(layout).read_bytes() == original
        else:
            own = {"Cpp-c2": 2.25, "mm-c1": 1.5}[pins[0]]
            expected = {name: high(ms) for name, ms in TIMES.items()} | {pins[0]: own}
            assert times(layout) == expected
            store.unpin(KEY)
            assert cache_file(layout).read_bytes() == original
        assert not leftover_path(cache_file(layout)).exists()
        shutil.rmtree(root)
        if status == 0:
            break
        assert status == -signal.SIGKILL
    assert stop > 10


def test_a_read_only_cache_dir(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk") as disk:
        layout = make_layout(disk / "inductor")
        store = PinStore(layout)
        make_read_only(disk)
        with pytest.raises(NotWritable, match="read-only") as caught:
            store.pin(None, KEY, "Cpp-c2")
        assert "\n" not in str(caught.value)
        assert times(layout) == TIMES and store.status() == [] and store.reconcile() == []
        make_writable(disk)
        store.pin(None, KEY, "Cpp-c2")
        cache = read(layout)
        cache["mm"][KEY.inputs]["highest"]["mm-c1"] = 5.0
        write(layout, cache)
        make_read_only(disk)
        assert states(store) == ["drifted"]
        with pytest.raises(NotWritable, match="read-only"):
            store.unpin(KEY)
        make_writable(disk)
        assert [s.state for s in store.reconcile()] == ["active"]


def test_a_full_disk(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk") as disk:
        layout = make_layout(disk / "inductor")
        cache = read(layout)
        cache["filler"] = {"[]": {"highest": {f"choice{i}" * 8: 1.0 for i in range(3000)}}}
        write(layout, cache)
        before = cache_file(layout).read_bytes()
        store = PinStore(layout)

        def fill() -> None:
            (disk / "ballast").write_bytes(b"x" * (1_048_576 - len(before) - 60_000))

        fill()
        with pytest.raises(NotWritable, match="disk is full"):
            store.pin(None, KEY, "Cpp-c2")
        assert cache_file(layout).read_bytes() == before
        assert store.pins() == () and store.history() == ()
        nothing_left_behind(layout)
        (disk / "ballast").unlink()
        assert store.reconcile() == [] and cache_file(layout).read_bytes() == before

        store.pin(None, KEY, "Cpp-c2")
        pinned = cache_file(layout).read_bytes()
        fill()
        with pytest.raises(NotWritable, match="disk is full"):
            store.unpin(KEY)
        assert cache_file(layout).read_bytes() == pinned
        assert states(store) == ["active"]
        nothing_left_behind(layout)
        (disk / "ballast").unlink()
        store.unpin(KEY)
        assert cache_file(layout).read_bytes() == before


def test_pins_are_applied_again_though_caches_cannot_be_listed(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PinStore(layout)
    store.pin(None, KEY, "Cpp-c2")
    write(layout, {"mm": {KEY.inputs: {"highest": dict(TIMES)}}})
    make_stale(monkeypatch, layout.autotune)
    (status,) = store.reconcile()
    assert status.state == "active" and times(layout)["mm-c1"] > 1e9


def half_released(layout: Layout) -> PinStore:
    """A store whose pin was being taken back when the process was killed."""
    store = PinStore(layout)
    store.pin(None, KEY, "Cpp-c2")
    before = json.loads(layout.pins.read_bytes())
    (record,) = before["pins"]
    half = {**before, "pins": [], "released": [{**record, "pending": True, "released": 1.0}]}
    layout.pins.write_text(json.dumps(half))
    return store


def test_a_release_that_was_half_done_is_finished_once(layout: Layout) -> None:
    store = half_released(layout)
    store.unpin(KEY)
    assert times(layout) == TIMES
    with pytest.raises(PinRefused, match="is not pinned"):
        store.unpin(KEY)


def test_a_release_that_was_half_done_and_fails_again_stays_half_done(layout: Layout) -> None:
    store = half_released(layout)
    cache, whole = cache_file(layout), cache_file(layout).read_bytes()
    cache.write_bytes(b"{")
    with pytest.raises(CacheUnreadable):
        store.unpin(KEY)
    assert store.pins() == () and [entry.what for entry in store.history()] == ["pin"]
    cache.write_bytes(whole)
    assert store.reconcile() == [] and times(layout) == TIMES


def test_symlinks_and_shared_folders_are_refused(tmp_path: Path, layout: Layout) -> None:
    before = cache_file(layout).read_bytes()
    link = tmp_path / "link"
    link.symlink_to(layout.root)
    with pytest.raises(UnsafePath, match="symlink"):
        PinStore(Layout(link)).pin(None, KEY, "Cpp-c2")

    store = PinStore(layout)
    layout.root.chmod(0o777)
    with pytest.raises(UnsafePath, match="every user can write"):
        store.pin(None, KEY, "Cpp-c2")
    layout.root.chmod(0o1777)
    safe.check_folder(layout.root, layout.autotune)
    layout.root.chmod(0o700)

    for name in ("rocm_tui", "fxgraph", "aotautograd"):
        (layout.root / name).symlink_to(tmp_path)
        with pytest.raises(UnsafePath, match="symlink"):
            store.pin(None, KEY, "Cpp-c2")
        (layout.root / name).unlink()

    layout.autotune.rename(tmp_path / "real")
    layout.autotune.symlink_to(tmp_path / "real")
    with pytest.raises(UnsafePath, match="symlink"):
        store.pin(None, KEY, "Cpp-c2")
    layout.autotune.unlink()
    (tmp_path / "real").rename(layout.autotune)

    cache_file(layout).rename(tmp_path / "file")
    cache_file(layout).symlink_to(tmp_path / "file")
    with pytest.raises(UnsafePath, match="symlink"):
        store.pin(None, KEY, "Cpp-c2")
    assert (tmp_path / "file").read_bytes() == before
    nothing_left_behind(layout)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_what_belongs_to_somebody_else_is_refused(layout: Layout) -> None:
    os.chown(layout.root, 65534, -1)
    with pytest.raises(UnsafePath, match="belongs to"):
        PinStore(layout).pin(None, KEY, "Cpp-c2")
    os.chown(layout.root, 0, -1)
    os.chown(layout.root, -1, 65534)
    layout.root.chmod(0o770)
    with pytest.raises(UnsafePath, match="group"):
        PinStore(layout).pin(None, KEY, "Cpp-c2")
