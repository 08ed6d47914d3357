"""`tune` on a GPU: Triton choices, the mode that the model was tuned in, a budget, a cancel.

Skipped where torch sees no GPU. It has passed on an NVIDIA H200 with torch 2.11; never yet on AMD.
"""

from __future__ import annotations

import math
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from backend.cache.autotune import read_caches
from backend.disk.layout import Layout
from backend.model.tuning import Tuning
from backend.processes import tree
from rocm_tui.jobs.limits import WorkerDied
from rocm_tui.jobs.tune import TuneOptions, tune
from rocm_tui.jobs.worker import spawn_worker
from tests.support.terminal_lab import alive
from tests.support.torch_models import child_env

pytestmark = pytest.mark.torch

MODEL = """
import sys, torch
from torch._dynamo.utils import counters
a, b = (torch.randn(512, 512, device="cuda", dtype=torch.bfloat16) for _ in "ab")
torch.compile(lambda a, b: a @ b, mode=sys.argv[1])(a, b)
print(counters["inductor"]["select_algorithm_autotune"])
"""
STOCK = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
MODE = "max-autotune-no-cudagraphs"
PROBLEM = Tuning("mm", ((512, 512), (512, 512)), dtypes=("torch.bfloat16", "torch.bfloat16"))


def model(cache: Path, **env: str) -> int:
    """Compile the model without graph caches; how many tunings stock PyTorch benchmarked."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MODEL, MODE],
        env=child_env(cache, {**STOCK, **env}),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout)


def times(cache: Path) -> dict[str, float]:
    (file,), _ = read_caches(Layout(cache))
    (found,) = file.entries.values()
    return dict(found)


class Runs:
    """Does jobs in workers of their own and remembers what was asked and heard."""

    def __init__(self, cache: Path, **env: str) -> None:
        self.cache = cache
        self.env = child_env(cache, env)
        self.modes: list[int] = []
        self.heard: list[Any] = []

    def __call__(self, job: Any) -> Any:
        self.modes.append(job.mode)
        with spawn_worker(sys.executable, self.cache, self.env) as worker:
            return worker.run(job, self.heard.append, 300)


def test_the_model_s_own_mode_is_found_and_it_benchmarks_nothing(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert model(cache) == 1
    before = times(cache)
    assert sum(name.startswith("triton_") for name in before) >= 5
    (file,), _ = read_caches(Layout(cache))
    (key,) = file.entries
    runs = Runs(cache)
    known = Tuning("mm", inputs_key=key.inputs, precision=key.precision)
    tuned = tune(runs, known, TuneOptions())
    assert runs.modes == [0, 1], "mode 0 has other Triton choices, so nothing was tuned in it"
    after = times(cache)
    assert {name: after[name] for name in before} != before
    # Stock PyTorch leaves out what it could not compile, where `tune` says that it failed.
    assert {after[name] for name in after.keys() - before.keys()} <= {math.inf}
    assert tuned.key == key
    told = [progress for progress in runs.heard if progress.total]
    assert told[-1].timed == told[-1].total == len(tuned.choices)
    assert max(progress.compiled for progress in told) >= 5
    assert model(cache) == 0


@pytest.mark.parametrize("subprocesses", ["0", "1"])
def test_a_budget(tmp_path: Path, subprocesses: str) -> None:
    cache = tmp_path / "cache"
    runs = Runs(cache, TORCHINDUCTOR_AUTOTUNE_IN_SUBPROC=subprocesses)
    tuned = tune(runs, PROBLEM, TuneOptions(budget=0.5, mode=1))
    timed = [choice for choice in tuned.choices if choice.ms is not None]
    skipped = [choice for choice in tuned.choices if choice.ms is None]
    assert timed and skipped
    reasons = {str(choice.reason).partition(":")[2].partition(".")[0] for choice in skipped}
    assert " the budget of 0" in reasons
    assert reasons <= {" the budget of 0", " No valid triton configs"}, reasons
    assert model(cache) == 0, "what was left out counts as failed, so the model tunes nothing"


def test_only_some_backends(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    tune(Runs(cache), PROBLEM, TuneOptions(mode=1))
    before = times(cache)
    tuned = tune(Runs(cache), PROBLEM, TuneOptions(mode=1, backends=("TRITON",)))
    assert tuned.choices and all(str(c.hash).startswith("triton_") for c in tuned.choices)
    after = times(cache)
    (aten,) = [name for name in before if name.startswith("mm-")]
    assert after.keys() == before.keys() and after[aten] == before[aten] and after != before
    assert model(cache) == 0


def test_cancel_leaves_no_process(tmp_path: Path) -> None:
    """In the middle of compiling, where Inductor has a pool of processes."""
    job = {"job": "tune", "op": "mm", "shapes": [[768, 768]] * 2, "dtypes": ["torch.float16"]}
    seen = threading.Event()
    cache = tmp_path / "cache"
    with spawn_worker(sys.executable, cache, child_env(cache)) as worker:
        ours: list[int] = []

        def kill() -> None:
            seen.wait(200)
            time.sleep(1.0)
            ours.extend(process.pid for process in tree.tree(worker.pid))
            worker.kill()

        thread = threading.Thread(target=kill)
        thread.start()
        with pytest.raises(WorkerDied):
            worker.exchange(
                {**job, "search_space": "EXHAUSTIVE"}, lambda e: e.get("total") and seen.set()
            )
        thread.join()
    end = time.monotonic() + 60
    while any(map(alive, ours)):
        assert time.monotonic() < end, [pid for pid in ours if alive(pid)]
        time.sleep(0.05)
    assert len(ours) > 1
