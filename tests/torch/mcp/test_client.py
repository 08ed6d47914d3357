"""The loop of an agent on real PyTorch: record, list, measure, pin, verify, undo."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.support.documents import document
from tests.support.hooked import launch_program
from tests.support.places import ROOT
from tests.support.terminal_lab import command_line
from tests.support.torch_models import child_env

pytestmark = pytest.mark.torch

PROGRAM = """
import torch

@torch.compile
def product(a, b):
    return torch.bmm(a, b)

product(torch.randn(4, 32, 64), torch.randn(4, 64, 48))
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache directory of a program that ran under `rocm-tui run`."""
    cache = tmp_path_factory.mktemp("recorded") / "cache"
    launch_program(PROGRAM, cache, "--max-autotune")
    return cache


def autotune(cache: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (cache / "cache").iterdir() if path.is_file()}


async def test_a_client_measures_pins_proves_and_undoes(recorded: Path) -> None:
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    from tests.support.mcp_lab import connected

    before = autotune(recorded)
    async with connected(recorded, "--python", sys.executable, says="accept") as lab:
        tuning, *_ = (await lab.answer("list", filter="op:bmm"))["document"]["tunings"]
        slower = tuning["choices"][1]["hash"]
        measured = await lab.answer("measure", id=tuning["id"], budget=3)
        assert measured["document"]["schema"] == "rocm-tui/measure/1"
        verdicts = [c["verdict"] for c in measured["document"]["measurement"]["choices"]]
        assert measured["exit_code"] == int("unclear" in verdicts)
        assert any("bmm" in message for message in lab.progress)
        pinned = await lab.answer("pin", id=tuning["id"], choice=slower)
        assert pinned["exit_code"] == 0
        proved = await lab.answer("verify", ids=[tuning["id"]])
        (pin,) = proved["document"]["pins"]
        assert pin["ok"] and pin["hash"] == slower and proved["exit_code"] == 0
        await lab.answer("undo")
        assert (await lab.answer("pins"))["document"]["pins"] == []
        assert len(lab.asked) == 4 and "raised out of reach" in lab.asked[1]
    assert autotune(recorded) == before


def test_progress_is_a_document_a_line(recorded: Path, tmp_path: Path) -> None:
    program = [sys.executable, "-m", "rocm_tui"]
    listed = subprocess.run(
        [*program, "ls", "--json"], env=child_env(recorded), capture_output=True, text=True
    )
    id_ = document(listed.stdout, "ls")["tunings"][0]["id"]
    words = [*program, "measure", id_, "--budget", "1", "--json", "--python", sys.executable]
    log = tmp_path / "progress"
    env = child_env(recorded, {"ROCM_TUI_PROGRESS": "3"})
    done = subprocess.run(
        ["bash", "-c", f'"$@" 3>{log}', "bash", *words], env=env, capture_output=True, text=True
    )
    assert document(done.stdout, "measure")["id"] == id_
    texts = [document(line, "progress")["text"] for line in log.read_text().splitlines()]
    assert texts[0] == "starting a worker" and len(texts) > 1
    assert all("  " not in text and text == text.strip() for text in texts), texts


def started() -> list[psutil.Process]:
    """Return the processes that the server has started, and theirs."""
    (server,) = (child for child in psutil.Process().children() if " mcp" in command_line(child))
    return server.children(recursive=True)


def is_over(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)


async def test_a_job_that_is_cancelled_ends_with_its_worker(recorded: Path) -> None:
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    from tests.support.mcp_lab import connected

    async with connected(recorded, "--python", sys.executable, "--allow-changes") as lab:
        tuning = (await lab.answer("list", filter="op:bmm"))["document"]["tunings"][0]
        assert started() == []
        endless = {"id": tuning["id"], "budget": 200, "rounds": 10**6}
        call = asyncio.create_task(lab.call("measure", endless))
        await until(lambda: len(lab.progress) > 1)
        processes = started()
        assert len(processes) > 1 and not call.done()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: all(map(is_over, processes)))
        assert (await lab.answer("list"))["exit_code"] == 0


@pytest.mark.parametrize("reports", [1, 2, 8])
def test_a_killed_server_leaves_no_process_and_no_half_file(recorded: Path, reports: int) -> None:
    """Whether the worker starts, compiles or measures when the server is killed."""
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    from tests.support.mcp_lab import RawServer

    names = {path for path in recorded.rglob("*") if path.is_file()}
    before = autotune(recorded)
    server = RawServer(recorded, "--python", sys.executable, "--allow-changes")
    listed = server.request("tools/call", {"name": "list", "arguments": {"filter": "op:bmm"}})
    id_ = json.loads(listed["result"]["content"][0]["text"])["document"]["tunings"][0]["id"]
    arguments = {"id": id_, "budget": 200, "rounds": 10**6}
    meta = {"progressToken": "t"}
    server.request("tools/call", {"name": "measure", "arguments": arguments, "_meta": meta})
    for _ in range(reports - 1):
        assert server.receive()["method"] == "notifications/progress"
    processes = psutil.Process(server.process.pid).children(recursive=True)
    server.end(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while not all(map(is_over, processes)):
        assert time.monotonic() < deadline, processes
        time.sleep(0.1)
    assert processes and autotune(recorded) == before
    left = {path for path in recorded.rglob("*") if path.is_file()} - names
    assert {path.suffix for path in left} <= {".jsonl", ".lock"}, left
    for path in left:
        assert all(map(json.loads, path.read_text().splitlines())), path
    again = [sys.executable, "-m", "rocm_tui", "measure", id_, "--budget", "1", "--json"]
    done = subprocess.run(again, env=child_env(recorded), capture_output=True, text=True)
    assert document(done.stdout, "measure")["measurement"], done.stderr


@pytest.mark.needs_tool("jq")
def test_the_loop_of_the_page_needs_json_alone(tmp_path: Path) -> None:
    """The script of docs/agents.md, on a cache whose single times name the slower choice."""
    cache = tmp_path / "cache"
    (tmp_path / "program.py").write_text(PROGRAM)
    page = (ROOT / "docs" / "agents.md").read_text()
    script = page.partition("```bash\n")[2].partition("```")[0]
    tool = tmp_path / "bin" / "rocm-tui"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -m rocm_tui "$@"\n')
    tool.chmod(0o755)
    env = child_env(cache, {"PATH": f"{tool.parent}:{os.environ['PATH']}"})
    words = ["bash", "-c", script, "bash", sys.executable, str(tmp_path / "program.py")]

    def run() -> list[str]:
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    (line,) = run()  # whether the times that were taken once are right is chance
    id_, _, outcome = line.partition(": ")
    assert outcome in ("already the fastest", "pinned and proved")
    subprocess.run([tool, "unpin", "--all"], env=env, check=True)
    shown = subprocess.run([tool, "show", id_, "--json"], env=env, capture_output=True)
    measured = document(shown.stdout, "show")["measurement"]["choices"]
    (best,) = (choice["hash"] for choice in measured if choice["verdict"] == "faster")
    (path,) = (path for path in (cache / "cache").iterdir() if path.is_file())
    tuned = json.loads(path.read_text())
    for by_inputs in tuned["cache"].values():
        for by_precision in by_inputs.values():
            for times in by_precision.values():
                times[best] = 9.0
    path.write_text(json.dumps(tuned))
    assert run() == [f"{id_}: pinned and proved"]
    assert run() == [f"{id_}: already the fastest"]
