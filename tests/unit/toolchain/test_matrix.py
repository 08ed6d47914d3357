"""The matrix instructions on the CPU: exact sums, each element where the device has it."""

from __future__ import annotations

import pytest
import torch

from backend.errors import KernelError
from backend.toolchain import code_cache
from backend.toolchain.code_cache import compile
from backend.toolchain.target import INCLUDE, CompileOptions, cpu
from tests.support.matrix_units import CDNA, OTHERS, Instruction
from tests.support.toolchain_kernels import available, cache_root, call, library, source

pytestmark = pytest.mark.skipif(not available(cpu()), reason="no C++ compiler")


EVERY = pytest.mark.parametrize("unit", [*CDNA, *OTHERS], ids=lambda unit: unit.name)


def wrong(lib: code_cache.Library, name: str, unit: Instruction) -> bool:
    """Small integers: whatever the order of the sum, there is one right answer."""
    torch.manual_seed(unit.m + unit.k)
    for _ in range(3):
        a = torch.randint(-8, 9, (unit.m, unit.k)).float().to(unit.dtype)
        b = torch.randint(-8, 9, (unit.k, unit.n)).float().to(unit.dtype)
        d = torch.randint(-99, 99, (unit.m, unit.n)).to(unit.sums)
        want = d + (a.float() @ b.float()).to(unit.sums)
        try:
            lib.check(name, call(lib, name, a, b, d))
        except KernelError:
            return True
        if not torch.equal(d, want):
            return True
    return False


@EVERY
def test_exact_where_sums_are_exact(unit: Instruction) -> None:
    assert not wrong(unit.library, unit.name, unit)


@pytest.mark.parametrize("unit", CDNA, ids=lambda unit: unit.name)
def test_the_builtins_have_the_same_lanes(unit: Instruction) -> None:
    """`builtins.hip` has the layout of CDNA written out."""
    assert not wrong(library("builtins"), unit.name.removeprefix("mfma_"), unit)


@EVERY
def test_each_element_stands_where_it_belongs(unit: Instruction) -> None:
    """One product alone: no permutation of rows, columns or k goes unseen."""
    m, n, k = unit.m, unit.n, unit.k
    for row, column, at in [(0, 0, 0), (m - 1, 1, k - 1), (5, n - 2, k // 2), (m // 2, 3, 1)]:
        a, b = torch.zeros(m, k), torch.zeros(k, n)
        d = torch.zeros(m, n, dtype=unit.sums)
        a[row, at], b[at, column] = 3, 7
        assert call(unit.library, unit.name, a.to(unit.dtype), b.to(unit.dtype), d) == 0
        assert d.nonzero().tolist() == [[row, column]]
        assert d[row, column] == 21


@pytest.mark.parametrize("unit", CDNA, ids=lambda unit: unit.name)
def test_sums_are_fp32_in_order_of_k(unit: Instruction) -> None:
    torch.manual_seed(unit.k)
    a = torch.randn(unit.m, unit.k).to(unit.dtype)
    b, d = torch.randn(unit.k, unit.n).to(unit.dtype), torch.randn(unit.m, unit.n)
    want = d.clone()
    for i in range(unit.k):
        # A product of two floats is exact in double, and so nearly is its sum: one rounding.
        want = (want.double() + a[:, i : i + 1].double() * b[i : i + 1].double()).float()
    assert call(unit.library, unit.name, a, b, d) == 0
    # The double rounding of the check itself may differ in the last bit, rarely.
    assert ((d - want).abs() <= want.abs() * 2**-23).all()
    assert (d == want).float().mean() > 0.99


def test_subnormals_are_kept() -> None:
    a, b, d = torch.zeros(16, 16).half(), torch.zeros(16, 16).half(), torch.zeros(16, 16)
    a[2, 3], b[3, 4] = 2**-24, 1
    assert call(library("matrix"), "mfma_half16", a, b, d) == 0
    assert d[2, 4] == 2**-24


MISTAKES = [
    ("wmma_gfx11_half", "return 2 * r + lane / 16;", "return r + lane / 16 * 8;"),
    ("wmma_gfx11_half", "group(int) { return 0; }", "group(int lane) { return lane / 16; }"),
    ("wmma_gfx12_half", "return 8 * (lane / 16) + r;", "return 2 * r + lane / 16;"),
    ("wmma_gfx12_half", "rt_cpu::wmma_gfx12<T>(&b, &a, d.v)", "rt_cpu::wmma_gfx12<T>(&a, &b, d.v)"),
    ("mma_half", "term / word * 2 * word + i * word +", "i * 2 * word + term / word * word +"),
    ("mma_f64_16", "return term * left_lines + i;", "return i * terms + term;"),
    ("mma_f64_16", "return lane / 4 + r / 2 * 8;", "return lane / 4 + r % 2 * 8;"),
    ("mma_f64_4", "return lane % 4 * 2 + r % 2;", "return lane % 4 + r % 2 * 4;"),
    ("mfma_double", "4 * r + lane / 16;", "4 * (lane / 16) + r;"),
    ("mfma_double", "turned = sizeof(T) < 8", "turned = sizeof(T) <= 8"),
    ("wmma_gfx11_int8", "return 2 * r + lane / 16;", "return r + lane / 16 * 8;"),
    ("wmma_gfx12_e4m3", "return 8 * (lane / 16) + r;", "return 2 * r + lane / 16;"),
    ("mma_half", "return lane / 4 + 8 * (r / 2);", "return lane / 4 + 8 * (r % 2);"),
    ("mma_half", "return 2 * (lane % 4) + r % 2;", "return lane % 4 + 4 * (r % 2);"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "right", "mistake"), MISTAKES)
def test_a_wrong_lane_is_caught(name: str, right: str, mistake: str) -> None:
    header = (INCLUDE / "rocm_tui" / "matrix.h").read_text()
    assert header.count(right) == 1
    gpu = (INCLUDE / "rocm_tui" / "gpu.h").read_text().replace("#pragma once", "")
    gpu = gpu.replace(
        "#include <rocm_tui/matrix.h>", header.replace("#pragma once", "").replace(right, mistake)
    )
    broken = source("matrix").replace("#include <rocm_tui/gpu.h>", gpu)
    unit = next(unit for unit in OTHERS if unit.name == name)
    options = CompileOptions(level=0, defines=(("RT_WAVE", str(unit.wave)),))
    lib = code_cache.load(compile(broken, cpu(), options, cache_root=cache_root()).path)
    assert wrong(lib, name, unit)
