"""A program's output as lines: however it is cut, whatever it holds, however much it is."""

from __future__ import annotations

import errno
import os
import random
import resource
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.events import SessionStarted
from backend.model.session import Session
from rocm_tui.launch import copier
from rocm_tui.launch.program import (
    MOST_CHARACTERS,
    OUTPUT,
    Detached,
    Launched,
    OutputLines,
    Program,
    kept_programs,
)
from rocm_tui.launch.run import RUN_LOG
from rocm_tui.launch.stderr import BoundedLog
from rocm_tui.tui.widgets.output import about

TEXT = (
    "one\r\n"
    "\r 10%|#   |\r 50%|##  |\r100%|####|\n"
    "\x1b[31mré\x1b[0m\x1b]52;c;ZXZpbA==\x07d\x1b[2J\n"
    "a\rbegun\r"
).encode()


def test_lines_do_not_depend_on_how_they_are_cut() -> None:
    for seed in range(30):
        rng, lines, at = random.Random(seed), OutputLines(), 0
        while at < len(TEXT):
            step = rng.randint(1, 9)
            lines.feed(TEXT[at : at + step])
            at += step
        assert lines.since(0) == (0, ["one", "100%|####|", "réd"])
        assert (lines.begun, lines.last(2)) == ("begun", ["réd", "begun"])


def test_memory_is_bounded_and_numbers_stay() -> None:
    lines = OutputLines(most=100)
    for n in range(5000):
        lines.feed(b"%d\n" % n)
    start, kept = lines.since(0)
    assert 100 <= len(kept) <= 200 and lines.end == 5000
    assert kept == [str(n) for n in range(start, 5000)]
    assert lines.since(4999) == (4999, ["4999"])
    for _ in range(100):
        lines.feed(b"x" * MOST_CHARACTERS)
    assert len(lines.begun) <= MOST_CHARACTERS and len(lines.since(0)[1]) <= 200
    bar = OutputLines()
    for n in range(2000):
        bar.feed(b"\rstep %d" % n)
    assert (bar.end, bar.begun) == (0, "step 1999")


def test_who_hushed_hears_no_more(tmp_path: Path) -> None:
    """Of output that a process of another screen writes, here this one."""
    session = Session("run-1", socket.gethostname(), os.getpid(), started=time.time(), argv=("x",))
    writer = EventWriter(Layout(tmp_path), session)
    assert writer.write(SessionStarted(session))
    log = writer.path.with_name(f"{writer.path.stem}{OUTPUT}")
    log.touch()
    program = Detached(log, session)
    heard: list[str] = []
    hush_first = program.listen(lambda: heard.append("first"))
    hush_second = program.listen(lambda: heard.append("second"))

    def write(text: str) -> None:
        heard.clear()
        with log.open("a") as file:
            file.write(text)
        end = time.monotonic() + 60
        while "second" not in heard:
            assert time.monotonic() < end
            time.sleep(0.01)

    write("one\n")
    assert heard == ["first", "second"]
    hush_first()
    write("two\n")
    assert heard == ["second"] and program.lines.since(0)[1] == ["one", "two"]
    hush_second()
    writer.close()


FULL = 20_000
"""Bytes that a file may have."""


@pytest.mark.parametrize("where", ["a full file", "/dev/full"])
def test_output_that_cannot_be_kept_is_told_and_the_program_goes_on(
    where: str, tmp_path: Path
) -> None:
    path = tmp_path / "output.log" if where == "a full file" else Path(where)
    bell, rope = os.pipe()
    path.touch()
    copying = subprocess.Popen(
        [sys.executable, "-I", "-S", copier.__file__, str(rope), str(path)],
        stdin=subprocess.PIPE,
        pass_fds=[rope],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (FULL, FULL)),
    )
    os.close(rope)
    assert copying.stdin is not None
    with copying.stdin as stdin:
        for n in range(1000):
            stdin.write(b"line %d %s\n" % (n, b"x" * 100))
    assert copying.wait(60) == 0, "it has taken all of it"
    rung = b""
    while data := os.read(bell, 4096):
        rung += data
    os.close(bell)
    assert os.strerror(max(rung)) in ("File too large", "No space left on device")
    if where == "a full file":
        kept = path.read_bytes()
        assert len(kept) <= FULL and kept.startswith(b"line 0 x")
        assert kept.endswith(b"\n[rocm-tui: from here on output is lost: File too large]\n")


