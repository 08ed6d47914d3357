"""`rocm-tui improve` on a real graph in which the choice that is faster alone makes it slower: the
template takes what follows the product into its own kernel, and is slow at that."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from backend.disk.layout import Layout
from backend.pins.store import PinStore
from rocm_tui.actions.improve_file import read_search
from tests.support.places import ROOT
from tests.support.torch_models import child_env

PROGRAM = [sys.executable, str(ROOT / "tests" / "support" / "fused_program.py")]


def words_of(*words: str) -> list[str]:
    return [sys.executable, "-m", "rocm_tui", *words]


def call(cache: Path, *words: str) -> Any:
    return subprocess.run(
        words_of(*words),
        env=child_env(cache),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
    )


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the program left, with its two choices measured alone: the template is faster."""
    cache = tmp_path_factory.mktemp("captured") / "cache"
    done = call(cache, "run", "--capture", "--", *PROGRAM)
    assert done.returncode == 0, done.stderr
    done = call(cache, "measure", tuning_of(cache), "--budget", "8", "--json")
    first = json.loads(done.stdout)["measurement"]["choices"][0]
    if not first["hash"].startswith("Cpp") or first["verdict"] != "faster":
        pytest.skip("on this machine the template is not the faster kernel alone")
    return cache


def tuning_of(cache: Path) -> str:
    (tuning,) = json.loads(call(cache, "ls", "--json").stdout)["tunings"]
    return str(tuning["id"])


@pytest.fixture
def cache(captured: Path, tmp_path: Path) -> Path:
    shutil.copytree(captured, tmp_path / "cache", symlinks=True)
    return tmp_path / "cache"


def let_inductor_take(cache: Path, start: str) -> None:
    """As if Inductor's benchmark had found the choice whose hash begins so to be the fastest."""
    for path in Layout(cache).autotune.iterdir():
        document = json.loads(path.read_text())
        for by_inputs in document["cache"].values():
            for by_precision in by_inputs.values():
                for times in by_precision.values():
                    for hash in times:
                        times[hash] = 0.1 if hash.startswith(start) else 0.2
        path.write_text(json.dumps(document))


def the_graph(cache: Path) -> str:
    (path,) = Layout(cache).graphs.glob("*.py")
    return path.stem


def test_what_is_faster_alone_and_slower_in_the_graph_is_not_pinned(cache: Path) -> None:
    let_inductor_take(cache, "bmm")
    done = call(cache, "improve", "--yes", "--budget", "300", "--json")
    assert done.returncode == 1, done.stderr
    result = json.loads(done.stdout)
    assert result["graph"] == the_graph(cache)
    assert result["gain"] is None
    ((candidate,),) = [tuning["candidates"] for tuning in result["tunings"]]
    assert candidate["hash"].startswith("Cpp")
    assert candidate["alone"]["verdict"] == "faster"
    (trial,) = candidate["graph"]
    assert trial["verdict"] != "faster"
    assert trial["ratio"] > 1.0
    assert PinStore(Layout(cache)).pins() == ()


def test_what_is_slower_alone_and_faster_in_the_graph_is_found_pinned_and_proved(
    cache: Path,
) -> None:
    let_inductor_take(cache, "Cpp")
    done = call(cache, "improve", "--yes", "--budget", "600")
    if "have not confirmed it yet" in done.stdout or "do not confirm it: unclear" in done.stdout:
        pytest.skip("too many others are at work on this machine")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "% faster" in done.stdout
    assert "Of a hundred searches" in done.stdout
    (pin,) = PinStore(Layout(cache)).pins()
    assert pin.hash.startswith("bmm-")
    assert pin.note.startswith(f"improve: graph {the_graph(cache)} ")
    proved = call(cache, "prove", "--pairs", "3", "--budget", "1", "--json")
    proof = json.loads(proved.stdout)
    assert (proof["kernels_before"], proof["kernels_after"]) == (1, 2)
    assert [status["state"] for status in proof["pins"]] == ["active"]
    (pin,) = PinStore(Layout(cache)).pins()
    assert f"prove: graph {the_graph(cache)} " in pin.note


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_it_stops_when_told_and_goes_on(cache: Path, number: int) -> None:
    let_inductor_take(cache, "Cpp")
    graph = the_graph(cache)
    running = subprocess.Popen(
        words_of("improve", "--yes", "--budget", "300"),
        env=child_env(cache),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + 240
    while not (search := read_search(Layout(cache), graph)) or not search.tries:
        assert running.poll() is None and time.monotonic() < end
        time.sleep(0.2)
    os.kill(running.pid, number)
    output, errors = running.communicate(timeout=60)
    if "Nothing was found" in output:
        pytest.skip("the trial was unclear, so that nothing was left to do when the signal came")
    assert running.returncode in (130, 128 + signal.SIGTERM, -signal.SIGKILL), errors
    if number != signal.SIGKILL:
        assert f"rocm-tui improve {graph}" in errors
    after = read_search(Layout(cache), graph)
    assert after is not None
    assert after.tries[: len(search.tries)] == search.tries
    assert PinStore(Layout(cache)).pins() == ()
    call(cache, "improve", "--budget", "0.1")
    last = read_search(Layout(cache), graph)
    assert last is not None
    assert last.tries[: len(after.tries)] == after.tries
