"""A real program under `run`, seen while it works: each state in order, two ranks, a death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from backend.disk.sessions import read_log
from backend.model.events import ActivityChanged, BenchmarkStarted
from backend.model.session import ActivityState
from rocm_tui.ingest.follow.watcher import Watcher
from rocm_tui.ingest.records import Record
from rocm_tui.report.sessions import session_rows
from rocm_tui.session.model import Model
from rocm_tui.session.sessions import SessionProcess
from tests.support.hooked import logs_of
from tests.support.torch_models import child_env

pytestmark = pytest.mark.torch

RANK = """
import os, sys
import torch, torch._inductor.config as config
config.max_autotune = True
a, b = torch.randn(4, 32, 64), torch.randn(4, 64, 96)
torch.compile(lambda a, b: torch.bmm(a, b) + 1)(a, b)
os.write(1, b"compiled\\n")  # in one piece: print may write the end of the line separately
sys.stdin.read()
"""
JOB = """
import os, subprocess, sys
rank = [sys.executable, "-W", "ignore", "rank.py"]
ranks = [
    subprocess.Popen(rank, env={**os.environ, "RANK": str(number)}, stdin=subprocess.PIPE)
    for number in range(2)
]
input()
for process in ranks:
    process.stdin.close()
    process.wait()
sys.exit(3)
"""


class Seen:
    """The states of each process, in order."""

    def __init__(self, cache: Path) -> None:
        self.model = Model()
        self.states: dict[int, list[tuple[ActivityState, int, int]]] = {}
        self._lock = threading.Lock()
        self.watcher = Watcher([str(cache)], self._take)

    def _take(self, records: list[Record]) -> None:
        with self._lock:
            for record in records:
                self.model.apply([record])
                for process in self.model.processes.all():
                    activity = process.activity
                    states = self.states.setdefault(process.session.pid, [])
                    now = (activity.state, activity.done, activity.total)
                    if not states or states[-1] != now:
                        states.append(now)

    def processes(self) -> list[SessionProcess]:
        with self._lock:
            return [row.process for row in session_rows(self.model)]

    def until(
        self, what: str, *states: ActivityState, seconds: float = 120.0
    ) -> list[SessionProcess]:
        """Wait until the processes of the job, as they are listed, are in these states."""
        end = time.monotonic() + seconds
        while True:
            found = self.processes()
            if [process.activity.state for process in found] == [*states]:
                return found
            assert time.monotonic() < end, (what, found)
            time.sleep(0.05)


def test_a_job_of_two_ranks_from_its_start_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(textwrap.dedent(RANK))
    (tmp_path / "job.py").write_text(textwrap.dedent(JOB))
    cache = tmp_path / "cache"
    seen = Seen(cache)
    seen.watcher.start()
    command = [sys.executable, "-m", "rocm_tui", "run", "--quiet", "--", sys.executable, "job.py"]
    job = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=child_env(cache, {}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert job.stdin is not None and job.stdout is not None
        assert [job.stdout.readline() for _ in range(2)] == [b"compiled\n"] * 2
        head, first, second = seen.until("both compiled", "running", "running", "running")
        assert head.starter and [first.session.rank, second.session.rank] == [0, 1]
        assert head.run == first.run == second.run != ""
        assert head.activity.last_state == "running"
        os.kill(second.session.pid, signal.SIGKILL)
        _, _, dead = seen.until("one was killed", "running", "running", "died")
        assert dead.activity.last_state == "running" and dead.activity.status is None
    finally:
        job.communicate(b"\n", 60)
    head, _, _ = seen.until("the job has ended", "done", "done", "died")
    assert head.activity.status == 3
    seen.watcher.stop()
    _told_in_order(cache)


def _told_in_order(cache: Path) -> None:
    """Check the log of a rank that timed choices; the other may have found its times cached."""
    logs = [read_log(path)[0] for path in logs_of(cache)]
    events = next(log for log in logs if any(isinstance(e, BenchmarkStarted) for e in log))
    told = [e.activity if isinstance(e, ActivityChanged) else type(e).__name__ for e in events]
    steps = ["running", "compiling", "TuningStarted", "BenchmarkStarted", "ChoiceSelected"]
    places = [told.index(step) for step in steps]
    assert places == sorted(places), told


@pytest.mark.parametrize("python", [sys.executable])
def test_importing_torch_is_seen_before_its_hooks_are_there(tmp_path: Path, python: str) -> None:
    """The program itself, killed: who started it tells the signal."""
    seen = Seen(tmp_path)
    seen.watcher.start()
    code = "import time, torch; time.sleep(60)"
    command = [sys.executable, "-m", "rocm_tui", "run", "--", python, "-c", code]
    with subprocess.Popen(command, env=child_env(tmp_path, {}), stderr=subprocess.PIPE) as run:
        (process,) = seen.until("torch is there", "running")
        assert [state for state, _, _ in seen.states[process.session.pid]][-2:] == [
            "importing",
            "running",
        ]
        assert process.session.argv[-1] == code
        os.kill(process.session.pid, signal.SIGTERM)
        run.communicate()
    (process,) = seen.until("it was killed", "died")
    assert process.activity.status == -signal.SIGTERM
    seen.watcher.stop()
