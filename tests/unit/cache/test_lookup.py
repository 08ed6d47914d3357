"""The journal, the index and the fold, without torch."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.cache import lookup as later
from backend.cache import lookup as tuned_cache
from backend.cache.autotune import dump
from backend.cache.autotune import raise_ms as high
from backend.cache.fold import RecentFolds, fold
from backend.cache.journal import Journal, Tuned, line_of, tuned_of
from backend.cache.lookup import TunedCache
from backend.disk.layout import Layout
from backend.model.choice import MOST_MS
from backend.model.problem import TuningKey
from backend.pins.holders import pinned_choices
from backend.pins.store import PinStore
from tests.support.store_disks import no_descriptors

KEY = TuningKey("mm", "[a]", "highest")
SYSTEM = {"hash": "s"}

TIMES = (
    st.floats(0, MOST_MS, exclude_min=True, exclude_max=True)
    | st.integers(1, int(MOST_MS) - 1)
    | st.sampled_from((math.inf, math.nan))
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
JSON = st.recursive(
    SCALARS,
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(), part, max_size=4),
    max_leaves=30,
)


def tuned(inputs: str = "[a]", ms: float = 1.0, when: float | None = None, n: int = 3) -> Tuned:
    times = {f"c{i}": ms + i for i in range(n)}
    return Tuned("mm", inputs, "highest", times, time.time() if when is None else when)


def made(root: Path, keys: int = 0) -> tuple[TunedCache, list[str]]:
    """A cache and what it says; its file has `keys` tunings of 30 choices (2.1 kB each)."""
    path = root / "cache" / "s"
    if keys:
        path.parent.mkdir(parents=True)
        times = {f"a-choice-with-a-long-hash-{i:030}": 0.5 + i for i in range(30)}
        cache = {"mm": {f"[{i}]": {"highest": times} for i in range(keys)}}
        path.write_text(json.dumps({"system": SYSTEM, "cache": cache}, indent=4))
    said: list[str] = []
    return TunedCache(path, SYSTEM, said.append, pinned_choices), said


def times(cache: TunedCache, inputs: str = "[a]") -> dict[str, float] | None:
    found = cache.view().get("mm", {}).get(inputs, {}).get("highest")
    return None if found is None else dict(found)


def in_file(root: Path) -> dict[str, dict[str, float]]:
    """By inputs, the numbers as they stand there."""
    document = json.loads((root / "cache" / "s").read_bytes())
    return {
        inputs: times["highest"]
        for by_inputs in document["cache"].values()
        for inputs, times in by_inputs.items()
    }


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_layout_is_that_of_pytorch(document: dict[str, Any]) -> None:
    assert dump(document) == json.dumps(document, indent=4).encode()


@given(st.text(), st.text(), st.dictionaries(st.text(), TIMES))
def test_a_line_gives_the_same_numbers_back(op: str, inputs: str, found: dict[str, float]) -> None:
    line = line_of(Tuned(op, inputs, "highest", found, 12.5))
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert repr(tuned_of(line)) == repr(Tuned(op, inputs, "highest", found, 12.5))
    assert json.loads(line, parse_constant=pytest.fail)["op"] == op


@pytest.mark.parametrize("ms", ["0", "-1.0", "0.0", "1e7", "1e308", '"-Infinity"', f"{10**400}"])
def test_a_line_with_a_time_that_no_kernel_takes_is_left_out(ms: str, tmp_path: Path) -> None:
    """0 ms would win for ever."""
    line = line_of(Tuned("mm", "[a]", "highest", {"good": 1.0, "bad": 2.0}, 0.0))
    assert tuned_of(line) is not None and tuned_of(line.replace(b"2.0", ms.encode())) is None
    cache, _ = made(tmp_path)
    Journal(tmp_path, cache.path).append(line.replace(b"2.0", ms.encode()))
    fold(tmp_path, cache.path, SYSTEM, pinned_choices)
    assert times(cache) is None and not in_file(tmp_path)


@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_other_lines_are_left_out(line: bytes) -> None:
    assert tuned_of(line) is None


def test_a_small_file_has_it_at_once(tmp_path: Path) -> None:
    cache, said = made(tmp_path)
    assert times(cache) is None
    cache.insert([tuned()])
    assert in_file(tmp_path) == {"[a]": {"c0": 1.0, "c1": 2.0, "c2": 3.0}}
    assert json.loads(cache.path.read_bytes())["system"] == SYSTEM
    cache.insert([tuned(ms=7.0, n=2)])
    assert in_file(tmp_path)["[a]"] == {"c0": 7.0, "c1": 8.0, "c2": 3.0} == times(cache)
    assert not said


def test_a_big_file_has_it_soon_and_others_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(later, "QUIET_SECONDS", 0.3)
    first, said = made(tmp_path, 600)
    second, _ = made(tmp_path)
    assert first.path.stat().st_size > tuned_cache.SMALL
    assert len(first.view()["mm"].get("[5]")["highest"]) == 30
    assert times(second) is None
    with first.measuring():
        first.insert([tuned("[a]")])
        first.insert([tuned("[b]", math.inf)])
        assert "[a]" not in in_file(tmp_path)
    assert times(second) == {"c0": 1.0, "c1": 2.0, "c2": 3.0}
    assert times(second, "[b]") == {"c0": math.inf, "c1": math.inf, "c2": math.inf}
    end = time.monotonic() + 60
    while "[b]" not in in_file(tmp_path) and time.monotonic() < end:
        time.sleep(0.05)
    assert len(in_file(tmp_path)) == 602 and not said


def test_a_fold_of_another_process_is_followed_without_parsing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = made(tmp_path, 600)
    second, _ = made(tmp_path)
    parsed: list[Path] = []
    load = tuned_cache.load_json
    monkeypatch.setattr(
        tuned_cache, "load_json", lambda path, data: parsed.append(path) or load(path, data)
    )
    for cache in (first, second):
        cache.view()
    for i in range(3):
        Journal(tmp_path, first.path).append(line_of(tuned(f"[new {i}]", i + 1.0)))
        if i == 1:
            assert times(second, "[new 1]") is not None
        fold(tmp_path, first.path, SYSTEM, pinned_choices)
        Journal(tmp_path, first.path).append(line_of(tuned(f"[tail {i}]")))
        assert times(first, f"[new {i}]") == {"c0": i + 1, "c1": i + 2, "c2": i + 3}
        assert times(second, f"[tail {i}]") is not None
    assert len(parsed) == 2
    assert first.view()["mm"].keys() == second.view()["mm"].keys()
    fold(tmp_path, first.path, SYSTEM, pinned_choices)
    assert len(in_file(tmp_path)) == 606

    # Two folds later, or after a write that is not ours, only the file can tell.
    for name in ("[x]", "[y]"):
        Journal(tmp_path, first.path).append(line_of(tuned(name)))
        fold(tmp_path, first.path, SYSTEM, pinned_choices)
    assert times(first, "[x]") and times(first, "[y]")
    document = json.loads(first.path.read_bytes())
    document["cache"]["mm"]["[theirs]"] = {"highest": {"c0": 1.0}}
    first.path.with_name(".new").write_text(json.dumps(document, indent=4))
    first.path.with_name(".new").replace(first.path)
    assert times(first, "[theirs]") == {"c0": 1.0} and times(first, "[x]")
    assert len(parsed) == 4


def test_what_an_old_copy_wrote_over_comes_back(tmp_path: Path) -> None:
    cache, _ = made(tmp_path)
    cache.insert([tuned("[old]")])
    cache.view()
    copy = cache.path.read_bytes()
    cache.insert([tuned("[a]")])
    cache.path.with_name(".new").write_bytes(copy)
    cache.path.with_name(".new").replace(cache.path)
    cache.view()
    assert in_file(tmp_path).keys() == {"[old]", "[a]"} and times(cache)
    cache.path.unlink()  # the user cleared it
    assert times(cache) is None and not cache.path.exists()


def test_what_an_old_copy_wrote_over_comes_back_once_the_recent_folds_are_readable(
    tmp_path: Path,
) -> None:
    cache, _ = made(tmp_path)
    cache.insert([tuned(n=2)])
    old = cache.path.read_text()
    cache.insert([tuned("[b]")])
    cache.path.unlink()
    cache.path.write_text(old)
    kept = RecentFolds(tmp_path, cache.path).path
    away = kept.rename(kept.with_name("away"))
    kept.symlink_to(kept)  # ELOOP in place of EIO
    assert times(cache, "[b]") is None
    away.replace(kept)
    assert times(cache, "[b]") == tuned("[b]").timings


def test_a_corrupt_file_is_told_once_and_kept(tmp_path: Path) -> None:
    cache, said = made(tmp_path)
    cache.path.parent.mkdir(parents=True)
    cache.path.write_bytes(b'{"cache": {"mm": ')
    assert cache.view() == {}
    cache.insert([tuned()])
    assert times(cache) == {"c0": 1.0, "c1": 2.0, "c2": 3.0}
    assert cache.path.read_bytes() == b'{"cache": {"mm": '
    assert len(set(said)) == 1 and "is not JSON" in said[0] and "\n" not in said[0]
    cache.path.unlink()
    assert times(made(tmp_path)[0]) is not None
    assert in_file(tmp_path).keys() == {"[a]"}


def test_times_that_could_not_be_read_once_are_read_again(tmp_path: Path) -> None:
    made(tmp_path)[0].insert([tuned("[file]")])
    journal = Journal(tmp_path, tmp_path / "cache" / "s")
    journal.append(line_of(tuned("[journal]")))
    cache, said = made(tmp_path)
    with no_descriptors():
        assert cache.view() == {}
    assert times(cache, "[file]") and times(cache, "[journal]")
    assert "Too many open files" in said[0]
    journal.append(line_of(tuned("[later]")))
    with no_descriptors():
        assert times(cache, "[file]") and times(cache, "[later]") is None
    assert times(cache, "[later]")


@pytest.mark.parametrize(
    "cache", [{"mm": 3}, {"mm": {"[a]": []}}, {"mm": {"[a]": {"highest": {"c0": "x"}}}}]
)
def test_strange_values_are_misses(tmp_path: Path, cache: Any) -> None:
    found, _ = made(tmp_path)
    found.path.parent.mkdir(parents=True)
    found.path.write_text(json.dumps({"cache": cache}))
    assert not times(found)
    found.insert([tuned()])
    assert found.view()["mm"].get("[a]")["highest"] == {"c0": 1.0, "c1": 2.0, "c2": 3.0}


def test_nothing_is_folded_while_somebody_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(later, "QUIET_SECONDS", 0.0)
    cache, _ = made(tmp_path, 600)
    cache.view()
    with cache.measuring():
        cache.insert([tuned()])
        before = cache.path.read_bytes()
        time.sleep(0.3)
        assert cache.path.read_bytes() == before
    end = time.monotonic() + 60
    while "[a]" not in in_file(tmp_path) and time.monotonic() < end:
        time.sleep(0.05)
    assert "[a]" in in_file(tmp_path)


def test_a_torn_line_spoils_only_itself(tmp_path: Path) -> None:
    cache, _ = made(tmp_path, 600)
    cache.view()
    cache.insert([tuned("[a]")])
    journal = Journal(tmp_path, cache.path)
    with journal.path.open("ab") as stream:
        stream.write(line_of(tuned("[torn]"))[:-20])
    assert times(cache) and times(cache, "[torn]") is None
    cache.insert([tuned("[b]")])
    assert times(cache, "[b]") and times(cache, "[torn]") is None
    cache.fold()
    assert in_file(tmp_path).keys() >= {"[a]", "[b]"} and "[torn]" not in in_file(tmp_path)


def test_a_fold_undoes_no_pin(tmp_path: Path) -> None:
    cache, _ = made(tmp_path)
    cache.insert([tuned()])
    journal = Journal(tmp_path, cache.path)
    journal.append(line_of(tuned(ms=2.0)))
    PinStore(Layout(tmp_path)).pin("s", KEY, "c1")
    assert in_file(tmp_path)["[a]"] == {"c0": high(1.0), "c1": 2.0, "c2": high(3.0)}
    cache.fold()
    held = {"c0": high(2.0), "c1": 3.0, "c2": high(4.0)}
    assert in_file(tmp_path)["[a]"] == held
    # Tuned again after the pin was made: the new times count, and the pin goes on holding.
    journal.append(line_of(tuned(ms=4.0, when=time.time() + 1)))
    cache.fold()
    assert in_file(tmp_path)["[a]"] == {"c0": high(4.0), "c1": 5.0, "c2": high(6.0)}
    assert times(cache) == in_file(tmp_path)["[a]"]
    PinStore(Layout(tmp_path)).unpin(KEY)
    assert in_file(tmp_path)["[a]"] == {"c0": 4.0, "c1": 5.0, "c2": 6.0}


KILLED = """
import os, pathlib, signal, sys
from backend.cache import lookup as tuned_cache
from backend.disk import exchange
from backend.cache.lookup import TunedCache
from backend.cache.journal import Tuned
from backend.pins.holders import pinned_choices
left = int(sys.argv[2])
def counted(function):
    def call(*args, **kwargs):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)
    return call
