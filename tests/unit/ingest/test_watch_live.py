"""Sources followed live, by inotify and by polling: files that come, go, move and are torn."""

from __future__ import annotations

import errno
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend.model.events import ChoiceTimed, SessionStarted
from backend.model.session import Session
from backend.wire.events import encode
from rocm_tui.ingest.follow import watcher
from rocm_tui.ingest.follow.sources import SourceSet
from rocm_tui.ingest.follow.watcher import Watcher, is_remote
from rocm_tui.ingest.records import Record, SourceStatus
from tests.support.descriptors import open_descriptors
from tests.support.format_lab import KEY, STARTED, cache_text, lines
from tests.support.log_lab import BMM, MM
from tests.support.watch_lab import HASH, View

# Live


class Live:
    """A watcher whose records end up in a view."""

    def __init__(self, paths: list[Path | str], **options: object) -> None:
        self.view = View()
        self._news = threading.Condition()
        self.watcher = Watcher([str(path) for path in paths], self._sink, **options)  # type: ignore[arg-type]

    def _sink(self, records: list[Record]) -> None:
        with self._news:
            self.view.apply(records)
            self._news.notify_all()

    def until(self, holds: Callable[[View], bool], seconds: float = 60.0) -> None:
        with self._news:
            assert self._news.wait_for(lambda: holds(self.view), seconds), (
                self.view.tunings,
                self.view.problems,
            )

    def status(self, path: Path) -> SourceStatus:
        return next(s for s in self.watcher.sources() if s.path == str(path))

    def wait_for_state(self, path: Path, state: str) -> SourceStatus:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = [s for s in self.watcher.sources() if s.path == str(path) and s.state == state]
            if found:
                return found[0]
            time.sleep(0.005)
        raise AssertionError(self.watcher.sources())


@pytest.fixture(params=["inotify", "polling"])
def live(request: pytest.FixtureRequest) -> Iterator[Callable[..., Live]]:
    """Makes live views; afterwards no thread and no descriptor is left of them."""
    before = set(threading.enumerate())
    made: list[Live] = []

    def make(*paths: Path | str) -> Live:
        found = Live(list(paths), polling=request.param == "polling", interval=0.02)
        made.append(found)
        found.watcher.start()
        return found

    yield make
    for found in made:
        deadline = time.monotonic() + 60
        while (by := {s.watched_by for s in found.watcher.sources()}) != {request.param}:
            assert time.monotonic() < deadline, by
            time.sleep(0.01)
        found.watcher.stop()
        found.watcher.stop()
        assert by == {request.param}
    assert not [t for t in threading.enumerate() if t not in before and t.name != "x"]


def append(path: Path, text: str) -> None:
    with path.open("a") as log:
        log.write(text)


def test_live_appends(tmp_path: Path, live: Callable[..., Live]) -> None:
    path = tmp_path / "a.log"
    path.write_text(MM)
    found = live(path)
    found.until(lambda view: view.ops == ["mm"])
    append(path, BMM[:60])
    append(path, BMM[60:])
    found.until(lambda view: view.ops == ["mm", "bmm"])
    found.until(lambda view: all(t.state == "done" for t in view.tunings.values()))
    status = found.status(path)
    assert (status.format, status.state) == ("stderr log", "following")
    assert status.read == status.size == len(MM) + len(BMM)


def test_live_late_and_rotated(tmp_path: Path, live: Callable[..., Live]) -> None:
    path = tmp_path / "not" / "yet" / "a.log"
    found = live(path)
    found.wait_for_state(path, "waiting")
    path.parent.mkdir(parents=True)
    append(path, MM)
    found.until(lambda view: view.ops == ["mm"])
    path.rename(path.with_suffix(".1"))
    append(path, BMM)
    found.until(lambda view: view.ops == ["bmm"])
    path.unlink()
    found.until(lambda view: view.ops == [])
    assert not found.view.problems


