"""int8, fp8 and fp64 products of ours on a GPU, in real compiles; every choice is checked there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.rocm_programs import last_session, pin_ours, run

pytestmark = pytest.mark.torch

PROGRAM = """
torch.set_default_device("cuda")
def whole(rows, columns):
    return torch.randint(-128, 128, (rows, columns), dtype=torch.int8)
agree("int_mm", torch._int_mm, whole(64, 512), whole(512, 256), tolerance=0.5)
def wide(*sizes):
    return torch.randn(*sizes, dtype=torch.float64)
agree("double", torch.mm, wide(100, 300), wide(300, 200), tolerance=1e-10)
agree("plus", lambda a, b, c, d: a @ b + c @ d,
      *(torch.randn(256, 256, dtype=torch.bfloat16) for _ in range(4)), tolerance=1.0)
arch = getattr(torch.cuda.get_device_properties(0), "gcnArchName", "")
fp8 = torch.float8_e4m3fnuz if arch.startswith("gfx942") else torch.float8_e4m3fn
def scaled(a, b, scale_a, scale_b):
    return torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16)
a, b = torch.randn(64, 512).to(fp8), torch.randn(256, 512).to(fp8).t()
agree("one", scaled, a, b, torch.tensor(0.5), torch.tensor(0.25), tolerance=0.5)
agree("lines", scaled, a, b, torch.rand(64, 1), torch.rand(1, 256), tolerance=1.0)
def fast(a, b, scale_a, scale_b):
    return torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16, use_fast_accum=True)
a = torch.randn(128, 512).to(fp8)
agree("fast", fast, a, b, torch.tensor(0.5), torch.tensor(0.25), tolerance=0.5)
"""
OPS = {"int_mm", "mm", "mm_plus_mm", "scaled_mm"}


def test_ours_are_right_on_the_device(tmp_path: Path) -> None:
    cache, budget = tmp_path / "cache", {"ROCM_TUI_TEMPLATE_BUDGET": "8"}
    cold = run(PROGRAM, cache, budget, code=False)
    assert "wrong result" not in cold.stderr
    tunings = last_session(cache)
    assert {start.op for start, _ in tunings} == OPS
    pinned = pin_ours(cache)
    again = run(PROGRAM, cache, budget)
    assert again.agreed == cold.agreed and len(again.calls) == len(pinned)
