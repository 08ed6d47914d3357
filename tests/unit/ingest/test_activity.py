"""What a log tells of its process: each state, a death, what cannot be seen from here."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.choice import Choice
from backend.model.events import (
    ActivityChanged,
    BenchmarkStarted,
    ChoiceCompiled,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    Event,
    ProcessExited,
    RankAwaited,
    SessionEnded,
    SessionStarted,
    TuningStarted,
)
from backend.model.session import Activity, Session
from backend.processes.tree import identity, lives
from backend.wire.events import encode
from rocm_tui.ingest.follow.sources import read_sources
from rocm_tui.ingest.follow.tailer import Tailer
from rocm_tui.ingest.formats.event_log import EventLog
from rocm_tui.ingest.records import ActivitySeen, Record, Seen
from rocm_tui.render.sessions import state_text
from rocm_tui.session.model import Model
from rocm_tui.session.sessions import Processes, SessionProcess

HERE = Session(
    "run-7-1-ab-5",
    host=socket.gethostname(),
    pid=5,
    torch="2.13.0",
    started=10.0,
    process=identity(os.getpid()),
)
CHOICES = tuple(Choice(hash=f"{name}-x") for name in ("bmm", "triton_bmm", "cpp_bmm"))
TUNING = TuningStarted(1, 20.0, "bmm", "", "", ((2, 2),), ((2, 1),), ("f",), "cpu", CHOICES)


def told(*events: Event, session: Session = HERE) -> list[Activity]:
    """What the log tells after each event, where that is another thing."""
    log, seen = EventLog("/x.jsonl"), []
    for event in (SessionStarted(session), *events):
        records = log.feed(f"{encode(event)}\n".encode())
        seen += [record.activity for record in records if isinstance(record, ActivitySeen)]
    return seen


def test_each_state_with_its_progress() -> None:
    seen = told(
        ActivityChanged(11.0, "compiling"),
        ActivityChanged(12.0, "a word of a later version"),
        TUNING,
        ChoiceCompiled(1, "triton_bmm-x", 1.0),
        ChoiceFailed(1, "cpp_bmm-x", "precompile", "no"),
        BenchmarkStarted(1, 21.0),
        ChoiceTimed(1, "triton_bmm-x", 1.0),
        ChoiceTimed(1, "bmm-x", 1.0),
        ChoiceSelected(1, 22.0, "bmm-x", "timing", 1.0, 1.0),
        ActivityChanged(23.0, "running"),
        SessionEnded(24.0),
    )
    assert [(now.state, now.done, now.total) for now in seen] == [
        ("running", 0, 0),
        ("compiling", 0, 0),
        ("a word of a later version", 0, 0),
        ("precompiling", 0, 2),
        ("precompiling", 1, 2),
        ("precompiling", 2, 2),
        ("tuning", 1, 3),
        ("tuning", 2, 3),
        ("a word of a later version", 0, 0),
        ("running", 0, 0),
        ("done", 0, 0),
    ]
    assert seen[5].op == "bmm" and seen[-1].ended == 24.0


def test_a_session_without_torch_is_starting_until_that_is_seen() -> None:
    seen = told(ActivityChanged(11.0, "importing"), session=Session("s", host=HERE.host))
    assert [now.last_state for now in seen] == ["starting", "importing"]


@pytest.mark.parametrize("session", [Session("s", host="elsewhere", torch="2.9", locked=True)])
def test_of_another_host_nothing_is_known_but_what_was_told(session: Session) -> None:
    (now, then) = told(ActivityChanged(11.0, "compiling"), session=session)
    assert (now.state, then.state, then.last_state) == ("unknown", "unknown", "compiling")
    assert told(SessionEnded(12.0), session=session)[-1].state == "done"


def test_an_older_log_tells_less() -> None:
    line = b'{"event":"session_started","session":{"id":"s","torch":"2.9","new":{"x":1}}}\n'
    (record,) = [r for r in EventLog("/x.jsonl").feed(line) if isinstance(r, ActivitySeen)]
    assert (record.activity.state, record.activity.last_state) == ("unknown", "running")


_CHILD = """
import os, sys, time
from pathlib import Path
from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.events import *
from backend.processes.tree import identity
import socket
me = Session("s", host=socket.gethostname(), pid=os.getpid(), torch="2.13", started=time.time(),
             process=identity(os.getpid()), locked=True)
log = EventWriter(Layout(Path(sys.argv[1])), me)
log.write(ActivityChanged(time.time(), "compiling"))
if os.fork() == 0:
    time.sleep(600)  # holds the lock of the log
    os._exit(0)
