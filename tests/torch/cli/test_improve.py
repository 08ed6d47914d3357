"""`rocm-tui improve` on a real graph whose two choices differ by about ten times, see
`tests.support.slow_winner`: what it tries, concludes and pins, and what stock PyTorch then calls.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from backend.disk.layout import Layout
from backend.model.graph import CompileOption
from backend.model.tuning import Pin
from backend.pins.store import PinStore
from rocm_tui.actions.improve import read_search
from rocm_tui.render.graphs import compile_call, options_lines
from rocm_tui.search.options import DEFAULT, OPTIONS, worth_trying
from rocm_tui.search.steps import LOOKS
from rocm_tui.search.types import Try
from tests.support import slow_winner as lab
from tests.support.documents import document
from tests.support.torch_models import child_env
from tests.support.warm_python import warm_python

NEWLINE = "\n"


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program was tuned and captured, and its fast choice is the winner."""
    cache = tmp_path_factory.mktemp("honest") / "cache"
    done = lab.rocm_tui(cache, "run", "--capture", "--", *lab.PROGRAM)
    assert done.returncode == 0, done.stderr
    tuning = lab.tuned(cache)
    assert tuning.times[tuning.hash(lab.SLOW)] > 3 * tuning.times[tuning.hash(lab.FAST)]
    return cache


