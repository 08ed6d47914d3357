"""Our HIP choices on GPUs: the problem's own device, errors that a process cannot get over, memory,
CUDA graphs, torch's own subprocesses. Jobs on one of several GPUs: `measure`, `verify`, `tune`.

Skipped where torch sees no GPU, or one where two are needed. It has run on two NVIDIA H200
with torch 2.11; never yet on AMD.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from backend.cache.autotune import read_caches
from backend.cache.variants import ChoiceVariants
from backend.disk.layout import Layout
from backend.model.events import ChoiceFailed, ChoiceTimed
from rocm_tui.actions.sources import load_model
from tests.support.hooked import by_tuning, sessions
from tests.support.rocm_programs import last_session, pin_ours, run, selections
from tests.support.torch_models import child_env

pytestmark = pytest.mark.torch


def _gpus() -> int:
    count = "import torch; print(torch.cuda.device_count() if torch.cuda.is_available() else 0)"
    done = subprocess.run([sys.executable, "-c", count], capture_output=True, text=True)
    return int(done.stdout.strip() or 0)


@pytest.fixture(scope="module")
def gpus() -> int:
    found = _gpus()
    if not found:
        pytest.skip("torch sees no GPU here")
    return found


def outcome(cache: Path) -> tuple[dict[str, str], set[str]]:
    """Of all tunings of the last process: choices of ours that failed, with why, and the timed."""
    failed: dict[str, str] = {}
    timed: set[str] = set()
    for start, events in last_session(cache):
        names = {choice.hash: str(choice.name) for choice in start.choices}
        for event in events:
            if isinstance(event, ChoiceFailed) and names[event.hash].startswith("rocm_"):
                failed[names[event.hash]] = event.reason
            if isinstance(event, ChoiceTimed) and names[event.hash].startswith("rocm_"):
                timed.add(names[event.hash])
    return failed, timed


ON_ONE = """
from torch._functorch import config as functorch
config.fx_graph_cache = functorch.enable_autograd_cache = False
a, b = (torch.randn(256, 256, device="cuda:1", dtype=torch.float16) for _ in "ab")
assert torch.cuda.current_device() == 0
agree("second", torch.mm, a, b, tolerance=0.5)
agree("first", torch.mm, a.to("cuda:0"), b.to("cuda:0"), tolerance=0.5)
agree("again", lambda a, b: torch.relu(a @ b), a, b, tolerance=0.5)
assert torch.cuda.current_device() == 0
"""


def test_the_second_gpu(gpus: int, tmp_path: Path) -> None:
    """Benchmarked there, and called there once pinned, while the first one is current."""
    if gpus < 2:
        pytest.skip("one GPU")
    cache = tmp_path / "cache"
    run(ON_ONE, cache, code=False)
    failed, timed = outcome(cache)
    assert failed == {} and timed
    pinned = pin_ours(cache)
    ran = run(ON_ONE, cache)
    assert {hash for hash, by in selections(cache).values() if by == "pin"} == set(pinned.values())
    assert len(ran.calls) == 3 and len(ran.agreed) == 3


BOTH = """
import threading
results = []
def compiles(device):
    rows = 192 + 64 * int(device[-1])  # what one GPU has timed serves the others too
    a, b = (torch.randn(rows, 256, device=device, dtype=torch.float16) for _ in "ab")
    form = torch.compile(lambda a, b: a @ b.t(), dynamic=False)
    results.append((form(a, b) - a @ b.t()).abs().max().item() < 0.5)