print("ready", flush=True)
time.sleep(600)
"""


@contextmanager
def child(cache: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", _CHILD, str(cache)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process
    finally:
        os.killpg(process.pid, 9)
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]


def only(cache: Path) -> SessionProcess:
    model = Model()
    model.apply(read_sources([str(cache)]))
    (process,) = model.processes.all()
    return process


def test_a_process_that_was_killed_has_died_though_a_helper_holds_its_lock(tmp_path: Path) -> None:
    with child(tmp_path) as process:
        assert only(tmp_path).activity.state == "compiling"
        process.kill()
        process.wait()
        activity = only(tmp_path).activity
        assert (activity.state, activity.last_state, activity.status) == ("died", "compiling", None)


def test_a_tuning_runs_as_long_as_its_process_lives(tmp_path: Path) -> None:
    """A command reads a log to its end while the program still writes it."""
    with child(tmp_path) as process:
        (log,) = Layout(tmp_path).sessions.glob("*.jsonl")
        with log.open("a") as stream:
            stream.write(f"{encode(TUNING)}\n")
        states = []
        for _ in range(2):
            records = read_sources([str(tmp_path)])
            states.append([r.tuning.state for r in records if isinstance(r, Seen)][-1])
            process.kill()
            process.wait()
        assert states == ["running", "cut"]


def test_an_end_that_was_written_since_the_log_was_read_is_no_death(tmp_path: Path) -> None:
    """It is written and the process is gone between two looks of a reader."""
    with child(tmp_path) as process:
        (path,) = Layout(tmp_path).sessions.glob("*.jsonl")
        followed, once, late = Tailer(str(path)), Tailer(str(path)), EventLog(str(path))
        for reader in (followed, once):
            assert [a.state for a in activities(reader.poll(0.0))] == ["compiling"]
        late.feed(path.read_bytes())
        process.kill()
        process.wait()
        assert activities(followed.poll(2.0)) == [], "its end may not be read yet"
        states = [a.state for _ in range(2) for a in activities(late.settle())]
        assert states == ["died"], "nothing was written before the second look"
        with path.open("ab") as stream:
            stream.write(end := f"{encode(SessionEnded(9.0))}\n".encode())
        assert [a.state for a in activities(followed.poll(4.0))] == ["done"]
        assert [a.state for a in activities(once.close())] == ["done"]
        assert [a.state for a in activities(late.feed(end))] == ["done"], "a file system was late"


def activities(records: list[Record]) -> list[Activity]:
    return [record.activity for record in records if isinstance(record, ActivitySeen)]


def test_who_started_it_knows_how_it_ended(tmp_path: Path) -> None:
    with child(tmp_path) as process:
        started = Session("s", host=HERE.host, pid=process.pid, argv=("x",), started=5.0)
        record = EventWriter(Layout(tmp_path), started, tmp_path / "rocm_tui/sessions/a.run.jsonl")
        record.write(SessionStarted(started))
        assert only(tmp_path).activity.state == "compiling"
        process.kill()
        process.wait()
        record.write(ProcessExited(time.time(), -9))
        found = only(tmp_path)
        assert (found.activity.state, found.activity.status) == ("died", -9)
        assert found.session.torch == "2.13" and found.session.started == 5.0
        assert len(found.logs) == 2


def test_a_pid_that_comes_again_is_another_process() -> None:
    mine = identity(os.getpid())
    head, _, started = mine.rpartition(" ")
    assert lives(mine) is True
    assert lives(f"{head} {int(started) - 1}") is False
    assert lives(f"another boot{mine.partition(' ')[1]}{mine.partition(' ')[2]}") is None
    assert lives("") is None


NO_DESCRIPTOR = """
import os, resource
from backend.processes.tree import identity
limit = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (0, limit[1]))
assert identity(os.getpid()) == ""
resource.setrlimit(resource.RLIMIT_NOFILE, limit)
assert identity(os.getpid())
"""


def test_a_process_that_had_no_free_descriptor_has_an_identity_later() -> None:
    subprocess.run([sys.executable, "-c", NO_DESCRIPTOR], check=True)


def test_a_rank_waits_for_the_choice_of_another_one() -> None:
    seen = told(
        ActivityChanged(11.0, "compiling"),
        TUNING,
        RankAwaited(1, 21.0, 3),
        RankAwaited(1, 40.0, None),
        BenchmarkStarted(1, 40.0),
    )
    states = [(now.state, now.rank, now.op, now.since) for now in seen[2:]]
    assert states == [
        ("precompiling", None, "bmm", 20.0),
        ("waiting", 3, "bmm", 21.0),
        ("precompiling", None, "bmm", 20.0),
        ("tuning", None, "bmm", 20.0),
    ]
    assert state_text(seen[3]) == "waits for rank 3's choice of bmm"
    assert state_text(seen[3], short=True, now=33.0) == "waits for rank 3's choice, 12 s"


def test_what_starts_programs_runs_once_one_of_them_has_loaded_torch() -> None:
    run = Session("run-7-5", host=HERE.host, pid=5, started=10.0)
    rank = replace(run, id="run-7-6", pid=6, torch="2.13.0", started=11.0)
    sessions = {session.id: session for session in (run, rank)}
    processes = Processes(sessions)
    processes.add(ActivitySeen("/a.jsonl", run.id, Activity("starting", "starting", 10.0)))
    assert [each.activity.state for each in processes.all()] == ["starting"]
    processes.add(ActivitySeen("/b.jsonl", rank.id, Activity("compiling", "compiling", 11.0)))
    assert [each.activity.state for each in processes.all()] == ["compiling", "running"]
