"""The matrix instructions on the CPU: exact sums, the lanes' layout of CDNA."""

from __future__ import annotations

import pytest
import torch

from backend.toolchain.target import cpu
from tests.support.toolchain_kernels import available, call, library

pytestmark = pytest.mark.skipif(not available(cpu()), reason="no C++ compiler")

INSTRUCTIONS = {
    "half16": (torch.float16, 16, 16),
    "half32": (torch.float16, 32, 8),
    "bf16_16": (torch.bfloat16, 16, 16),
    "bf16_32": (torch.bfloat16, 32, 8),
    "float16": (torch.float32, 16, 4),
    "float32": (torch.float32, 32, 2),
}


@pytest.mark.parametrize("source", ["mfma", "builtins"])
@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_exact_where_sums_are_exact(name: str, source: str) -> None:
    """Small integers: whatever the order of the sum, there is one right answer."""
    dtype, m, k = INSTRUCTIONS[name]
    torch.manual_seed(m + k)
    for _ in range(5):
        a, b = torch.randint(-8, 9, (m, k)).to(dtype), torch.randint(-8, 9, (k, m)).to(dtype)
        d = torch.randint(-99, 99, (m, m)).float()
        want = d + a.float() @ b.float()
        assert call(library(source), name, a, b, d) == 0
        assert torch.equal(d, want)


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_each_element_stands_where_cdna_has_it(name: str) -> None:
    """One product alone: no permutation of rows, columns or k goes unseen."""
    dtype, m, k = INSTRUCTIONS[name]
    lib = library("builtins")
    for row, column, at in [(0, 0, 0), (m - 1, 1, k - 1), (5, m - 2, k // 2), (m // 2, 3, 1)]:
        a, b, d = torch.zeros(m, k).to(dtype), torch.zeros(k, m).to(dtype), torch.zeros(m, m)
        a[row, at], b[at, column] = 3, 7
        assert call(lib, name, a, b, d) == 0
        assert d.nonzero().tolist() == [[row, column]]
        assert d[row, column] == 21


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_sums_are_fp32_in_order_of_k(name: str) -> None:
    dtype, m, k = INSTRUCTIONS[name]
    torch.manual_seed(k)
    a, b, d = torch.randn(m, k).to(dtype), torch.randn(k, m).to(dtype), torch.randn(m, m)
    want = d.clone()
    for i in range(k):
        # A product of two floats is exact in double, and so nearly is its sum: one rounding.
        want = (want.double() + a[:, i : i + 1].double() * b[i : i + 1].double()).float()
    assert call(library("mfma"), name, a, b, d) == 0
    # The double rounding of the check itself may differ in the last bit, rarely.
    assert ((d - want).abs() <= want.abs() * 2**-23).all()
    assert (d == want).float().mean() > 0.99


def test_subnormals_are_kept() -> None:
    a, b, d = torch.zeros(16, 16).half(), torch.zeros(16, 16).half(), torch.zeros(16, 16)
    a[2, 3], b[3, 4] = 2**-24, 1
    assert call(library("mfma"), "half16", a, b, d) == 0
    assert d[2, 4] == 2**-24