threads = [threading.Thread(target=compiles, args=(f"cuda:{n}",)) for n in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert results == [True, True]
from backend.inductor.benchmark import process
assert {"cuda:0", "cuda:1"} <= set(process._benches), process._benches
"""


def test_threads_on_two_gpus(gpus: int, tmp_path: Path) -> None:
    if gpus < 2:
        pytest.skip("one GPU")
    run(BOTH, tmp_path / "cache", code=False)
    failed, timed = outcome(tmp_path / "cache")
    assert failed == {} and timed


ILLEGAL = r"""
import copy, dataclasses
from torch._inductor import select_algorithm

def plant(choices):
    ours = next(choice for choice in choices if choice.name.startswith("rocm_gemm"))
    twin = copy.copy(ours)
    twin.name, twin.bmreq = "rocm_illegal", copy.copy(ours.bmreq)
    source, asks = ours.bmreq.spec.source, "if (workspace_size != nullptr) {"
    assert source.count(asks) == 1
    bad = "if (!workspace_size) { rt_bad<<<1, 1, 0, stream>>>(); return 0; }"
    source = source.replace(asks, f"{bad}\n  {asks}")
    header = "#include <rocm_tui/gpu.h>\n__global__ void rt_bad() { *(volatile int*)16 = 1; }\n"
    twin.bmreq.spec = dataclasses.replace(ours.bmreq.spec, source=header + source)
    return [twin, *choices]

select_algorithm.add_preprocessing_fn(plant)
a, b = (torch.randn(256, 256, device="cuda", dtype=torch.float16) for _ in "ab")
agree("mm", torch.mm, a, b, tolerance=0.5)
"""


def test_who_comes_after_an_illegal_access(gpus: int, tmp_path: Path) -> None:
    run(ILLEGAL, tmp_path / "cache", code=False)
    failed, timed = outcome(tmp_path / "cache")
    assert failed.keys() == {"rocm_illegal"} and "illegal" in failed["rocm_illegal"]
    assert any(name.startswith("rocm_gemm") for name in timed)


CAPTURED = """
a = torch.randn(256, 256, device="cuda", dtype=torch.float16)
w, v = (torch.randn(256, 256, device="cuda", dtype=torch.float16) for _ in "wv")
def model(a):
    return torch.relu(a @ w) @ v
form = torch.compile(model, mode="max-autotune", dynamic=False)
with torch.no_grad():
    for n in range(6):
        x = torch.full_like(a, float(n)) + a
        got, want = form(x).clone(), model(x)
        assert (got - want).abs().max() <= 2e-2 * want.abs().max(), n
from torch._dynamo.utils import counters
assert not counters["inductor"]["cudagraph_skips"], counters["inductor"]
print("captured agrees 0")
"""


def test_cuda_graphs(gpus: int, tmp_path: Path) -> None:
    """Pinned, captured and replayed with other inputs."""
    cache = tmp_path / "cache"
    run(CAPTURED, cache, {"ROCM_TUI_TEMPLATE_BUDGET": "2"}, code=False)
    assert outcome(cache)[0] == {}
    pin_ours(cache)
    ran = run(CAPTURED, cache)
    assert ran.calls and ran.agreed == ["captured"]


APART = """
config.autotune_in_subproc = True
config.max_autotune_gemm_backends = "ATEN,TRITON"
a, b = (torch.randn(320, 256, device="cuda", dtype=torch.float16) for _ in "ab")
agree("mm", lambda a, b: a @ b.t(), a, b, tolerance=0.5)
"""


@pytest.mark.parametrize("devices", ["0", "1"])
def test_torchs_subprocesses(gpus: int, devices: str, tmp_path: Path) -> None:
    """Theirs in their pool, which may span all devices; ours in the process of their device."""
    env = {"TORCHINDUCTOR_AUTOTUNE_MULTI_DEVICE": devices}
    run(APART, tmp_path / "cache", env, code=False)
    failed, timed = outcome(tmp_path / "cache")
    assert failed == {} and timed
    (events,) = (events for s in sessions(tmp_path / "cache") for _, events in by_tuning(s))
    assert any(isinstance(event, ChoiceTimed) for event in events)


PEAK = """
import torch
from backend.inductor.benchmark import tensors
from backend.inductor.benchmark.tensors import GemmReference, check_untouched
from backend.inductor.benchmark.tensors import TensorPlan, make_inputs
n = 16384
plans = [TensorPlan("cuda", torch.float16, sizes, (sizes[1], 1)) for sizes in ((n, 64), (64, n))]
inputs = make_inputs(plans)
out = TensorPlan("cuda", torch.float16, (n, n), (n, 1)).make()
torch.mm(*inputs, out=out)
torch.cuda.synchronize()
before = torch.cuda.memory_allocated()
torch.cuda.reset_peak_memory_stats()
GemmReference().expected(inputs).check(out)
check_untouched(out)
print(torch.cuda.max_memory_allocated() - before, tensors.CHUNK_BYTES)
"""


def test_a_check_is_bounded(gpus: int) -> None:
    """A result of 512 MiB; its true values at once would take some 7 GiB."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PEAK], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    peak, bound = map(int, done.stdout.split())
    assert peak <= 1.25 * bound


# Stock PyTorch on several GPUs, and jobs on one of them

STOCK = """
import json, sys, torch
from torch._dynamo.utils import counters
from torch._inductor import config
config.max_autotune, config.max_autotune_gemm_backends = True, "ATEN,TRITON"
config.fx_graph_cache = False
tuned = {}
for index in map(int, sys.argv[1:]):
    torch._dynamo.reset()
    counters.clear()
    with torch.cuda.device(index):
        a, b = (torch.randn(256, 256, device="cuda", dtype=torch.float16) for _ in "ab")
        torch.compile(torch.mm)(a, b)
    tuned[index] = counters["inductor"]["select_algorithm_autotune"]
print(json.dumps(tuned))
"""
SHAPE = ("mm", "256x256", "256x256", "--dtype", "f16", "--backends", "ATEN,TRITON")


def stock(cache: Path, *indices: int) -> dict[int, int]:
    """Compile a product on these GPUs; how many tunings stock PyTorch benchmarked on each."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", STOCK, *map(str, indices)],
        env=child_env(cache, {"TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {int(index): count for index, count in json.loads(done.stdout).items()}


def tui(cache: Path, *words: str, codes: Sequence[int] = (0,)) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "rocm_tui", *words],
        env=child_env(cache),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode in codes, (words, done.stdout[-2000:], done.stderr[-4000:])
    return done.stdout


def fastest(cache: Path) -> dict[int | None, list[str]]:
    """The Triton choices of the product by GPU, the fastest first."""
    (file,), _ = read_caches(Layout(cache))
    (times,) = file.entries.values()
    timed = sorted((ms, name) for name, ms in times.items() if math.isfinite(ms))
    split = ChoiceVariants(cache).by_device(name for _, name in timed)
    split.pop(None, None)
    return split


@pytest.fixture(scope="module")
def both(gpus: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache dir in which stock PyTorch tuned one product on two GPUs."""
    if gpus < 2:
        pytest.skip("one GPU")
    cache = tmp_path_factory.mktemp("both") / "cache"
    assert stock(cache, 0, 1) == {0: 1, 1: 1}
    assert fastest(cache).keys() == {0, 1}
    return cache


@pytest.mark.parametrize("words", [(), ("--device", "1")])
def test_choices_of_the_second_gpu_are_measured_anywhere(
    both: Path, words: tuple[str, ...]
) -> None:
    (row,) = (r for r in load_model(Layout(both)).rows() if r.tuning.device_index == 1)
    first, second = fastest(both)[1][:2]
    asked = ("measure", row.id, first, second, "--budget", "2", "--json", *words)
    measured: dict[str, Any] = json.loads(tui(both, *asked, codes=(0, 1)))["measurement"]
    assert {choice["hash"] for choice in measured["choices"]} == {first, second}
    assert not measured["failed"]


def test_a_pin_is_proved_on_both_gpus(both: Path) -> None:
    (row,) = load_model(Layout(both)).listed()
    tui(both, "pin", row.id, fastest(both)[0][1])
    try:
        assert "called on 0-1" in tui(both, "verify", row.id)
        (proof,) = json.loads(tui(both, "verify", row.id, "--device", "1", "--json"))["pins"]
        assert proof["ok"] and "devices" not in proof
        assert stock(both, 0, 1) == {0: 0, 1: 0}
    finally:
        tui(both, "unpin", row.id)


def test_a_gpu_that_is_named_gets_the_times(gpus: int, tmp_path: Path) -> None:
    if gpus < 2:
        pytest.skip("one GPU")
    tui(tmp_path, "tune", *SHAPE, "--device", "1")
    assert fastest(tmp_path).keys() == {1}
    (row,) = load_model(Layout(tmp_path)).rows()
    assert row.tuning.device_index == 1 and row.tuning.session
    assert stock(tmp_path, 1, 0) == {1: 0, 0: 1}


def test_all_gpus_of_a_kind_get_the_times_of_one(gpus: int, tmp_path: Path) -> None:
    if gpus < 2:
        pytest.skip("one GPU")
    every = range(gpus)
    said = tui(tmp_path, "tune", *SHAPE, "--device", "1", "--all-devices")
    assert "The times are kept for" in said
    assert fastest(tmp_path).keys() == set(every)
    assert stock(tmp_path, *every) == dict.fromkeys(every, 0)
    (log,) = Layout(tmp_path).sessions.glob("*.jsonl")
    (taken,) = (line for line in log.read_text().splitlines() if "times_taken_over" in line)
    assert json.loads(taken)["device"] == 1
