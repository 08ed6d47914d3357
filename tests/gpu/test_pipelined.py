"""Pipelined autotuning, where another process times the choices while lowering goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import torch
from torch._inductor import config
assert config.pipeline_max_autotune_gemm
config.max_autotune_gemm = True
config.benchmark_epilogue_fusion = False  # PyTorch requires it
torch.manual_seed(0)
a, b = torch.randn(2, 512, 768, device="cuda", dtype=torch.float16).unbind()
with torch.no_grad():
    out = torch.compile(lambda a, b: torch.relu(a @ b.t()) + 1)(a, b)
right = torch.relu(a.double() @ b.double().t()) + 1
print(((out - right).abs().max() / right.abs().max()).item() < 1e-2)
"""


def started(cache: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {"TORCHINDUCTOR_PIPELINE_GEMM_AUTOTUNING": "1", "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    command = [sys.executable, *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=500, env={**os.environ, **env}
    )


@pytest.fixture(autouse=True)
def _is_there() -> None:
    config = pytest.importorskip("torch._inductor.config")
    if not hasattr(config, "pipeline_max_autotune_gemm"):
        pytest.skip("this torch has no pipelined autotuning")


@pytest.mark.parametrize("options", [[], ["--templates"]])
def test_under_run_a_program_runs_as_in_stock_pytorch(tmp_path: Path, options: list[str]) -> None:
    stock = started(tmp_path / "stock", "-c", PROGRAM)
    if stock.returncode:  # torch 2.11 ends with a KeyError of its own
        pytest.skip(f"PyTorch itself cannot run it: {stock.stderr.strip().splitlines()[-1]}")
    assert stock.stdout == "True\n"
    words = "-m", "rocm_tui", "run", *options, "--", sys.executable, "-c", PROGRAM
    done = started(tmp_path, *words)
    assert done.returncode == 0 and done.stdout == "True\n", done.stderr
    offered = done.stderr.count("our templates are not offered: pipelined autotuning")
    assert offered == len(options), done.stderr
    listed = started(tmp_path, "-m", "rocm_tui", "ls", "--json")
    document: dict[str, Any] = json.loads(listed.stdout)
    (tuning,) = document["tunings"]
    assert sum(choice["ms"] is not None for choice in tuning["choices"]) > 1, tuning
    sessions = started(tmp_path, "-m", "rocm_tui", "sessions", "--json")
    assert "pipelined" in sessions.stdout
