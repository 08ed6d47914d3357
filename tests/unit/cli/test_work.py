"""A job reports its progress to whoever started it, and ends when nobody reads that any more."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from backend.wire.jobs import Progress
from rocm_tui.cli.work import LiveLine

COMPILES = """
import time
from rocm_tui.cli.work import LiveLine, ended_by_signals
with ended_by_signals():
    with LiveLine().during("mm", "compiling"):
        time.sleep(600)
"""


def test_a_job_without_news_ends_with_its_reader() -> None:
    reading, writing = os.pipe()
    env = {**os.environ, "ROCM_TUI_PROGRESS": str(writing)}
    with subprocess.Popen([sys.executable, "-c", COMPILES], env=env, pass_fds=[writing]) as job:
        os.close(writing)
        with os.fdopen(reading, "rb") as progress:
            assert json.loads(progress.readline())["text"] == "compiling"
            assert job.poll() is None
        assert job.wait(timeout=30) == 128 + signal.SIGTERM


def test_a_number_that_is_no_descriptor_is_not_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCM_TUI_PROGRESS", "9" * 20)
    started = list[threading.Thread]()
    monkeypatch.setattr(threading.Thread, "start", started.append)
    LiveLine().show("compiling")
    assert started == []


def test_a_text_has_no_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "progress").open("wb") as stream:
        monkeypatch.setenv("ROCM_TUI_PROGRESS", str(stream.fileno()))
        line = LiveLine()
        line.progressed(Progress("timing", timed=1, total=6))
        line.show("")
    (text,) = (tmp_path / "progress").read_text().splitlines()
    assert json.loads(text)["text"] == "1/6 timed"