@pytest.fixture(scope="module")
def planted(honest: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The slow choice has the least time in the cache, and stock PyTorch has compiled it."""
    cache = copied(honest, tmp_path_factory.mktemp("planted"))
    lab.record_slow_as_winner(cache)
    assert lab.stock_calls(cache) == lab.CALLS_SLOW
    return cache


@pytest.fixture(scope="module")
def improved(planted: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The planted cache after `improve --yes`, and what that printed."""
    cache = copied(planted, tmp_path_factory.mktemp("improved"))
    return cache, lab.rocm_tui(cache, "improve", "--yes", "--budget", "300")


def copied(cache: Path, folder: Path) -> Path:
    return Path(shutil.copytree(cache, folder / "cache", symlinks=True))


def graph_of(cache: Path) -> str:
    (path,) = Layout(cache).graphs.glob("*.py")
    return path.stem


def tries_of(cache: Path) -> tuple[Try, ...]:
    search = read_search(Layout(cache), graph_of(cache))
    return search.tries if search else ()


def pins_of(cache: Path) -> tuple[Pin, ...]:
    return PinStore(Layout(cache)).pins()


def assert_one_screening_confirmed(tries: tuple[Try, ...], processes: int) -> None:
    """Nothing was tried twice, and nothing beyond what the verdict needed."""
    assert processes in LOOKS
    assert [attempt.kind for attempt in tries] == ["screen", *["confirm"] * processes]


def test_a_slow_winner_is_found_confirmed_and_pinned(improved: tuple[Path, Any]) -> None:
    cache, done = improved
    assert done.returncode == 0, done.stdout + done.stderr
    assert "% faster" in done.stdout
    assert "Of a hundred searches" in done.stdout
    (pin,) = pins_of(cache)
    assert pin.hash == lab.tuned(cache).hash(lab.FAST)
    assert pin.note.startswith(f"improve: graph {graph_of(cache)} ")
    assert [status.state for status in PinStore(Layout(cache)).status()] == ["active"]


def test_the_finished_search_reports_what_it_tried(
    improved: tuple[Path, Any], tmp_path: Path
) -> None:
    cache = copied(improved[0], tmp_path)
    before = tries_of(cache)
    done = lab.rocm_tui(cache, "improve", "--yes", "--budget", "300", "--json")
    assert done.returncode == 0, done.stderr
    assert tries_of(cache) == before
    result = document(done.stdout, "improve")
    tuning = lab.tuned(cache)
    gain = result["gain"]
    assert gain["verdict"] == "faster"
    assert gain["ratio"] < gain["high"] < 1 / 2
    assert (gain["kernels_before"], gain["kernels_after"]) == (1, 2)
    assert [swap["hash"] for swap in gain["choices"]] == [tuning.hash(lab.FAST)]
    assert_one_screening_confirmed(before, gain["processes"])
    assert result["trials"] == 1 + gain["processes"]
    assert result["unconfirmed"] == []
    (subject,) = result["tunings"]
    assert subject["current"] == tuning.hash(lab.SLOW)
    (candidate,) = subject["candidates"]
    assert candidate["hash"] == tuning.hash(lab.FAST)
    assert candidate["alone"]["verdict"] == "faster"
    (trial,) = candidate["graph"]
    assert trial["verdict"] == "faster"


def test_stock_pytorch_then_calls_the_fast_kernel(
    improved: tuple[Path, Any], tmp_path: Path
) -> None:
    assert lab.stock_calls(copied(improved[0], tmp_path)) == lab.CALLS_FAST


def test_stock_processes_prove_the_pin(improved: tuple[Path, Any], tmp_path: Path) -> None:
    cache = copied(improved[0], tmp_path)
    done = lab.rocm_tui(cache, "prove", "--pairs", "3", "--budget", "1", "--json")
    proof = document(done.stdout, "prove")
    assert (proof["kernels_before"], proof["kernels_after"]) == (1, 2)
    assert proof["ratio"] < 1 / 2
    assert [status["state"] for status in proof["pins"]] == ["active"]
    (pin,) = pins_of(cache)
    assert f"prove: graph {graph_of(cache)} " in pin.note


def test_no_gain_is_claimed_where_the_winner_is_the_fastest(honest: Path, tmp_path: Path) -> None:
    cache = copied(honest, tmp_path)
    done = lab.rocm_tui(cache, "improve", "--yes", "--budget", "300")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Nothing was found with which the graph is faster." in done.stdout
    assert "More may be found" not in done.stdout
    (attempt,) = tries_of(cache)
    assert attempt.trial is not None
    assert [arm.verdict for arm in attempt.trial.arms] == ["tied", "slower"]
    assert pins_of(cache) == ()


def test_a_choice_measured_faster_alone_that_slows_the_graph_is_not_pinned(
    honest: Path, tmp_path: Path
) -> None:
    cache = copied(honest, tmp_path)
    lab.record_measurement_of_slow_as_faster(cache)
    done = lab.rocm_tui(cache, "improve", "--yes", "--budget", "300", "--json")
    assert done.returncode == 1, done.stderr
    result = document(done.stdout, "improve")
    assert result["graph"] == graph_of(cache)
    assert result["gain"] is None
    assert result["trials"] == 1
    ((candidate,),) = [tuning["candidates"] for tuning in result["tunings"]]
    assert candidate["hash"] == lab.tuned(cache).hash(lab.SLOW)
    assert candidate["alone"]["verdict"] == "faster"
    (trial,) = candidate["graph"]
    assert trial["verdict"] == "slower"
    assert trial["ratio"] > 2
    assert pins_of(cache) == ()


def test_a_choice_measured_slower_alone_is_pinned_in_spite_of_three_interruptions(
    planted: Path, tmp_path: Path
) -> None:
    cache = copied(planted, tmp_path)
    lab.record_measurement_of_slow_as_faster(cache)
    graph = graph_of(cache)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        stop_after_a_new_try(cache, number)
        assert pins_of(cache) == ()
    interrupted = tries_of(cache)
    done = lab.rocm_tui(cache, "improve", "--yes", "--budget", "300", "--json")
    assert done.returncode == 0, done.stderr
    tries = tries_of(cache)
    assert tries[: len(interrupted)] == interrupted
    result = document(done.stdout, "improve")
    assert_one_screening_confirmed(tries, result["gain"]["processes"])
    ((candidate,),) = [tuning["candidates"] for tuning in result["tunings"]]
    assert candidate["alone"]["verdict"] == "slower"
    (pin,) = pins_of(cache)
    assert pin.hash == lab.tuned(cache).hash(lab.FAST)
    assert pin.note.startswith(f"improve: graph {graph} ")


def stop_after_a_new_try(cache: Path, number: signal.Signals) -> None:
    """Send a signal to a search once it has made one more try; what was tried stays."""
    before = tries_of(cache)
    running = lab.started(cache, "improve", "--yes", "--budget", "300")
    lab.wait_until(lambda: len(tries_of(cache)) > len(before), running)
    new = tries_of(cache)
    running.send_signal(number)
    output, errors = running.communicate(timeout=120)
    killed = number == signal.SIGKILL
    assert running.returncode == (-number if killed else 128 + number), output + errors
    assert killed or f"To go on: rocm-tui improve {graph_of(cache)}" in errors
    assert new[: len(before)] == before
    assert tries_of(cache)[: len(new)] == new


def test_a_budget_spent_on_preparing_is_no_answer(planted: Path, tmp_path: Path) -> None:
    cache = copied(planted, tmp_path)
    done = lab.rocm_tui(cache, "improve", "--yes", "--budget", "0.1")
    assert done.returncode == 1, done.stderr
    assert "The budget of 0.1 s ran out while preparing; nothing was tried." in done.stdout
    assert "Nothing was found" not in done.stdout
    assert f"rocm-tui improve {graph_of(cache)}" in done.stdout
    assert tries_of(cache) == ()
    assert pins_of(cache) == ()


def test_a_program_compiles_with_the_printed_lines(tmp_path: Path) -> None:
    """Torch accepts each option by name and type in the call, and as a setting."""
    own = [CompileOption(name, value) for name, value, _ in OPTIONS if value != DEFAULT]
    arm = tuple(dict.fromkeys(own))
    calls = [compile_call((option,)) for option in arm]
    on_a_cpu = [option for option in arm if option in worth_trying("cpu")]
    _, _, *settings, _ = options_lines(tuple(on_a_cpu))
    program = f"""
import torch, torch._inductor
def model(x):
    return (x @ x).relu()
{NEWLINE.join(calls)}
compiled = {compile_call(tuple(on_a_cpu))}
assert torch.equal(compiled(torch.ones(4, 4)), model(torch.ones(4, 4)))
import torch._inductor.config
{NEWLINE.join(line.strip() for line in settings)}
"""
    done = subprocess.run(
        [*warm_python(), "-c", program],
        env=child_env(tmp_path),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