path = pathlib.Path(sys.argv[1])
cache = TunedCache(path, {}, print, pinned_choices)
tuned_cache.atexit.register = lambda *_: None
cache.view()
for name in ("write", "link", "ftruncate", "fsync"):
    setattr(os, name, counted(getattr(os, name)))
for name in ("replace", "unlink"):
    setattr(pathlib.Path, name, counted(getattr(pathlib.Path, name)))
exchange.exchange = counted(exchange.exchange)
for i in range(3):
    cache.insert([Tuned("mm", f"[{i}]", "highest", {"c": i + 1.0}, 0.0)])
    sys.stdout.write(f"{i}\\n")
    sys.stdout.flush()
sys.stdout.write("done\\n")
"""


def test_killed_before_each_step_loses_nothing(tmp_path: Path) -> None:
    """SIGKILL before the n-th change of the disk, for each n."""
    for step in range(1, 200):
        root = tmp_path / str(step)
        path = root / "cache" / "s"
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(path), str(step)], capture_output=True, text=True
        )
        reported = done.stdout.split()
        if reported and reported[-1] == "done":
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        cache, said = made(root)
        for i in reported:
            assert times(cache, f"[{i}]") == {"c": float(i) + 1}, step
        cache.fold()
        assert not said and (not reported or in_file(root).keys() >= {f"[{i}]" for i in reported})
        cache.insert([tuned("[next]")])
        assert "[next]" in in_file(root)
    assert 25 < step < 199


WHILE_HELD = """
import fcntl, os, sys, threading, time
from pathlib import Path
from backend.cache.journal import Tuned
from backend.cache.lookup import TunedCache
root = Path(sys.argv[1])
lock = root / "rocm_tui" / "locks" / "tuned-s.lock"
lock.parent.mkdir(parents=True)
(held, holds), (free, frees) = os.pipe(), os.pipe()
if os.fork() == 0:
    fcntl.lockf(os.open(lock, os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)
    os.write(holds, b".")
    os.read(free, 1)
    time.sleep(float(sys.argv[2]))
    os._exit(0)
os.read(held, 1)
cache = TunedCache(root / "cache" / "s", {}, print, lambda path: {})
cache.insert([Tuned("mm", "[a]", "highest", {"c0": 1.0}, time.time())])
os.write(frees, b".")
"""


@pytest.mark.parametrize("seconds", [0.5, 6.0])
def test_times_that_a_busy_journal_refused_are_kept_at_the_end(
    seconds: float, tmp_path: Path
) -> None:
    """If it is free by then; else it is said that they are not."""
    done = subprocess.run(
        [sys.executable, "-c", WHILE_HELD, str(tmp_path), str(seconds)],
        capture_output=True,
        text=True,
        check=True,
    )
    why = "another process holds"
    last = f"new timings are not kept: {why}"
    first, *rest = done.stdout.splitlines()
    assert first.startswith(f"new timings are not kept yet: {why}") and done.stderr == ""
    if seconds < 1:
        assert rest == [] and in_file(tmp_path) == {"[a]": {"c0": 1.0}}
    else:
        assert [line[: len(last)] for line in rest] == [last]


def test_threads_and_forks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children are forked while threads insert and fold; nobody waits for a lost lock."""
    monkeypatch.setattr(later, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(tuned_cache, "PATIENCE_SECONDS", 60.0)
    cache, said = made(tmp_path, 600)

    def work(name: str) -> None:
        for i in range(8):
            cache.insert([tuned(f"[{name} {i}]")])
            cache.view()

    threads = [threading.Thread(target=work, args=(f"thread {n}",)) for n in range(2)]
    for thread in threads:
        thread.start()
    children = []
    for n in range(4):
        pid = os.fork()
        if pid == 0:
            try:
                work(f"child {n}")
                os._exit(0)
            finally:
                os._exit(1)
        children.append(pid)
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0
    for thread in threads:
        thread.join()
    cache.fold()
    assert len(in_file(tmp_path)) == 600 + 6 * 8 and not said


def test_a_fork_does_not_wait_for_a_fold_and_the_child_keeps_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuned_cache, "PATIENCE_SECONDS", 60.0)
    cache, said = made(tmp_path)
    cache.insert([tuned("[first]")])
    sync, syncing, goes_on = os.fsync, threading.Event(), threading.Event()

    def sync_slowly(descriptor: int) -> None:
        syncing.set()
        goes_on.wait(5)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", sync_slowly)
    thread = threading.Thread(target=cache.insert, args=([tuned("[thread]")],))
    thread.start()
    assert syncing.wait(60)
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            goes_on.set()
            cache.insert([tuned("[child]")])
            os._exit(os.read(reads, 1) != b"x")  # it lives on, as a worker of a data loader does
        finally:
            os._exit(1)
    unfinished = "[thread]" not in in_file(tmp_path)
    goes_on.set()
    thread.join(60)
    end = time.monotonic() + 10
    while "[child]" not in in_file(tmp_path) and time.monotonic() < end:
        time.sleep(0.01)
    cache.insert([tuned("[parent]")])
    os.write(writes, b"x")
    assert os.waitpid(child, 0)[1] == 0
    assert unfinished
    assert in_file(tmp_path).keys() == {"[first]", "[thread]", "[child]", "[parent]"} and not said


@settings(max_examples=20)
@given(st.lists(st.tuples(st.sampled_from("abc"), TIMES, st.booleans()), min_size=1, max_size=12))
def test_index_and_file_agree(steps: list[tuple[str, float, bool]]) -> None:
    """Whatever the order of inserts and folds: two indexes and the file say the same."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        first, _ = made(root)
        second, _ = made(root)
        journal = Journal(root, first.path)
        for inputs, ms, folded in steps:
            journal.append(line_of(Tuned("mm", inputs, "highest", {f"c{ms}": ms}, 0.0)))
            if folded:
                fold(root, first.path, SYSTEM, pinned_choices)
            assert times(first, inputs) is not None
        fold(root, first.path, SYSTEM, pinned_choices)
        for inputs, _, _ in steps:
            found = repr(in_file(root)[inputs])
            assert repr(times(first, inputs)) == repr(times(second, inputs)) == found


def test_a_delayed_action_waits_for_a_quiet_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later, "QUIET_SECONDS", 0.2)
    calls: list[float] = []
    action = later.DelayedAction(lambda: calls.append(time.monotonic()))
    begun = time.monotonic()
    action.call()
    end = begun + 60
    while not calls and time.monotonic() < end:
        time.sleep(0.01)
    (called,) = calls
    assert called >= begun + 0.2


def test_a_forked_child_acts_although_its_parent_waits_or_measures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that waits exists in the parent alone."""
    calls: list[int] = []
    action = later.DelayedAction(lambda: calls.append(os.getpid()))
    with action.held():
        action.call()
        child = os.fork()
        if not child:
            later.QUIET_SECONDS = 0.0
            action.call()
            end = time.monotonic() + 30
            while not calls and time.monotonic() < end:
                time.sleep(0.01)
            os._exit(calls != [os.getpid()])
        assert os.waitpid(child, 0)[1] == 0
    assert not calls


AT_EXIT = """
import pathlib, sys, time
from backend.cache.lookup import TunedCache
from backend.cache.journal import Tuned
from backend.pins.holders import pinned_choices
cache = TunedCache(pathlib.Path(sys.argv[1]), {}, print, pinned_choices)
cache.insert([Tuned("mm", "[a]", "highest", {"c0": 1.0}, time.time())])
cache.insert([])
print("[a]" in pathlib.Path(sys.argv[1]).read_text())
"""


def test_a_program_that_ends_folds_what_is_in_the_journal(tmp_path: Path) -> None:
    cache, _ = made(tmp_path, 600)
    words = [sys.executable, "-c", AT_EXIT, str(cache.path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n", "not while it runs, since the file is big"
    assert in_file(tmp_path)["[a]"] == {"c0": 1.0}


FULL_ONCE = """
import pathlib, resource, sys, time
from backend.cache.lookup import TunedCache
from backend.cache.journal import Tuned
from backend.pins.holders import pinned_choices
cache = TunedCache(pathlib.Path(sys.argv[1]), {}, print, pinned_choices)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))  # as on a full disk
cache.insert([Tuned("mm", "[a]", "highest", {"c0": 1.0}, time.time())])
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
"""


def test_what_could_not_be_written_is_written_at_the_end(tmp_path: Path) -> None:
    words = [sys.executable, "-c", FULL_ONCE, str(tmp_path / "cache" / "s")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("new timings are not kept: "), done.stdout
    assert in_file(tmp_path)["[a]"] == {"c0": 1.0}
