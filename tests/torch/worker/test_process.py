"""The worker as a process: it answers, and its end is ours to choose."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from backend.wire.jobs import VerifyJob
from backend.worker.protocol import EventReceiver
from rocm_tui import environment as hook_env
from rocm_tui.environment import NoTorchPython, find_python
from rocm_tui.jobs.limits import JobFailed, JobTimeout, WorkerDied
from rocm_tui.jobs.worker import run_job, spawn_worker

JOB = {"job": "verify", "op": "mm", "inputs": "[", "precision": "highest", "hash": "x"}


def test_bad_jobs_are_errors_and_the_next_one_goes_well(tmp_path: Path) -> None:
    with spawn_worker(sys.executable, tmp_path) as worker:
        with pytest.raises(JobFailed, match="no such job: nothing"):
            worker.exchange({"job": "nothing"})
        with pytest.raises(JobFailed, match="needs the text `op`"):
            worker.exchange({"job": "verify"})
        with pytest.raises(JobFailed, match="no such job: None"):
            worker.exchange({})


@pytest.mark.torch
def test_one_job_in_a_worker_of_its_own(tmp_path: Path) -> None:
    result = run_job(
        VerifyJob("mm", "[", "highest", "x"), python=sys.executable, cache_dir=tmp_path
    )
    assert result.ok is False and "inputs key" in result.reason


def test_a_job_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    with spawn_worker(sys.executable, tmp_path) as worker:
        os.kill(worker.pid, signal.SIGSTOP)
        with pytest.raises(JobTimeout, match="within 0 s"):
            worker.exchange(JOB, timeout=0.2)
        assert not psutil.pid_exists(worker.pid)


def test_a_worker_that_dies_says_how(tmp_path: Path) -> None:
    with spawn_worker(sys.executable, tmp_path) as worker:
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerDied, match="signal 9"):
            worker.exchange(JOB)
    with pytest.raises(WorkerDied, match="cannot start"):
        spawn_worker(str(tmp_path / "python"), tmp_path)
    with spawn_worker("/bin/false", tmp_path) as worker, pytest.raises(WorkerDied, match="code 1"):
        worker.exchange(JOB)


def test_what_libraries_print_does_not_reach_the_answers() -> None:
    """Lines on stdin that are no JSON, and prints below Python, next to answers."""
    program = (
        "import os, backend.worker.__main__ as loop\n"
        "def run(arguments, progress):\n"
        "    print('a print'); os.write(1, b'a write\\n'); os.system('echo a child')\n"
        "    progress('half'); return {'done': True}\n"
        "loop._run = lambda arguments, answers: run(arguments, answers.progress)\n"
        "loop.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input='{"id": 7, "token": "t"}\nx\n\n[]\n',
        capture_output=True,
        text=True,
    )
    half, result = EventReceiver("t").feed(done.stdout.encode())
    errors = [json.loads(line[1:]) for line in done.stdout.splitlines() if line.startswith(".")]
    assert half == {"id": 7, "event": "progress", "what": "half"}
    assert result == {"id": 7, "event": "result", "spent": False, "result": {"done": True}}
    assert [error["error"] for error in errors] == ["a job is one JSON object on a line"] * 2
    assert all(text in done.stderr for text in ("a print", "a write", "a child"))


def test_it_dies_with_its_parent() -> None:
    """The parent is killed, so nothing of it can clean up."""
    program = (
        "import sys, time; from pathlib import Path; from rocm_tui.jobs.worker import *\n"
        "worker = spawn_worker(sys.executable, Path('/nowhere'))\n"
        "try: worker.exchange({'job': 'none'})\n"
        "except JobFailed: print(worker.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    gone, alive = psutil.wait_procs([worker], timeout=60)
    assert alive == [] and gone


def test_its_environment_has_no_hooks() -> None:
    env = hook_env.hooked({"PYTHONPATH": "/mine", "A": "1"}, "run")
    assert hook_env.unhooked(env) == {"PYTHONPATH": "/mine", "A": "1"}
    assert hook_env.unhooked(hook_env.hooked({"A": "1"}, "run")) == {"A": "1"}


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str, int], str]:
    def made(name: str, code: int) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\nexit {code}\n")
        path.chmod(0o755)
        return str(path)

    return made


def test_which_python(
    script: Callable[[str, int], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--python`, ourselves, $VIRTUAL_ENV, PATH: the first that has torch."""
    good, bad = script("good", 0), script("bad", 1)
    assert find_python(good, {}) == good
    assert find_python() == sys.executable
    for given in (bad, str(tmp_path / "none")):
        with pytest.raises(NoTorchPython, match="--python"):
            find_python(given, {})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    ours, theirs = script("venv/bin/python", 0), script("bin/python3", 0)
    env = {"VIRTUAL_ENV": str(tmp_path / "venv"), "PATH": str(tmp_path / "bin")}
    assert find_python(None, env) == ours
    script("venv/bin/python", 1)
    assert find_python(None, env) == theirs
    script("bin/python3", 1)
    with pytest.raises(NoTorchPython, match="no Python with torch"):
        find_python(None, env)


def test_a_slow_python_is_not_replaced_by_one_with_another_torch(
    script: Callable[[str, int], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, other = script("venv/bin/python", 0), script("bin/python3", 0)
    ask = subprocess.run

    def run(command: Sequence[str], **kwargs: Any) -> subprocess.CompletedProcess[bytes]:
        if command[0] == slow:
            raise subprocess.TimeoutExpired(command, kwargs["timeout"])
        return ask(command, **kwargs)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    env = {"VIRTUAL_ENV": str(tmp_path / "venv"), "PATH": str(tmp_path / "bin")}
    for given in (None, slow):
        with pytest.raises(NoTorchPython, match=f"{slow} did not say within 30 s .* --python"):
            find_python(given, env)
    assert find_python(other, env) == other
