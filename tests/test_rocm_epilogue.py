"""Activations behind our kernels: fused where it is certain, right in any case."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.inductor.rocm_epilogue import activation_of
from tests.rocm_programs import Ran

PROGRAM = """
from torch._inductor import select_algorithm
select_algorithm.add_preprocessing_fn(
    lambda choices: [c for c in choices if c.name.startswith("rocm_")][:1] or choices)
R, F = torch.randn, torch.nn.functional
tanh = lambda x: F.gelu(x, approximate="tanh")
for name, function in (("relu", F.relu), ("gelu", F.gelu), ("tanh", tanh), ("silu", F.silu)):
    agree(f"fused-{name}", lambda a, b: function(a @ b), R(20, 32), R(32, 24))
    agree(f"fused16-{name}", lambda a, b: function(a @ b), R(20, 32, dtype=torch.bfloat16),
          R(32, 24, dtype=torch.bfloat16), tolerance=0.2)
agree("fused-bias", lambda c, a, b: F.relu(torch.addmm(c, a, b)), R(24), R(20, 32), R(32, 24))
agree("fused-batch", lambda a, b: F.silu(torch.bmm(a, b)), R(3, 20, 32), R(3, 32, 24))
agree("apart-both", lambda a, b: F.relu(a @ b) + (a @ b).sin(), R(20, 32), R(32, 24))
agree("apart-other", lambda a, b: F.relu(a @ b) * 2, R(20, 32), R(32, 24))
agree("apart-transposed", lambda a, b: F.relu(a @ b).t().contiguous(), R(20, 32), R(32, 24))
agree("apart-elu", lambda a, b: F.elu(a @ b), R(20, 32), R(32, 24))
"""


@pytest.mark.torch
def test_fused_where_it_is_certain(tmp_path: Path) -> None:
    ran = Ran(PROGRAM, tmp_path / "cache")
    agreed = [line.split()[0] for line in ran.done.stdout.splitlines() if " agrees " in line]
    assert len(agreed) == 14
    # A graph whose activation is fused has no kernel of Inductor's own.
    code = ran.done.stderr.split("rocm_tui_load_kernel(r'''")[1:]
    apart = ["async_compile.cpp_pybinding" in part for part in code]
    fused = [name.startswith("fused") for name in agreed]
    assert sum(apart) >= fused.count(False)
    assert apart.count(False) == fused.count(True)


RELU = """def inner_fn(index):
    i0, i1 = index
    tmp0 = ops.load(buf0, i1 + 24 * i0)
    tmp1 = ops.relu(tmp0)
    return tmp1
"""


def test_only_what_is_known_to_the_letter() -> None:
    assert activation_of(RELU, "buf0") == "relu"
    assert activation_of(RELU, "buf1") is None
    assert activation_of(RELU.replace("relu", "abs"), "buf0") is None
    assert activation_of(RELU.replace("return tmp1", "return tmp0"), "buf0") is None
    assert activation_of("", "buf0") is None
    cast = "    tmp2 = ops.to_dtype(tmp0, torch.float16, src_dtype=torch.float32)\n"
    narrow = RELU.replace("    tmp1 = ops.relu(tmp0)\n", cast + "    tmp1 = ops.relu(tmp2)\n")
    assert activation_of(narrow, "buf0") is None
    last = RELU.replace("    return tmp1", cast.replace("tmp0", "tmp1") + "    return tmp2")
    assert activation_of(last, "buf0") == "relu"
