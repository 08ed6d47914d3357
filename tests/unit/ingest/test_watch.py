"""Following files and folders: appends, truncation, rotation, replacement, late ones, failures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend.model.session import ChoiceTimed, Fault, Session, SessionStarted, TuningStarted
from backend.model.tuning import Tuning
from backend.wire.events import encode
from rocm_tui.ingest.follow.notify import is_remote
from rocm_tui.ingest.follow.tailer import HALF_WRITTEN, Tailer
from rocm_tui.ingest.follow.watcher import Watcher, read_sources
from rocm_tui.ingest.formats.stderr_log import BIG
from rocm_tui.ingest.records import Dropped, Gone, Record, Seen, SourceStatus
from tests.support.format_lab import KEY, STARTED, cache_text, lines
from tests.support.log_lab import BMM, MM
from tests.support.watch_lab import HASH


class View:
    """What someone who applies all records in order has in the end."""

    def __init__(self) -> None:
        self.tunings: dict[str, Tuning] = {}
        self.problems: list[Fault] = []
        self.batches: list[list[Record]] = []

    def apply(self, records: list[Record]) -> None:
        self.batches.append(records)
        for record in records:
            if isinstance(record, Seen):
                self.tunings[record.uid] = record.tuning
            elif isinstance(record, Dropped):
                self.tunings.pop(record.uid)
            elif isinstance(record, Gone):
                for uid in [u for u in self.tunings if u.rpartition("#")[0] == record.source]:
                    del self.tunings[uid]
                self.problems = [p for p in self.problems if p.source != record.source]
            elif isinstance(record, Fault):
                self.problems.append(record)

    @property
    def ops(self) -> list[str]:
        return [tuning.op for tuning in self.tunings.values()]


# One file, without threads


def test_appends_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    tailer, view = Tailer(str(path)), View()
    view.apply(tailer.poll())
    assert tailer.state == "waiting"
    text = "start\n" + MM + BMM
    with path.open("a") as log:
        for at in range(0, len(text), 37):
            log.write(text[at : at + 37])
            log.flush()
            view.apply(tailer.poll())
    assert view.ops == ["mm", "bmm"]
    assert [t.state for t in view.tunings.values()] == ["done", "done"]
    assert not any(isinstance(r, Gone) for batch in view.batches for r in batch)
    assert (tailer.read, tailer.size, tailer.format) == (len(text), len(text), "stderr log")
    assert tailer.poll() == []


@pytest.mark.parametrize("how", ["truncate", "replace", "delete", "rewrite longer", "copytruncate"])
def test_another_content(tmp_path: Path, how: str) -> None:
    path = tmp_path / "a.log"
    path.write_text(MM)
    tailer, view = Tailer(str(path)), View()
    view.apply(tailer.poll())
    if how == "truncate":
        path.write_text(BMM[: len(BMM) // 2])
        view.apply(tailer.poll())
        with path.open("a") as log:
            log.write(BMM[len(BMM) // 2 :])
    elif how == "replace":
        other = tmp_path / "b"
        other.write_text(BMM)
        other.replace(path)
    elif how == "delete":
        path.unlink()
        view.apply(tailer.poll())
        assert (view.ops, tailer.state) == ([], "waiting")
        path.write_text(BMM)
    elif how == "rewrite longer":
        path.write_text("x" * len(MM) + "\n" + BMM)
    else:
        os.truncate(path, 0)
        view.apply(tailer.poll())
        assert view.ops == []
        with path.open("a") as log:
            log.write(BMM)
    view.apply(tailer.poll())
    assert view.ops == ["bmm"]
    (tuning,) = view.tunings.values()
    assert tuning.state == "done"


def test_an_open_table_is_cut_off_after_a_while(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text(MM.rpartition("SingleProcess")[0])
    tailer, view = Tailer(str(path)), View()
    view.apply(tailer.poll(now=100.0))
    assert [t.state for t in view.tunings.values()] == ["running"]
    assert tailer.poll(now=100.5) == []
    view.apply(tailer.poll(now=101.5))
    assert [t.state for t in view.tunings.values()] == ["cut"]
    assert tailer.retry_at is None
    with path.open("a") as log:
        log.write(MM.rpartition("dtypes")[2][30:].splitlines()[-1] + "\n")
    view.apply(tailer.poll(now=102.0))
    assert [t.state for t in view.tunings.values()] == ["done"]


def test_half_a_document_is_no_problem_until_it_stays_broken(tmp_path: Path) -> None:
    entries = [
        {f"({n}, 2, 3)": [{"type": "cublas", "time": n}], "kernel_type": "mm"} for n in (1, 2)
    ]
    path = tmp_path / "mm.json"
    path.write_text(json.dumps(entries[:1], indent=4))
    tailer, view = Tailer(str(path)), View()
    view.apply(tailer.poll(now=10.0))
    assert len(view.tunings) == 1
    text = json.dumps(entries, indent=4)
    path.write_text(text[:-40])
    view.apply(tailer.poll(now=20.0))
    assert (len(view.tunings), view.problems) == (1, [])
    path.write_text(text)
    view.apply(tailer.poll(now=20.5))
    assert (len(view.tunings), view.problems) == (2, [])
    assert [len(batch) for batch in view.batches] == [1, 0, 1]  # only what changed
    path.write_text(text[:-50])
    view.apply(tailer.poll(now=30.0))
    assert tailer.retry_at == 30.0 + HALF_WRITTEN
    for now in (31.5, 33.0):
        view.apply(tailer.poll(now=now))
    assert (len(view.tunings), len(view.problems)) == (2, 1)
    path.write_text(text)
    view.apply(tailer.poll(now=40.0))
    assert (len(view.tunings), view.problems) == (2, [])


def test_a_cache_file_tells_only_what_changed(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    path = tmp_path / "cache" / HASH
    both = {"mm": {KEY: {"highest": {"a": 1.0}}}, "bmm": {KEY: {"highest": {"a": 1.0}}}}
    path.write_bytes(cache_text(both))
    tailer, view = Tailer(str(path), "autotune cache"), View()
    view.apply(tailer.poll())
    both["mm"][KEY]["highest"]["b"] = 0.5
    path.write_bytes(cache_text(both))
    view.apply(tailer.poll())
    (record,) = view.batches[-1]
    assert isinstance(record, Seen) and len(record.tuning.choices) == 2
    del both["bmm"]
    path.write_bytes(cache_text(both))
    view.apply(tailer.poll())
    assert [type(record) for record in view.batches[-1]] == [Dropped]
    path.unlink()
    view.apply(tailer.poll())
    assert view.tunings == {}


def test_what_cannot_be_read_is_told_once_and_forgotten_when_it_can(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.mkdir()
    tailer, view = Tailer(str(path)), View()
    for _ in range(3):
        view.apply(tailer.poll())
    assert [p.what for p in view.problems] == ["cannot read it: not a regular file"]
    assert tailer.state == "unreadable"
    path.rmdir()
    path.write_text(MM)
    view.apply(tailer.poll())
    assert (view.ops, view.problems, tailer.problems) == (["mm"], [], 0)


def test_a_fifo_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (problem,) = read_sources([str(tmp_path / "pipe")])
    assert isinstance(problem, Fault)


def test_a_big_log_is_scanned_and_then_followed(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text(MM + "step of a training loop\n" * (BIG // 24 + 10))
    tailer, view = Tailer(str(path)), View()
    view.apply(tailer.poll())
    with path.open("a") as log:
        log.write(BMM + "AUTOTUNE mm(1x2, 2x3)\n")
    view.apply(tailer.poll())
    assert view.ops == ["mm", "bmm"]
    view.apply(tailer.close())
    number = path.read_text().count("\n")
    assert [p.line for p in view.problems] == [number]


# Reading once


def test_read_sources_of_all_kinds(tmp_path: Path) -> None:
    cache_dir = tmp_path / "inductor"
    sessions = cache_dir / "rocm_tui" / "sessions"
    sessions.mkdir(parents=True)
    (cache_dir / "cache").mkdir()
    (cache_dir / "cache" / HASH).write_bytes(cache_text({"mm": {KEY: {"high": {"a": 1.0}}}}))
    (cache_dir / "cache" / ".1.2.tmp").write_text("{")
    (sessions / "s.jsonl").write_bytes(lines(SessionStarted(Session("s")), STARTED))
    (cache_dir / "ab").mkdir()
    (cache_dir / "ab" / "x.log").write_text(BMM)
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "run.log").write_text(BMM)
    (logs / "notes.md").write_text(MM)
    (logs / "data.json").write_text('{"a": 1}')
    (logs / "blob.log").write_bytes(b"\0\1\2" * 100)
    (logs / "tunableop_results0.csv").write_text("Validator,PT_VERSION,2.4.0\n")
    missing = str(tmp_path / "none.log")
    view = View()
    view.apply(read_sources([str(cache_dir), str(logs), missing, str(logs / "notes.md")]))
    assert sorted(view.ops) == ["bmm", "mm", "mm", "mm"]
    assert [(Path(p.source).name, p.what) for p in view.problems] == [
        ("tunableop_results0.csv", "TunableOp results are not supported yet"),
        ("none.log", "no such file or folder"),
    ]


def test_a_corrupt_cache_file_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / HASH).write_text("not json \x1b[2J")
    for path in (tmp_path, tmp_path / "cache" / HASH):
        (problem,) = read_sources([str(path)])
        assert isinstance(problem, Fault)
        assert HASH in problem.what and "\x1b" not in problem.what and "\n" not in problem.what


def test_binary_is_one_problem(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(os.urandom(5000) + b"\0")
    (problem,) = read_sources([str(tmp_path / "a.bin")])
    assert isinstance(problem, Fault) and "not a text file" in problem.what


@pytest.mark.parametrize("piped", ["table", "cache", "nothing"])
def test_standard_input(tmp_path: Path, piped: str) -> None:
    text = {
        "table": MM,
        "cache": cache_text({"bmm": {KEY: {"p": {"a": 1.0}}}}).decode(),
        "nothing": "",
    }
    code = (
        "from rocm_tui.ingest.follow.watcher import read_sources\n"
        "print([getattr(r, 'uid', r) for r in read_sources(['-'])])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=text[piped], capture_output=True, text=True, check=True
    )
    found = {"table": "['-#1']", "nothing": "[]"}
    assert done.stdout.strip() == found.get(piped, done.stdout.strip())
    assert piped != "cache" or done.stdout.startswith("['-#")


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

    def until(self, holds: Callable[[View], bool], seconds: float = 20.0) -> None:
        with self._news:
            assert self._news.wait_for(lambda: holds(self.view), seconds), (
                self.view.tunings,
                self.view.problems,
            )

    def status(self, path: Path) -> SourceStatus:
        return next(s for s in self.watcher.sources() if s.path == str(path))

    def wait_for_state(self, path: Path, state: str) -> SourceStatus:
        deadline = time.monotonic() + 20
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
        by = {s.watched_by for s in found.watcher.sources()}
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


def test_a_cut_table_is_told_without_another_write(tmp_path: Path) -> None:
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
        counts.append(len(list(Path("/proc/self/fd").iterdir())))
    assert counts[0] == counts[1] == counts[2]


def test_watch_limits_fall_back_to_polling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from watchdog.observers.api import BaseObserver

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "inotify watch limit reached")

    monkeypatch.setattr(BaseObserver, "schedule", full)
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


def test_live_standard_input() -> None:
    code = (
        "import sys, threading\n"
        "from rocm_tui.ingest.follow.watcher import Watcher\n"
        "done = threading.Event()\n"
        "def sink(batch):\n"
        "    for r in batch: print(type(r).__name__, r.tuning.state, flush=True)\n"
        "w = Watcher(['-'], sink); w.start()\n"
        "done.wait(2); w.stop(); print('stopped')\n"
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
    assert child.wait(20) == 0


def test_file_systems_where_inotify_is_blind() -> None:
    mountinfo = (
        "1 0 8:1 / / rw - ext4 /dev/root rw\n"
        "2 1 0:5 / /home rw shared:1 - nfs4 server:/home rw\n"
        "3 1 0:6 / /home/local rw - xfs /dev/sdb rw\n"
        "4 1 0:7 / /scratch\\040x rw - lustre mds rw\n"
        "bad line\n"
    )
    assert is_remote("/home/me/a.log", mountinfo)
    assert is_remote("/scratch x/a", mountinfo)
    assert not is_remote("/home/local/a", mountinfo)
    assert not is_remote("/homes", mountinfo)


def test_the_package_needs_neither_torch_nor_watchdog_to_be_imported() -> None:
    code = (
        "import sys, rocm_tui.ingest.follow.watcher\n"
        "print([m for m in ('torch', 'watchdog', 'textual', 'asyncio') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_events_of_a_started_tuning_survive_a_torn_line_live(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    data = lines(SessionStarted(Session("s")), STARTED)
    tailer, view = Tailer(str(path), "event log"), View()
    with path.open("ab") as log:
        for byte in range(0, len(data), 11):
            log.write(data[byte : byte + 11])
            log.flush()
            view.apply(tailer.poll())
    assert [t.state for t in view.tunings.values()] == ["running"]
    assert isinstance(STARTED, TuningStarted) and not view.problems
