"""A signal's handler of a program that is recorded too, in the midst of a write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from backend.disk.sessions import read_log
from backend.model.events import ActivityChanged, SessionStarted

PATIENCE = 60.0

CHILD = """
import signal, sys
from pathlib import Path
from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.events import ActivityChanged
from backend.model.session import Session
writer = EventWriter(Layout(Path(sys.argv[1])), Session(id="one", host="here", pid=1))
def handle(number, frame):
    writer.write(ActivityChanged(2.0, "compiling"))
    if "ends" in sys.argv:
        raise TimeoutError
signal.signal(signal.SIGUSR1, handle)
begun = []
def between(event, arguments):
    if event == "open" and str(arguments[0]) == str(writer.path) and not begun:
        begun.append(1)
        signal.raise_signal(signal.SIGUSR1)
sys.addaudithook(between)
try:
    writer.write(ActivityChanged(1.0, "running"))
except TimeoutError:
    print("ended")
writer.write(ActivityChanged(3.0, "running"))
"""


@pytest.mark.parametrize("ends", [False, True])
def test_what_it_tells_is_written_after_what_was_begun(tmp_path: Path, ends: bool) -> None:
    argv = [sys.executable, "-c", CHILD, str(tmp_path), *(["ends"] if ends else [])]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (0, "ended\n" if ends else ""), done.stderr
    (log,) = tmp_path.rglob("*.jsonl")
    events, problems = read_log(log)
    assert not problems and isinstance(events[0], SessionStarted)
    told = [event.when for event in events if isinstance(event, ActivityChanged)]
    assert told == ([3.0, 2.0] if ends else [1.0, 2.0, 3.0])
