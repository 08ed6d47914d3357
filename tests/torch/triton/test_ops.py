"""Scaled products and sums of two by our Triton product, in real compiles by its interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.rocm_programs import run
from tests.support.triton_lab import triton_python

pytestmark = pytest.mark.torch

PROGRAM = """
from torch._inductor import select_algorithm

parts = False

def ours_alone(choices):
    ours = [c for c in choices if c.name.startswith("rocm_triton")]
    return [c for c in ours if ("SPLIT_K=1," not in c.description) == parts][:1]

select_algorithm.add_preprocessing_fn(ours_alone)
R, e4m3, bf16 = torch.randn, torch.float8_e4m3fn, torch.bfloat16

def scaled(a, b, scale_a, scale_b, bias=None):
    return torch._scaled_mm(a, b, scale_a, scale_b, bias=bias, out_dtype=bf16)

def plus(a, b, c, d): return torch.relu(a @ b + c @ d)

for parts, k in ((False, 64), (True, 4096)):
    left, right = R(20, k).to(e4m3), R(48, k).to(e4m3).t()
    one, half = torch.tensor(0.25), torch.tensor(0.5)
    agree(f"one-{k}", scaled, left, right, one, half, tolerance=k**0.5 / 16)
    agree(f"lines-{k}", lambda *given: scaled(*given).float() * 2, left, right, torch.rand(20, 1),
          torch.rand(1, 48), R(48).to(bf16), tolerance=k**0.5 / 8)
    agree(f"plus-{k}", plus, R(20, k), R(k, 24), R(20, k), R(k, 24), tolerance=2e-3)
parts = False
agree("plus-laid-otherwise", plus, R(64, 20).t(), R(64, 24), R(64, 20).t(), R(64, 24),
      tolerance=1e-3)
"""


def test_they_are_right_in_one_part_and_in_several(tmp_path: Path) -> None:
    env = {"TRITON_INTERPRET": "1", "ROCM_TUI_TEMPLATE_BUDGET": "40"}
    ran = run(PROGRAM, tmp_path / "cache", env, python=triton_python())
    names = [f"{name}-{k}" for k in (64, 4096) for name in ("one", "lines", "plus")]
    assert ran.agreed == [*names, "plus-laid-otherwise"]
    assert len(ran.calls) == 7
    assert sum("workspace_0" in call for call in ran.calls) == 3
    assert "extern_kernels." not in ran.stderr
    assert ran.stderr.count("rocm-tui:") in (0, 3)  # the closing lines of `run`
