"""What killed, stopped and ended processes leave for the next: nothing lost, nothing in the way.

`tests/campaign/kills.py` does the same for as long as it is given; a few of its stories are here.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from backend.cache import fold as tuned_kept
from backend.cache import journal as journals
from backend.cache import lookup as tuned_cache
from backend.cache.autotune import is_raised
from backend.cache.autotune import raise_ms as high
from backend.cache.fold import CacheRestorer, fold
from backend.cache.journal import Journal, Tuned, line_of
from backend.cache.lookup import TunedCache
from backend.disk import safe
from backend.disk.layout import Layout
from backend.errors import Busy
from backend.model.problem import TuningKey
from backend.pins.holders import pinned_choices
from backend.pins.store import PinStore
from tests.campaign.kills import Story

KEY = TuningKey("mm", "[a]", "highest")


def tuned(inputs: str = "[a]", ms: float = 1.0) -> Tuned:
    return Tuned("mm", inputs, "highest", {"c0": ms, "c1": ms + 1}, time.time())


def made(root: Path) -> tuple[TunedCache, list[str]]:
    said: list[str] = []
    return TunedCache(root / "cache" / "s", {}, said.append, pinned_choices), said


def in_file(root: Path) -> dict[str, dict[str, float]]:
    cache = json.loads((root / "cache" / "s").read_bytes())["cache"]["mm"]
    return {inputs: by_precision["highest"] for inputs, by_precision in cache.items()}


def put(path: Path, data: bytes) -> None:
    path.with_name(".new").write_bytes(data)
    path.with_name(".new").replace(path)


@pytest.mark.parametrize("seed", range(3))
def test_stories_of_kills(tmp_path: Path, seed: int) -> None:
    for number in range(15):
        story = Story(tmp_path / str(number), random.Random(f"{seed} {number}"))
        story.play()
        assert not list(story.judge()), story.told


def test_what_a_killed_pin_was_preparing_is_swept(tmp_path: Path) -> None:
    cache, _ = made(tmp_path)
    cache.insert([tuned()])
    layout = Layout(tmp_path)
    left = [safe.temporary_path(path) for path in (layout.pins, cache.path)]
    store = PinStore(layout)
    store.pin("s", KEY, "c0")
    store.reconcile()
    for path in left:
        path.write_bytes(b"half of")
    store.reconcile()  # nothing else has changed
    assert not any(path.exists() for path in left)
    with safe.locked(tmp_path, cache.path):
        left[1].write_bytes(b"being written by the holder of the lock")
        with pytest.raises(Busy), safe.locked(tmp_path, cache.path, 0.05):
            pass
        assert left[1].exists()


def test_entries_of_ended_processes_come_back(tmp_path: Path) -> None:
    """Stock PyTorch writes last, from a copy that is older than several folds."""
    first, _ = made(tmp_path)
    first.insert([tuned("[old]")])
    copy = first.path.read_bytes()
    for n in range(4):
        ended, _ = made(tmp_path)
        ended.insert([tuned(f"[{n}]", n + 1.0)])
    ended.insert([tuned("[0]", 9.0)])  # of two times the later one
    put(first.path, copy)
    assert in_file(tmp_path).keys() == {"[old]"}
    later, said = made(tmp_path)
    assert later.view()["mm"].get("[0]")["highest"] == {"c0": 9.0, "c1": 10.0}
    assert in_file(tmp_path).keys() == {"[old]", "[0]", "[1]", "[2]", "[3]"}
    assert in_file(tmp_path)["[0]"] == {"c0": 9.0, "c1": 10.0}

    put(later.path, copy)
    fold(tmp_path, later.path, {}, pinned_choices)
    assert in_file(tmp_path).keys() == {"[old]", "[0]", "[1]", "[2]", "[3]"}

    later.path.unlink()  # somebody cleared the cache, and meant it
    made(tmp_path)[0].insert([tuned("[new]")])
    assert in_file(tmp_path).keys() == {"[new]"} and not said
    put(later.path, copy)
    made(tmp_path)[0].view()
    assert in_file(tmp_path).keys() == {"[old]", "[new]"}


def test_who_looks_on_brings_it_back(tmp_path: Path) -> None:
    cache, _ = made(tmp_path)
    cache.insert([tuned("[old]")])
    copy = cache.path.read_bytes()
    cache.insert([tuned("[new]")])
    recaller = CacheRestorer(Layout(tmp_path), pinned_choices)
    for _ in range(2):
        put(cache.path, copy)
        recaller.recall()
        assert in_file(tmp_path).keys() == {"[old]", "[new]"}


def test_what_comes_back_is_held_by_a_pin(tmp_path: Path) -> None:
    cache, _ = made(tmp_path)
    cache.insert([tuned()])
    old = json.loads(cache.path.read_bytes())
    del old["cache"]["mm"]["[a]"]["highest"]["c0"]
    PinStore(Layout(tmp_path)).pin("s", KEY, "c1")
    put(cache.path, json.dumps(old, indent=4).encode())
    made(tmp_path)[0].view()
    assert in_file(tmp_path)["[a]"] == {"c0": high(1.0), "c1": 2.0}


def test_what_is_kept_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned_kept, "LEAST_BYTES", 2000)
    cache, _ = made(tmp_path)
    kept = tuned_kept.RecentFolds(tmp_path, cache.path)
    for n in range(100):
        cache.insert([tuned("[a]", float(n))])
    assert kept.path.stat().st_size <= 2200
    assert [one.timings["c0"] for one in kept.lost({})] == [99.0]
    old = Tuned("mm", "[b]", "highest", {"c": 1.0}, time.time() - 2 * tuned_kept.SECONDS)
    kept.add(line_of(old))
    assert [one.inputs for one in kept.lost({})] == ["[a]"]


def test_a_fold_takes_back_what_no_pin_raised(tmp_path: Path) -> None:
    """A stock process writes the raised numbers of a released pin; nobody runs `watch`."""
    cache, _ = made(tmp_path)
    cache.insert([tuned(), tuned("[b]")])
    store = PinStore(Layout(tmp_path))
    store.pin("s", KEY, "c1")
    store.pin("s", TuningKey("mm", "[b]", "highest"), "c1")
    raised = cache.path.read_bytes()
    store.unpin(KEY)
    put(cache.path, raised)
    made(tmp_path)[0].insert([tuned("[c]")])
    assert in_file(tmp_path)["[a]"] == {"c0": 1.0, "c1": 2.0}
    assert in_file(tmp_path)["[b]"] == {"c0": high(1.0), "c1": 2.0}


HOLDER = """
import sys, time
from pathlib import Path
from backend.disk import safe
from backend.cache.journal import Journal
root = Path(sys.argv[1])
path = root / "cache" / "s"
with safe.locked(root, path) if sys.argv[2] == "file" else Journal(root, path)._locked():
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("lock", ["file", "journal"])
def test_a_stopped_holder_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    """Each tuning waited for 30 s. The journal goes on without the file, the process without it."""
    monkeypatch.setattr(tuned_cache, "PATIENCE_SECONDS", 0.5)
    patience: list[float] = []
    acquire, hold = journals._acquire, safe.locked

    def acquire_noted(descriptor: int, path: Path, seconds: float) -> None:
        if lock == "journal":
            patience.append(seconds)
        acquire(descriptor, path, seconds)

    def hold_noted(
        root: Path, path: Path, seconds: float
    ) -> contextlib.AbstractContextManager[object]:
        patience.append(seconds)
        return hold(root, path, seconds)

    cache, said = made(tmp_path)
    cache.insert([tuned("[first]")])
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path), lock], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        os.kill(holder.pid, signal.SIGSTOP)
        cache._journal.patience = 0.5
        monkeypatch.setattr(journals, "_acquire", acquire_noted)
        monkeypatch.setattr(safe, "locked", hold_noted)
        for n in range(20):
            cache.insert([tuned(f"[{n}]")])
        assert patience == [0.5] + [0.0] * 19
        assert len(set(said)) == 1 and "continue it if it is stopped" in said[0]
        assert cache.view()["mm"].get("[19]")
        if lock == "file":
            assert len(said) == 1 and made(tmp_path)[0].view()["mm"].get("[19]")
    finally:
        holder.kill()
        holder.wait()
    cache.insert([tuned("[last]")])
    assert in_file(tmp_path).keys() == {"[first]", "[last]", *(f"[{n}]" for n in range(20))}


