"""Event logs on a disk that fills up, and the ends of logs."""

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path

import pytest

from backend.disk import sessions
from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter, end_log, is_released, read_log
from backend.errors import UnsafePath
from backend.model.events import SessionEnded, SessionStarted, TuningFailed
from backend.model.session import Session
from backend.wire.events import encode
from tests.support.store_disks import mounted

SESSION = Session("abc", host="gpu7", pid=7)
EVENT = TuningFailed(1, 1.0, "x" * 30_000)


def test_an_event_that_was_written_in_part_is_reported_and_is_the_last(tmp_path: Path) -> None:
    """The disk takes the first part of a line, and has room again before the next event."""
    with mounted(tmp_path / "disk") as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(b"x" * 300_000)
        writer = EventWriter(Layout(disk), SESSION)
        written = 0
        while writer.write(EVENT):
            written += 1
        assert not writer.path.read_bytes().endswith(b"\n")  # the test's own premise
        assert writer.error is not None and "the disk is full" in writer.error
        assert is_released(writer.path), "no more will follow"
        ballast.unlink()
        assert not writer.write(EVENT)
        events, faults = read_log(writer.path)
        assert events == [SessionStarted(SESSION), *[EVENT] * written] and written > 3
        assert not faults


def test_a_written_event_is_in_the_file_whatever_another_thread_is_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed right after `write` returned loses nothing."""
    writer = EventWriter(Layout(tmp_path), SESSION)
    writer.write(EVENT)
    writing = threading.Event()
    write = os.write

    def write_slowly(descriptor: int, data: bytes) -> int:
        if threading.current_thread() is slow:
            writing.set()
            time.sleep(0.3)
        return write(descriptor, data)

    slow = threading.Thread(target=writer.write, args=(EVENT,))
    monkeypatch.setattr(os, "write", write_slowly)
    slow.start()
    assert writing.wait(10)
    last = TuningFailed(2, 2.0, "the last one")
    assert writer.write(last)
    assert last in read_log(writer.path)[0]
    slow.join()
    assert read_log(writer.path)[0] == [SessionStarted(SESSION), EVENT, EVENT, last]


@pytest.mark.parametrize("torn", [b"", b'{"event": "tuning_fai', b"\xff no event\n"])
def test_the_log_of_a_dead_writer_is_ended_once(tmp_path: Path, torn: bytes) -> None:
    layout = Layout(tmp_path)
    writer = EventWriter(layout, SESSION)
    writer.write(EVENT)
    with writer.path.open("ab") as stream:
        stream.write(torn)
    assert not is_released(writer.path)
    writer.close()
    assert is_released(writer.path)
    assert end_log(layout, writer.path)
    events, faults = read_log(writer.path)
    assert events[:2] == [SessionStarted(SESSION), EVENT] and len(faults) == (1 if torn else 0)
    assert isinstance(events[2], SessionEnded) and len(events) == 3
    content = writer.path.read_bytes()
    assert not end_log(layout, writer.path) and writer.path.read_bytes() == content


@pytest.mark.parametrize("ended", [False, True])
def test_a_long_log_is_ended_once_too(tmp_path: Path, ended: bool) -> None:
    layout = Layout(tmp_path)
    writer = EventWriter(layout, SESSION)
    for _ in range(3):
        writer.write(TuningFailed(1, 1.0, "x" * 50_000))
    if ended:
        writer.write(SessionEnded(2.0))
    writer.close()
    assert end_log(layout, writer.path) is not ended
    events, faults = read_log(writer.path)
    assert [type(event) for event in events[4:]] == [SessionEnded] and not faults


@pytest.mark.parametrize(
    ("session", "name"),
    [
        (Session("a", host="gpu7", pid=7, started=5.5), r"gpu7-7-5-[0-9a-f]{8}\.jsonl"),
        (Session("a", host="../a b\x1b", pid=7, started=5.0), r"_a_b_-7-5-[0-9a-f]{8}\.jsonl"),
        (Session("a", host="...", pid=7, started=5.0), r"host-7-5-[0-9a-f]{8}\.jsonl"),
        (Session("a", host="x" * 65, pid=7, started=5.0), r"x{64}-7-5-[0-9a-f]{8}\.jsonl"),
        (Session("a"), r"host-PID-1[0-9]{9}-[0-9a-f]{8}\.jsonl"),
    ],
)
def test_the_name_of_a_log(tmp_path: Path, session: Session, name: str) -> None:
    path = EventWriter(Layout(tmp_path), session).path
    pattern = name.replace("PID", str(os.getpid()))
    assert path.parent == Layout(tmp_path).sessions and re.fullmatch(pattern, path.name)


def test_a_forked_child_writes_a_log_of_its_own(tmp_path: Path) -> None:
    writer = EventWriter(Layout(tmp_path), SESSION)
    writer.write(EVENT)
    child = os.fork()
    if not child:
        os._exit(not writer.write(EVENT))
    assert os.waitpid(child, 0)[1] == 0
    writer.write(EVENT)
    assert read_log(writer.path)[0] == [SessionStarted(SESSION), EVENT, EVENT]
    (other,) = {*Layout(tmp_path).sessions.iterdir()} - {writer.path}
    (started, event), _ = read_log(other)
    assert isinstance(started, SessionStarted) and event == EVENT
    assert started.session.pid == child and started.session.id != SESSION.id
    assert started.session.process != SESSION.process


def test_a_file_that_is_there_already_is_no_log_of_ours(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.sessions.mkdir(parents=True)
    path = layout.sessions / "a.jsonl"
    path.write_bytes(b"theirs\n")
    writer = EventWriter(layout, SESSION, path)
    assert not writer.write(EVENT)
    assert writer.error is not None and str(path) in writer.error
    assert path.read_bytes() == b"theirs\n"


def test_what_cannot_be_read_of_a_log_is_said_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    good = encode(EVENT).encode() + b"\n"
    path.write_bytes(b"\n" + good + b"\xff\n" + b"{}\n" * 22 + good + good[:-1])
    events, faults = read_log(path)
    assert events == [EVENT, EVENT]
    assert [fault.line for fault in faults] == [*range(3, 23), None]
    assert "not UTF-8" in faults[0].what and "UTF-8" not in faults[1].what
    assert faults[-1].what.startswith("3 more lines")
    assert {fault.source for fault in faults} == {str(path)}

    monkeypatch.setattr(sessions, "MAX_LINE", len(good) + 10)
    path.write_bytes(good + b"x" * (len(good) + 10) + b"\n" + good)
    events, (fault,) = read_log(path)
    assert events == [EVENT] and fault.line == 2 and "16 MiB" in fault.what
    events, (fault,) = read_log(tmp_path / "missing.jsonl")
    assert not events and "No such file" in fault.what


def test_a_log_that_ended_itself_is_left_alone(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    writer = EventWriter(layout, SESSION)
    writer.write(SessionEnded(2.0))
    writer.close()
    assert not writer.write(EVENT)
    assert not end_log(layout, writer.path)
    assert read_log(writer.path) == ([SessionStarted(SESSION), SessionEnded(2.0)], [])


def test_only_logs_of_sessions_are_ended(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "cache")
    layout.sessions.mkdir(parents=True)
    elsewhere = tmp_path / "train.log"
    elsewhere.write_bytes(b"epoch 1\n")
    link = layout.sessions / "link.jsonl"
    link.symlink_to(elsewhere)
    assert not end_log(layout, elsewhere)
    assert not end_log(layout, layout.sessions / "missing.jsonl")
    with pytest.raises(UnsafePath):
        end_log(layout, link)
    assert elsewhere.read_bytes() == b"epoch 1\n"
    assert not is_released(layout.sessions / "missing.jsonl")


def test_a_pipe_among_the_logs_is_a_fault_and_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    os.mkfifo(path)
    events, (fault,) = read_log(path)
    assert not events and "not a regular file" in fault.what