def test_live_cache_dir(tmp_path: Path, live: Callable[..., Live]) -> None:
    cache_dir = tmp_path / "inductor"
    found = live(cache_dir)
    found.wait_for_state(cache_dir, "waiting")
    (cache_dir / "cache").mkdir(parents=True)
    temporary = cache_dir / "cache" / ".1.tmp"
    temporary.write_bytes(cache_text({"mm": {KEY: {"high": {"a": 1.0}}}}))
    temporary.replace(cache_dir / "cache" / HASH)
    found.until(lambda view: view.ops == ["mm"])
    sessions = cache_dir / "rocm_tui" / "sessions"
    sessions.mkdir(parents=True)
    log = sessions / "s.jsonl"
    log.write_bytes(lines(SessionStarted(Session("s1")), STARTED))
    found.until(lambda view: len(view.tunings) == 2)
    append(log, encode(ChoiceTimed(1, "a-h", 0.5)) + "\n")
    found.until(lambda view: any(t.timed == 1 for t in view.tunings.values()))
    temporary.write_bytes(cache_text({"mm": {KEY: {"high": {"a": 2.0}}}}))
    temporary.replace(cache_dir / "cache" / HASH)
    found.until(lambda view: any(c.ms == 2.0 for t in view.tunings.values() for c in t.choices))
    assert not found.view.problems


def _names(view: View) -> list[str]:
    return sorted(uid.rpartition("/")[2] for uid in view.tunings)


def test_live_folder_of_logs(tmp_path: Path, live: Callable[..., Live]) -> None:
    (tmp_path / "a.log").write_text(MM)
    found = live(tmp_path)
    found.until(lambda view: view.ops == ["mm"])
    (tmp_path / "readme.md").write_text(MM)
    (tmp_path / "b.log").write_text(BMM)
    found.until(lambda view: sorted(view.ops) == ["bmm", "mm"])
    (tmp_path / "a.log").unlink()
    found.until(lambda view: view.ops == ["bmm"])
    found.wait_for_state(tmp_path / "b.log", "following")
    append(tmp_path / "a.log", MM)
    found.until(lambda view: sorted(view.ops) == ["bmm", "mm"])
    (tmp_path / "b.log").rename(tmp_path / "c.log")
    found.until(lambda view: _names(view) == ["a.log#1", "c.log#1"])


def test_live_symlink(tmp_path: Path, live: Callable[..., Live]) -> None:
    (tmp_path / "real").mkdir()
    target = tmp_path / "real" / "run1.log"
    target.write_text(MM)
    link = tmp_path / "latest.log"
    link.symlink_to(target)
    found = live(link)
    found.until(lambda view: view.ops == ["mm"])
    append(target, BMM)
    found.until(lambda view: view.ops == ["mm", "bmm"])


def test_live_permission(tmp_path: Path, live: Callable[..., Live]) -> None:
    path = tmp_path / "a.log"
    path.mkdir()
    (path / "inner.log").write_text(MM)
    found = live(path, tmp_path / "other.log")
    found.until(lambda view: view.ops == ["mm"])
    (path / "inner.log").unlink()
    path.rmdir()
    path.write_text(BMM)
    found.until(lambda view: view.ops == ["bmm"])


