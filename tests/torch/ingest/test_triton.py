"""What Triton really prints of its autotuning, run by its interpreter on the CPU."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.log_lab import read
from tests.support.triton_lab import triton_python

pytestmark = pytest.mark.torch

PROGRAM = """
import torch, triton, triton.language as tl
configs = [triton.Config({"B": 16}, num_warps=2), triton.Config({"B": 32}, num_warps=4)]
timer = lambda run, quantiles: (run(), [0.1] * 3)[1]  # the real one needs a GPU
@triton.autotune(configs=configs, key=["n"], do_bench=timer)
@triton.jit
def add_kernel(x, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + o, tl.load(x + o, mask=o < n) + 1, mask=o < n)
for n in (64, 128):
    add_kernel[lambda meta: (triton.cdiv(n, meta["B"]),)](torch.zeros(n), n)
"""


def test_the_output_of_the_installed_triton_is_read(tmp_path: Path) -> None:
    program = tmp_path / "program.py"  # Triton reads its kernels' source from their file
    program.write_text(PROGRAM)
    env = dict(os.environ, TRITON_INTERPRET="1", TRITON_PRINT_AUTOTUNING="1")
    env["TRITON_CACHE_DIR"] = str(tmp_path / "triton")
    done = subprocess.run(
        [triton_python(), str(program)], env=env, capture_output=True, text=True, check=True
    )
    result = read(done.stdout)
    assert not result.problems
    assert [(t.op, t.inputs_key) for t in result.tunings] == [
        ("triton", 'add_kernel[64, "torch.float32"]'),
        ("triton", 'add_kernel[128, "torch.float32"]'),
    ]
    for tuning in result.tunings:
        assert tuning.seconds.benchmark is not None
        (best,) = tuning.choices
        assert best.ms is None
        assert best.config.keys() >= {"B", "num_warps", "num_stages"}
        assert best.config["B"] in ("16", "32")
