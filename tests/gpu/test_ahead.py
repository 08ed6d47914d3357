"""What a worker without a GPU compiled for this one is all that this one's worker wants."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from backend.toolchain.code_cache import code_folder
from backend.wire.jobs import CompileJob, EnvironmentJob, Gpu, TuneJob
from rocm_tui.environment import without_gpus
from rocm_tui.jobs.limits import Limits
from rocm_tui.jobs.warm import Workers

pytestmark = pytest.mark.torch

JOB = TuneJob(
    "mm",
    shapes=((256, 512), (512, 384)),
    dtypes=("torch.bfloat16",),
    device="cuda",
    templates=True,
    backends=("ATEN",),
    any_mode=True,
)


def kernels(root: Path) -> set[str]:
    """Names of what is compiled there: HIP's libraries, Triton's folders of kernels."""
    hip = {path.name for path in code_folder(root).glob("*/*.so")}
    return hip | {path.parent.name for path in root.glob("triton/0/*/*.hsaco")}


def test_this_gpus_worker_compiles_nothing_more(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.version.hip:
        pytest.skip("no AMD GPU")
    limits, python = Limits.of_this_machine(), sys.executable
    env = {name: value for name, value in os.environ.items() if name != "TRITON_CACHE_DIR"}
    workers = Workers(tmp_path, most=0)
    there = workers.run(
        EnvironmentJob(compilers=True), print, python=python, env=env, limits=limits
    )
    assert there.arch and there.compute_units and there.compilers
    gpu = Gpu(there.arch, there.compute_units, there.compilers)
    ahead = workers.run(
        CompileJob(JOB, gpu),
        print,
        python=python,
        env={**without_gpus(env), "TRITON_CACHE_DIR": str(tmp_path / "triton" / "0")},
        limits=limits,
    )
    assert ahead.ok and ahead.compiled and not ahead.failed and not ahead.off, ahead
    before = kernels(tmp_path)
    tuned = workers.run(JOB, print, python=python, env=env, limits=limits)
    ours = {choice.name for choice in tuned.choices if str(choice.name).startswith("rocm_")}
    assert tuned.ok and len(ours) == ahead.compiled + ahead.found, tuned
    assert kernels(tmp_path) == before
