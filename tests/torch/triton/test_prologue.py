"""Pointwise nodes before our Triton product, in real compiles by Triton's interpreter."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.rocm_programs import run
from tests.support.triton_lab import triton_python

pytestmark = pytest.mark.torch

PROGRAM = """
from torch._inductor import lowering, select_algorithm

def ours_alone(choices):
    return [c for c in choices if c.name.startswith("rocm_triton")][:1]

select_algorithm.add_preprocessing_fn(ours_alone)
for op in (torch.ops.aten.cat, torch.ops.aten.cat.default):  # as on a GPU
    lowering.lowerings[op] = lambda inputs, dim=0: lowering.pointwise_cat(
        inputs, lowering._validate_dim(inputs[0], dim, 0))
R, F = torch.randn, torch.nn.functional
M, N, K = 18, 40, 128
def i8(*sizes): return torch.randint(-100, 100, sizes, dtype=torch.int8)
def u8(*sizes): return torch.randint(0, 256, sizes, dtype=torch.uint8)
def scaled(q, s, z): return ((q.view(N, -1, 32).half() - z[:, :, None]) * s[:, :, None]).view(N, K)
def neighbours(w, s, z): return scaled(torch.stack((w & 0xF, w >> 4), -1).reshape(N, K), s, z)
def halves(w, s, z): return scaled(torch.cat((w & 0xF, w >> 4), dim=1), s, z)
def half(*sizes): return (R(*sizes) / 8).half()
groups = half(N, K // 32), half(N, K // 32)

agree("cast", lambda x, w: x.half() @ w, R(M, 37), half(37, N), tolerance=0.02)
agree("one-more", lambda x, w: (x + 1) @ (w + 1), R(M, 37), R(37, N), tolerance=1e-4)
agree("batch", lambda x, w: torch.bmm(x.half(), w), R(3, M, 40), half(3, 40, N), tolerance=0.02)
agree("int8", lambda x, w, s: x @ (w.half() * s), half(M, K), i8(K, N), half(N), tolerance=1)
agree("norm", lambda x, r, g, w: (x.float() * r[:, None]).half() * g @ w,
      half(M, K), R(M), half(K), half(K, N), tolerance=0.05)
agree("int4", lambda x, w, s, z: F.linear(x, neighbours(w, s, z)),
      half(M, K), u8(N, K // 2), *groups, tolerance=0.1)
agree("int4-halves", lambda x, w, s, z: F.linear(x, halves(w, s, z)),
      half(M, K), u8(N, K // 2), *groups, tolerance=0.1)
agree("behind-too", lambda x, w, y: torch.relu(x.half() @ w) + y,
      R(M, K), half(K, N), half(M, N), tolerance=0.02)
"""


def test_factors_are_computed_where_they_are_loaded(tmp_path: Path) -> None:
    ran = run(PROGRAM, tmp_path / "cache", {"TRITON_INTERPRET": "1"}, python=triton_python())
    assert ran.agreed == re.findall(r'^agree\("(.+?)"', PROGRAM, re.MULTILINE)
    assert len(ran.calls) == 8 and "async_compile.cpp_pybinding" not in ran.stderr
    assert ran.stderr.count("rocm-tui:") in (0, 3)  # the closing lines of `run`
