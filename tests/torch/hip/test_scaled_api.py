"""Scaled products as programs ask for them since torch 2.10: `torch.nn.functional.scaled_mm`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.rocm_programs import run

pytestmark = pytest.mark.torch

PROGRAM = """
from torch._inductor import select_algorithm
from torch.nn import functional as F

select_algorithm.add_preprocessing_fn(
    lambda choices: [choice for choice in choices if choice.name.startswith("rocm_")][:1]
)
bf16, e4m3, kinds = torch.bfloat16, torch.float8_e4m3fn, F.ScalingType
left, right = torch.randn(32, 64).to(e4m3), torch.randn(48, 64).to(e4m3).t()
for name, kind, s, t in (
    ("one", kinds.TensorWise, torch.tensor(0.5), torch.tensor(0.25)),
    ("lines", kinds.RowWise, torch.rand(32, 1), torch.rand(1, 48)),
):
    def scaled(a, b, s, t): return F.scaled_mm(a, b, s, kind, t, kind, output_dtype=bf16)
    torch._dynamo.reset()
    got, want = torch.compile(scaled)(left, right, s, t), (left.double() @ right.double()) * s * t
    error = (got.double() - want).abs().max().item()
    assert error < 0.01 * want.abs().max().item(), (name, error)
    print(name, "agrees", error, flush=True)
"""


@pytest.mark.skipif(not hasattr(torch.nn.functional, "scaled_mm"), reason="an older torch")
def test_ours_are_offered_and_right(tmp_path: Path) -> None:
    ran = run(PROGRAM, tmp_path / "cache")
    assert ran.agreed == ["one", "lines"] and len(ran.calls) == 2