class Following(Program):
    """Follows a file that another process writes."""

    def __init__(self, log: Path) -> None:
        super().__init__("x", log, 0.0)
        self.open_log()


def test_of_a_flood_the_end_is_kept_and_shown(tmp_path: Path) -> None:
    """The file is bounded; a reader that keeps up misses nothing, another one says what it has."""
    path, most = tmp_path / "output.log", 10_000
    path.touch()
    reading, writing = os.pipe()
    bell, rope = os.pipe()
    copying = threading.Thread(target=copier.copy, args=(reading, str(path), rope, most))
    copying.start()
    keeps_up, late = Following(path), Following(path)
    for n in range(3000):
        os.write(writing, b"line %d\n" % n)
        assert os.read(bell, 1) == b"\0"
        assert path.stat().st_size <= most
        keeps_up.take()
    os.close(writing)
    copying.join()
    for descriptor in (reading, bell, rope):
        os.close(descriptor)
    assert keeps_up.lines.since(0) == (0, [f"line {n}" for n in range(3000)])
    assert not keeps_up.cut and keeps_up.dropped > most
    whole = b"".join(b"line %d\n" % n for n in range(3000))
    head, _, kept = path.read_bytes().partition(b"\n")
    assert head == b"[rocm-tui: the first %d bytes are not kept]" % keeps_up.dropped
    assert kept == whole[keeps_up.dropped :] and most // 2 <= len(kept) <= most
    assert late.take() and late.cut and late.lines.since(0)[1][-1] == "line 2999"
    assert set(late.lines.since(0)[1]) <= set(keeps_up.lines.since(0)[1])
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("end", [b"\n", b"\r"])
def test_of_a_long_stderr_the_beginning_and_the_end_are_kept(tmp_path: Path, end: bytes) -> None:
    path, most, whole = tmp_path / "a.stderr.log", 10_000, b""
    log = BoundedLog(path, most)
    for n in range(3000):
        line = b"line %d" % n + end
        whole += line
        log.write(line)
        assert path.stat().st_size <= most
        head, mark, tail = path.read_bytes().partition(b"[rocm-tui: ")
        head = head.removesuffix(b"\n") if end == b"\r" else head
        assert whole.startswith(head) and (mark or head == whole)
        if mark:
            cut, words, kept = tail.partition(b" bytes are not kept here]\n")
            assert words and whole == head + whole[len(head) :][: int(cut)] + kept
            assert len(head) >= most // 4 and len(kept) >= most // 8
    assert end != b"\n" or (head.endswith(b"\n") and kept.startswith(b"line "))
    log.write(whole)
    assert path.stat().st_size <= most and path.read_bytes().endswith(whole[-1000:])
    assert list(tmp_path.iterdir()) == [path]


def test_a_stderr_that_cannot_be_shortened_stays_as_it_is(tmp_path: Path) -> None:
    """The relay then keeps no more of it, and the program goes on."""
    path = tmp_path / "a.stderr.log"
    log = BoundedLog(path, 1000)
    log.write(b"x" * 900)
    Path(f"{path}.tmp").mkdir()
    with pytest.raises(OSError, match=r"a\.stderr\.log\.tmp"):
        log.write(b"y" * 200)
    assert path.read_bytes() == b"x" * 900


def bytes_read() -> int:
    """Bytes that this process has read from files."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_a_long_file_is_taken_in_from_its_end(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(b"y\n" * (50 << 20))
    began = bytes_read()
    program = Following(path)
    assert program.take() and not program.take()
    assert program.cut and program.lines.since(0)[1] == ["y"] * 10_000
    with path.open("ab") as file:
        file.write(b"y\n" * (5 << 20) + b"the end\n")
    assert program.take() and program.lines.last(1) == ["the end"]
    assert bytes_read() - began < 16 << 20


TALKS = """
import time
for n in range(400):
    print(f"line {n}", "x" * 100, flush=True)
