"""`watch --json`: a line for each tuning, and for each change of one."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocm_tui.cli.entry import main
from tests.support.documents import document
from tests.support.log_lab import BMM, MM
from tests.support.screen_lab import write_cache
from tests.support.torch_models import child_env

WATCH = [sys.executable, "-m", "rocm_tui", "watch", "--json"]


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "a.log").write_text(BMM)
    words = [*WATCH, str(tmp_path / "a.log")]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, env=child_env(tmp_path / "cache"), stdout=pipe, stderr=pipe, text=True
    ) as process:
        yield process
        process.kill()


def event(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    return document(process.stdout.readline(), "watch")


def test_a_line_for_each_tuning_and_change(watching: subprocess.Popen[str], tmp_path: Path) -> None:
    first = event(watching)
    assert (first["event"], first["op"], first["num_choices"]) == ("present", "bmm", 2)
    with (tmp_path / "a.log").open("a") as log:
        log.write(MM)
    new = event(watching)
    assert (new["event"], new["op"]) == ("new", "mm")
    (tmp_path / "a.log").write_text("")
    gone = [event(watching), event(watching)]
    assert {(each["event"], each["op"]) for each in gone} == {("gone", "bmm"), ("gone", "mm")}
    watching.send_signal(signal.SIGINT)
    assert watching.communicate(timeout=30) == ("", "")
    assert watching.returncode == 130


def test_it_follows_what_ls_lists_and_writes_nothing(tmp_path: Path) -> None:
    write_cache(tmp_path, 8, 16)
    before = sorted(tmp_path.rglob("*"))
    script = f"{' '.join(WATCH)} | head -n 2"
    done = subprocess.run(
        ["bash", "-c", script], env=child_env(tmp_path), capture_output=True, text=True, timeout=60
    )
    events = [document(line, "watch") for line in done.stdout.splitlines()]
    assert [each["event"] for each in events] == ["present", "present"]
    assert sorted(tmp_path.rglob("*")) == before


def test_it_starts_no_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "--json", "--", "true"]) == 2
    assert "rocm-tui run -- CMD" in document(capsys.readouterr().out, "error")["error"]["message"]
