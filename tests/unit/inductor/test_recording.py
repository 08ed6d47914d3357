"""The event log of a hooked process, as far as it is written without Inductor."""

from __future__ import annotations

import fcntl
import os
import re
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.disk.sessions import read_log
from backend.inductor.hooks import environment, recording
from backend.inductor.hooks.environment import CacheDirs
from backend.inductor.hooks.recording import Recorder, record_unhooked, session_id, write_alone
from backend.model.events import (
    ActivityChanged,
    BenchmarkStarted,
    Event,
    HooksOff,
    SessionEnded,
    SessionStarted,
)
from backend.model.session import Session


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(recording, "home", CacheDirs(tmp_path))
    monkeypatch.setattr(recording.atexit, "register", lambda *_: None)
    for name in ("RANK", "LOCAL_RANK", environment.RUN):
        monkeypatch.delenv(name, raising=False)
    return Layout(tmp_path)


def assert_ended(layout: Layout) -> None:
    """A reader sees that nothing more may follow: nobody holds the lock."""
    for path in layout.sessions.glob("*.jsonl"):
        with path.open() as log:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)


def logs(layout: Layout) -> list[list[Event]]:
    return [read_log(path)[0] for path in sorted(layout.sessions.glob("*.jsonl"))]


def test_the_first_event_opens_the_session(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.RUN, f'{{"run": "run7", "pid": "{os.getppid()}"}}')
    monkeypatch.setenv("RANK", "3")
    recorder, begun = Recorder(), time.time()
    recorder.write(BenchmarkStarted(1, 1.0))
    assert recorder.session is None and logs(layout) == []
    recorder.begin(ActivityChanged(2.0, "running"))
    recorder.begin(ActivityChanged(3.0, "compiling"))
    recorder.write(BenchmarkStarted(1, 4.0))
    (events,) = logs(layout)
    start, *rest = events
    assert isinstance(start, SessionStarted)
    session = start.session
    assert session == recorder.session
    assert session.id == f"run7-{os.getpid()}" and session.rank == 3
    assert (session.pid, session.host, session.locked) == (os.getpid(), os.uname().nodename, True)
    assert session.cache_dir == str(layout.root) and session.argv == tuple(sys.orig_argv)
    assert session.python == ".".join(map(str, sys.version_info[:3]))
    assert begun <= session.started <= time.time() and session.process
    assert rest == [
        ActivityChanged(2.0, "running"),
        ActivityChanged(3.0, "compiling"),
        BenchmarkStarted(1, 4.0),
    ]


def test_tunings_outside_of_inductor_are_numbered_from_1(layout: Layout) -> None:
    recorder = Recorder()
    assert [recorder.next_of_triton() for _ in range(3)] == [1, 2, 3]
    (events,) = logs(layout)
    assert len(events) == 1


def test_the_end_is_written_once_after_the_last_words(layout: Layout) -> None:
    recorder = Recorder()
    recorder.begin(ActivityChanged(1.0, "running"))
    recorder.before_end(lambda: [][0])
    recorder.before_end(lambda: recorder.write(BenchmarkStarted(1, 2.0)))
    recorder.end_in(os.getpid() + 1)
    assert len(logs(layout)[0]) == 2, "that is another process"
    for _ in range(2):
        recorder.end_in(os.getpid())
    *_, last, end = logs(layout)[0]
    assert last == BenchmarkStarted(1, 2.0)
    assert isinstance(end, SessionEnded) and abs(end.when - time.time()) < 60
    assert_ended(layout)
    Recorder().end_in(os.getpid())
    assert len(logs(layout)) == 1, "without a session there is no end"


