"""Ops that are no plain product in a wrapper of C++, each once by a kernel of ours and once, where
ours cannot be called, by ATen. Ours are optimized as for a user."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.cpu_offers import onednn_takes_bfloat16
from tests.support.rocm_programs import Ran, run

pytestmark = pytest.mark.torch

OURS = """
from torch._inductor import select_algorithm
from backend.inductor.hip.scheduling import ROCmCPPScheduling

config.cpp_wrapper = True
config.cpp_cache_precompile_headers = False
select_algorithm.add_preprocessing_fn(
    lambda choices: [choice for choice in choices if choice.name.startswith("rocm_")][:1]
)
define = ROCmCPPScheduling.define_rocm_kernel

def all_but_wide(self, kernel, source, buffer, *rest):
    if buffer.get_size()[1] == 48:
        raise RuntimeError("planted")
    return define(self, kernel, source, buffer, *rest)

ROCmCPPScheduling.define_rocm_kernel = all_but_wide
"""
"""Only our choices, from C++; where a result has 48 columns they cannot be called."""

PROGRAM = """
R, bf16, e4m3 = torch.randn, torch.bfloat16, torch.float8_e4m3fn

def ops(a, b, c, d, left, right, one, rows, columns, bias, image, filters, some, tokens, experts,
        ends, x, weight, scales):
    conv = torch.nn.functional.conv2d
    return {
        "plus": torch.relu(a @ b + c @ d),
        "one": torch._scaled_mm(left, right, one, one, out_dtype=bf16),
        "lines": torch._scaled_mm(left, right, rows, columns, bias=bias, out_dtype=bf16),
        "conv": conv(image, filters, stride=(2, 1), padding=(1, 0)),
        "conv-bias": conv(image, filters, some, dilation=2),
        "grouped": torch._grouped_mm(tokens, experts, ends),
        "int8": torch._weight_int8pack_mm(x, weight, scales),
    }

def given(n):
    torch.manual_seed(n)
    fp8 = R(37, 64).to(e4m3), R(n, 64).to(e4m3).t()
    return [
        R(20, 40), R(40, n), R(20, 40), R(40, n), *fp8, torch.tensor(0.5), torch.rand(37, 1),
        torch.rand(1, n), R(n).to(bf16), R(2, 8, 12, 10), R(n, 8, 3, 3), R(n), R(64, 32).to(bf16),
        R(4, 32, n).to(bf16), torch.tensor([16, 20, 50, 64], dtype=torch.int32), R(8, 64).to(bf16),
        torch.randint(-9, 9, (n, 64), dtype=torch.int8), torch.rand(n).to(bf16),
    ]

def both(ours, atens):
    return ops(*ours), ops(*atens)

inputs = given(96), given(48)
for n, got, want in zip((96, 48), torch.compile(both)(*inputs), both(*inputs)):
    for name, right in want.items():
        limit = 2e-5 if right.dtype == torch.float32 else 1e-2
        error = ((got[name].double() - right.double()).abs().max() / right.abs().max()).item()
        assert error < limit, (name, n, error)
        print(f"{name}-{n} agrees {error}", flush=True)
"""

NAMES = ("plus", "one", "lines", "conv", "conv-bias", "grouped", "int8")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    env = {"KERNELS_OPTIMIZED": "1"}
    return run(OURS + PROGRAM, tmp_path_factory.mktemp("cpp_ops") / "cache", env)


def _ours(ran: Ran) -> list[str]:
    return re.findall(r"\brocm_(\w+?)_\d+\((?!const).*\);$", ran.stderr, re.MULTILINE)


def test_each_op_is_right_by_ours_and_by_aten(ran: Ran) -> None:
    assert ran.agreed == [f"{name}-{n}" for n in (96, 48) for name in NAMES]


def test_half_of_the_calls_are_ours(ran: Ran) -> None:
    ours = _ours(ran)
    assert len(ours) == len(NAMES), ours
    assert {"conv", "grouped"} < set(ours)
    assert ran.stderr.count("a kernel of ours cannot be called, ATen's is: RuntimeError") >= 1
    assert "our templates are not offered" not in ran.stderr
    for shim in ("__scaled_mm_out", "_convolution", "__grouped_mm", "__weight_int8pack_mm"):
        assert f"aoti_torch_cpu{shim}(" in ran.stderr
    assert "aoti_torch__mm_plus_mm_out(" in ran.stderr


LINEAR = """
config.freezing = True
F = torch.nn.functional
BEHIND = {
    "packed": None, "plain": lambda y: y, "relu": torch.relu, "silu": F.silu, "gelu": F.gelu,
    "tanh": lambda y: F.gelu(y, approximate="tanh"),
}
layers = {
    (name, n): torch.nn.Linear(64, n, bias=name != "plain").eval().to(
        torch.float32 if name == "packed" else torch.bfloat16)
    for name in BEHIND for n in (96, 48)
}

def model(x, narrow):
    return {
        (name, n): layer(x) if name == "packed" else BEHIND[name](layer(narrow))
        for (name, n), layer in layers.items()
    }

with torch.no_grad():
    given = torch.randn(20, 64), torch.randn(20, 64).bfloat16()
    got, want = torch.compile(model)(*given), model(*given)
for (name, n), right in want.items():
    error = ((got[name, n].double() - right.double()).abs().max() / right.abs().max()).item()
    assert error < (2e-5 if name == "packed" else 2e-2), (name, n, error)
    print(f"{name}-{n} agrees {error}", flush=True)
"""


def test_packed_linear_layers_are_called_from_cpp(tmp_path: Path) -> None:
    ran = run(OURS + LINEAR, tmp_path / "cache")
    names = ("packed", "plain", "relu", "silu", "gelu", "tanh")
    assert ran.agreed == [f"{name}-{n}" for name in names for n in (96, 48)]
    assert len(_ours(ran)) == len(names)
    # By oneDNN where an activation was fused; that of `packed` and `plain` is a plain product.
    fused = 4 if onednn_takes_bfloat16() else 0
    assert len(re.findall(r"CHECK\(aoti_torch_cpu__linear_pointwise\(", ran.stderr)) == fused
    assert "our templates are not offered" not in ran.stderr