def test_a_stopped_clock_drops_nothing(tmp_path: Path) -> None:
    """New times of rivals count, whatever the clock said when they were measured."""
    cache, _ = made(tmp_path)
    cache.insert([tuned()])
    PinStore(Layout(tmp_path)).pin("s", KEY, "c1")
    cache.insert([Tuned("mm", "[a]", "highest", {"c0": 5.0, "c2": 7.0}, time.time() - 10**7)])
    assert in_file(tmp_path)["[a]"] == {"c0": high(5.0), "c1": 2.0, "c2": high(7.0)}
    PinStore(Layout(tmp_path)).unpin(KEY)
    assert in_file(tmp_path)["[a]"] == {"c0": 5.0, "c1": 2.0, "c2": 7.0}
    assert not any(map(is_raised, in_file(tmp_path)["[a]"].values()))


@pytest.mark.parametrize(
    "header", [b'{"journal": "x', b'{"journal": "x", "fold": 1e999}\n', b"\x00\xff\n", b"\n"]
)
def test_an_odd_header_loses_no_line(tmp_path: Path, header: bytes) -> None:
    cache, said = made(tmp_path)
    fold_of = b'{"journal": "x", "fold": {"journal": "y", "length": 1e999, "before": [1e999]}}\n'
    journal = Journal(tmp_path, cache.path)
    journal.path.parent.mkdir(parents=True)
    for first in (header, fold_of):
        journal.path.write_bytes(first)
        journal.append(line_of(tuned("[kept]")))
        fold(tmp_path, cache.path, {}, pinned_choices)
        assert "[kept]" in in_file(tmp_path) and not said