def test_the_end_is_registered_once(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[tuple[object, ...]] = []
    monkeypatch.setattr(recording.atexit, "register", lambda *args: registered.append(args))
    recorder = Recorder()
    for _ in range(2):
        recorder.begin(ActivityChanged(1.0, "running"))
    assert registered == [(recorder.end_in, os.getpid())]


def test_others_see_whether_a_thread_writes(layout: Layout) -> None:
    recorder = Recorder()
    assert not recorder.busy()
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        leave.wait(60)

    recorder.before_end(hold)
    monitor = threading.Thread(target=lambda: _locked(recorder, hold))
    monitor.start()
    assert entered.wait(60) and recorder.busy()
    leave.set()
    monitor.join()
    assert not recorder.busy()


def _locked(recorder: Recorder, hold: object) -> None:
    with recorder._lock:
        hold()  # type: ignore[operator]


def test_a_forked_child_has_a_session_of_its_own_or_none(layout: Layout) -> None:
    recorder = Recorder()
    assert recorder.next_of_triton() == 1
    for writes in (False, True):
        child = os.fork()
        if child == 0:
            code = 0 if recorder.session is None else 1
            if writes and recorder.next_of_triton() != 1:
                code = 2
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
    assert recorder.next_of_triton() == 2
    assert len({events[0].session.pid for events in logs(layout)}) == 2  # type: ignore[union-attr]


def test_a_full_disk_is_one_line(
    layout: Layout, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    layout.home.mkdir()
    layout.sessions.write_text("no folder")
    recorder = Recorder()
    for _ in range(3):
        recorder.begin(ActivityChanged(1.0, "running"))
    assert capfd.readouterr().err.count("no more is recorded") == 1


def test_hooks_that_are_off_are_a_session_with_the_reason(layout: Layout) -> None:
    record_unhooked("too old")
    (events,) = logs(layout)
    start, off = events
    assert isinstance(start, SessionStarted) and isinstance(off, HooksOff)
    assert off.reason == "too old" and abs(off.when - time.time()) < 60
    assert_ended(layout)


@pytest.mark.parametrize("begun", [True, False])
def test_hooks_that_step_aside_say_so_in_the_session(layout: Layout, begun: bool) -> None:
    recorder = Recorder()
    if begun:
        recorder.begin(ActivityChanged(1.0, "running"))
    recorder._stepped_aside("they failed")
    (events,) = logs(layout)
    off = events[-1]
    assert isinstance(off, HooksOff) and off.reason == "they failed"
    assert abs(off.when - time.time()) < 60 and len(events) == 2 + begun


def test_a_session_of_one_event_has_an_end(layout: Layout, tmp_path: Path) -> None:
    from backend.disk.sessions import EventWriter

    session = Session("s1", host="h", pid=1, started=1.0)
    assert write_alone(EventWriter(layout, session), BenchmarkStarted(1, 2.0)) == ""
    (events,) = logs(layout)
    assert isinstance(events[-1], SessionEnded) and BenchmarkStarted(1, 2.0) in events
    assert_ended(layout)
    gone = Layout(tmp_path / "file")
    gone.root.write_text("no folder")
    said = write_alone(EventWriter(gone, session), BenchmarkStarted(1, 2.0))
    assert "kept nowhere" in said and "\n" not in said


def test_an_id_begins_with_its_run(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the run's own child it is the one that the run itself gave it; two hosts or containers of
    a run may have other processes of one pid."""
    monkeypatch.setenv(environment.RUN, f'{{"pid": "{os.getppid()}"}}')
    assert session_id("run7") == f"run7-{os.getpid()}"
    monkeypatch.setenv(environment.RUN, '{"pid": "0"}')
    assert re.fullmatch(rf"run7\.[0-9a-f]{{8}}-{os.getpid()}", session_id("run7"))
    assert session_id("run7") != session_id("run7")
    assert len(session_id("")) == 16 and session_id("") != session_id("")


def test_a_session_is_described_once_inductor_is_there(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = Session(
        "s1", host="h", pid=1, cache_dir=str(layout.root), device="cpu", started=9.0
    )
    calls: list[int] = []
    monkeypatch.setattr(recording, "_hooked_session", lambda: calls.append(1) or described)
    recorder = Recorder()
    assert [recorder.next_number(), recorder.next_graph(), recorder.next_number()] == [1, 1, 2]
    ((start,),) = logs(layout)
    assert start == SessionStarted(described) and len(calls) == 1


def test_a_session_is_recorded_where_the_device_does_not_answer(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As in a fork of a process that has used CUDA."""

    def refuse() -> Session:
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")

    monkeypatch.setattr(recording, "_hooked_session", refuse)
    recorder = Recorder()
    assert [recorder.next_graph(), recorder.next_number()] == [1, 1]
    ((start,),) = logs(layout)
    assert isinstance(start, SessionStarted) and start.session.device is None
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("moved", [False, True])
def test_what_is_known_of_a_session_early_is_completed(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, moved: bool
) -> None:
    """Where the program has set another cache dir meanwhile, a log goes on there, and the first one
    names it, and ends with the program."""
    recorder = Recorder()
    recorder.begin(ActivityChanged(1.0, "running"))
    early = recorder.session
    assert early is not None and early.device is None
    home = tmp_path / "moved" if moved else layout.root
    described = replace(
        early, id="other", cache_dir=str(home), device="cpu", started=early.started + 5
    )
    monkeypatch.setattr(recording, "_hooked_session", lambda: described)
    assert recorder.next_number() == 1
    session = recorder.session
    assert session == replace(described, id=early.id, started=early.started)
    kept = [SessionStarted(early), ActivityChanged(1.0, "running"), SessionStarted(session)]
    assert logs(Layout(home)) == [kept[2:] if moved else kept]
    assert logs(layout) == [kept]
    recorder.end_in(os.getpid())
    assert [type(log[-1]) for log in (*logs(Layout(home)), *logs(layout))] == [SessionEnded] * 2