def test_relative_paths_keep_their_names(
    tmp_path: Path, live: Callable[..., Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.log").write_text(MM)
    found = live("a.log")
    found.until(lambda view: list(view.tunings) == ["a.log#1"])
    append(Path("a.log"), BMM)
    found.until(lambda view: list(view.tunings) == ["a.log#1", "a.log#2"])


def test_all_that_is_there_is_told_before_it_counts_as_all(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(MM)
    told: list[list[str]] = []
    found = Live([tmp_path], settled=lambda: told.append(list(found.view.ops)))
    found.watcher.start()
    try:
        found.until(lambda view: bool(view.ops))
        found.wait_for_state(tmp_path / "a.log", "following")
    finally:
        found.watcher.stop()
    assert told == [["mm"]]


def test_what_a_finished_log_got_last_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "SWEEP", 1e6)
    path = tmp_path / "a.log"
    path.write_text(MM)
    descriptors = open_descriptors()
    found = Live([path], polling=True, interval=1e6)
    found.watcher.start()
    found.until(lambda view: view.ops == ["mm"])
    thread = found.watcher._thread
    assert thread is not None
    append(path, BMM)
    found.watcher.finish()
    found.watcher.finish()
    thread.join(60)
    assert found.view.ops == ["mm", "bmm"]
    assert open_descriptors() == descriptors
    found.watcher._wake()  # as watchdog may do late


def test_a_cut_table_is_told_without_another_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "SWEEP", 1e6)  # it is looked at when it is due, and not then
    path = tmp_path / "a.log"
    path.write_text(MM.rpartition("SingleProcess")[0])
    found = Live([path])
    found.watcher.start()
    try:
        found.until(lambda view: any(t.state == "cut" for t in view.tunings.values()))
    finally:
        found.watcher.stop()


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text(MM)
    counts = []
    for _ in range(3):
        found = Live([path, tmp_path])
        found.watcher.start()
        found.until(lambda view: view.ops == ["mm"])
        found.watcher.stop()
        counts.append(open_descriptors())
    assert counts[0] == counts[1] == counts[2]


class _TooMany(OSError):
    def __init__(self) -> None:
        super().__init__(errno.ENOSPC, "inotify watch limit reached")


@pytest.mark.parametrize(
    ("method", "error"),
    [("schedule", _TooMany), ("schedule", RuntimeError), ("start", RuntimeError)],
)
def test_watch_limits_fall_back_to_polling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, error: type[Exception]
) -> None:
    threads = set(threading.enumerate())

    def full(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(watcher.Observer, method, full)
    path = tmp_path / "a.log"
    path.write_text(MM)
    found = Live([path], interval=0.02)
    found.watcher.start()
    try:
        found.until(lambda view: view.ops == ["mm"])
        append(path, BMM)
        found.until(lambda view: view.ops == ["mm", "bmm"])
        assert found.status(path).watched_by == "polling"
    finally:
        found.watcher.stop()
    assert set(threading.enumerate()) <= threads


def test_a_change_that_was_not_reported_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher.FolderEvents, "take", lambda _: set())
    path = tmp_path / "a.log"
    path.write_text(MM)
    found = Live([path, tmp_path])
    found.watcher.start()
    try:
        found.until(lambda view: view.ops == ["mm"])
        append(path, BMM)
        found.until(lambda view: view.ops == ["mm", "bmm"])
        assert found.status(path).watched_by == "inotify"
        (tmp_path / "b.log").write_text(MM)
        found.until(lambda view: sorted(view.ops) == ["bmm", "mm", "mm"])
    finally:
        found.watcher.stop()


def test_live_standard_input() -> None:
    code = (
        "import sys, threading\n"
        "from rocm_tui.ingest.follow.watcher import Watcher\n"
        "done = threading.Event()\n"
        "def sink(batch):\n"
        "    for r in batch: print(type(r).__name__, r.tuning.state, flush=True)\n"
        "    done.set()\n"
        "w = Watcher(['-'], sink); w.start()\n"
        "done.wait(); w.stop(); print('stopped')\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(MM)
    child.stdin.flush()
    assert child.stdout.readline() == "Seen done\n"  # before standard input ends
    assert child.stdout.readline() == "stopped\n"
    child.stdin.close()
    assert child.wait(60) == 0


def test_file_systems_where_inotify_is_blind() -> None:
    mounts = [
        ("/", "ext4"),
        ("/home", "nfs4"),
        ("/home/local", "xfs"),
        ("/scratch x", "lustre"),
        ("/mnt", "fuse.sshfs"),
    ]
    assert is_remote("/mnt/a", mounts)
    assert is_remote("/home/me/a.log", mounts)
    assert is_remote("/scratch x/a", mounts)
    assert not is_remote("/home/local/a", mounts)
    assert not is_remote("/homes", mounts)


def test_reading_once_loads_neither_torch_nor_what_watches() -> None:
    code = (
        "import sys, rocm_tui.ingest.follow.sources\n"
        "print([m for m in ('torch', 'watchdog', 'textual', 'asyncio') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_the_watching_library_logs_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger("watchdog.observers").warning("Event queue overflow")
    assert capsys.readouterr() == ("", "")


def test_polling_rests_between_two_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    enough = threading.Event()
    find = SourceSet.find

    def counted(self: SourceSet) -> list[Record]:
        looks.append(time.monotonic())
        if len(looks) >= 12:
            enough.set()
        return find(self)

    monkeypatch.setattr(SourceSet, "find", counted)
    (tmp_path / "a.log").write_text(MM)
    found = Live([tmp_path], polling=True, interval=0.2)
    found.watcher.start()
    assert enough.wait(60)
    found.watcher.stop()
    assert looks[11] - looks[0] >= 5 * 0.19  # some are those of the start, without a rest
