"""A job whose command, or whose process, is ended leaves no tuning that seems to run."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from backend.disk.sessions import read_log
from backend.model.events import SessionEnded
from rocm_tui.ingest.follow.tailer import QUIET, Tailer
from rocm_tui.ingest.records import Record, Seen
from tests.support.odd_workers import odd_python
from tests.support.places import ROOT
from tests.support.terminal_lab import alive

PATIENCE = 60.0


def _wait_for(path: Path) -> str:
    end = time.monotonic() + PATIENCE
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < end, path
        time.sleep(0.01)
    return path.read_text()


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_to_the_command_ends_the_session_and_the_worker(
    tmp_path: Path, sign: signal.Signals
) -> None:
    (tmp_path / "act").write_text("record")
    cache = tmp_path / "cache"
    words = ["tune", "mm", "8x64", "64x64", "--dtype", "f32", "--cache-dir", str(cache)]
    with subprocess.Popen(
        [sys.executable, "-m", "rocm_tui", *words, "--python", odd_python(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        worker = int(_wait_for(tmp_path / "record.pid"))
        _wait_for(tmp_path / "heard")  # the command knows where the log is
        command.send_signal(sign)
        try:
            out, err = command.communicate(timeout=PATIENCE)
        finally:
            command.kill()  # leaving this block waits for it
    assert command.returncode == (130 if sign == signal.SIGINT else 128 + sign), err
    assert (out, err) == ("", "")
    (log,) = (cache / "rocm_tui" / "sessions").iterdir()
    events, _ = read_log(log)
    assert isinstance(events[-1], SessionEnded)
    assert not alive(worker)


WRITER = """
import os, sys, time
from pathlib import Path
from backend.model.session import Session
from backend.disk.sessions import EventWriter
from backend.disk.layout import Layout
from tests.support.format_lab import STARTED
writer = EventWriter(Layout(Path(sys.argv[1])), Session("s", host=sys.argv[2], locked=True))
writer.write(STARTED)
print(writer.path, flush=True)
time.sleep(600)
"""


def _states(records: list[Record]) -> list[str]:
    return [record.tuning.state for record in records if isinstance(record, Seen)]


@pytest.mark.parametrize("here", [True, False])
def test_a_killed_writer_s_tuning_is_cut_and_not_before(tmp_path: Path, here: bool) -> None:
    """Nothing of a log of another host can be told; its lock may not reach here."""
    host = socket.gethostname() if here else "elsewhere"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path), host],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdout is not None
        tailer = Tailer(writer.stdout.readline().strip())
        assert _states(tailer.poll(0.0)) == ["running"]
        quiet = [tailer.poll((QUIET + 1) * at) for at in (1, 2, 3)]
        assert quiet == [[], [], []] and (tailer.retry_at is not None) == here, "it looks again"
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        looks = [_states(tailer.poll(100.0 + (QUIET + 1) * at)) for at in (0, 1)]
        assert looks == [[], ["cut"] if here else []], "its end may not be read at the first look"
        assert tailer.retry_at is None