time.sleep(600)
"""


def test_a_screen_and_a_later_one_see_that_output_is_lost(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    program = Launched([sys.executable, "-c", TALKS], Layout(tmp_path))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FULL, before[1]))
    try:
        program.start()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    later: list[Program] = []
    end = time.monotonic() + 60
    try:
        while not (program.lost and later and later[0].lost):
            assert time.monotonic() < end, (program.lost, later)
            later = [Detached(one.log, one.session) for one in kept_programs(Layout(tmp_path))]
            time.sleep(0.05)
        assert program.running and program.lost == later[0].lost == "File too large"
        assert program.lines.since(0)[1][0].startswith("line 0 x")
    finally:
        program.end()


def stale(*args: object) -> bytes:
    """Fail as a read on NFS does after the file was replaced on the server."""
    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))


def test_a_program_ends_although_its_output_could_not_be_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that follows the output also sees the end of the program."""
    read, fails = os.pread, [True]

    def pread(descriptor: int, size: int, at: int) -> bytes:
        if threading.current_thread().name == "output" and fails:
            fails.pop()
            return stale()
        return read(descriptor, size, at)

    monkeypatch.setattr(os, "pread", pread)
    program = Launched(["sh", "-c", "echo one; exit 7"], Layout(tmp_path))
    program.start()
    end = time.monotonic() + 60
    while program.running:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert not fails and program.code == 7
    assert program.lines.last(1) == ["one"] and not program.unread and not program.lost


def test_a_failed_look_at_anothers_program_is_said_until_one_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session("run-1", socket.gethostname(), os.getpid(), argv=("x",))
    log = tmp_path / f"run-1{OUTPUT}"
    log.write_text("one\n")
    program = Detached(log, session)
    with monkeypatch.context() as patched, log.open("a") as file:
        file.write("two\n")
        patched.setattr(os, "pread", stale)
        assert program.look() and "tale" in program.unread
        assert "cannot be read" in "".join(text for text, _ in about(program, 200))
        assert not program.look(), "that was said"
    assert program.look() and not program.unread
    assert program.lines.since(0)[1] == ["one", "two"]


def test_a_new_file_that_cannot_be_opened_leaves_the_old_one_open(tmp_path: Path) -> None:
    log, link, other = (tmp_path / name for name in ("x.log", "link", "y.log"))
    log.write_text("one\n")
    other.write_text("of somebody else\n")
    program = Following(log)
    link.symlink_to(other)  # which is not followed
    link.rename(log)
    assert program.take() and not program.take()
    log.unlink()
    log.write_text("one\ntwo\n")
    assert program.take() and program.lines.since(0)[1] == ["one", "two"]


@pytest.mark.parametrize("host", [socket.gethostname(), "elsewhere"])
def test_a_program_of_before_a_reboot_has_ended_when_its_log_is_released(
    tmp_path: Path, host: str
) -> None:
    before = "11111111-2222-3333-4444-555555555555 pid:[4026531836] 42 12345"
    session = Session("run-1", host, 42, argv=("x",), locked=True, process=before)
    layout = Layout(tmp_path)
    writer = EventWriter(layout, session, layout.sessions / f"run-1{RUN_LOG}")
    assert writer.write(SessionStarted(session))
    log = layout.sessions / f"run-1{OUTPUT}"
    log.write_text("step 100\n")
    (kept,) = kept_programs(layout)
    program = Detached(log, kept.session)
    assert kept.running and program.running, "its writer holds the lock"
    writer.close()  # as the end of the machine does
    ours = host == socket.gethostname()
    assert program.look() is ours and program.running is not ours
    assert kept_programs(layout)[0].running is not ours
    assert not ours or program.ending == "ended"


class EndedMeanwhile(Launched):
    """Its terminal is closed by another thread while it gets another size."""

    def __init__(self, terminal: int) -> None:
        self._reads = [terminal]

    @property
    def _terminal(self) -> int:  # type: ignore[override]
        return self._reads.pop() if self._reads else -1


def test_a_terminal_that_is_closed_meanwhile_gets_no_size() -> None:
    with Path(os.devnull).open() as terminal:  # closed, or another file by now
        EndedMeanwhile(terminal.fileno()).resize(80, 24)
