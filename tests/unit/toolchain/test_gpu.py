"""The same kernels on a GPU, where this machine has one and a compiler for it."""

from __future__ import annotations

import pytest
import torch

from backend.toolchain import code_cache
from backend.toolchain.target import Compiler, Target, amdgpu, cuda
from backend.toolchain.targets import find_compiler
from tests.support.matrix_units import CDNA, OTHERS
from tests.support.toolchain_kernels import build, call


def target_here() -> Target | None:
    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(0)
    if torch.version.hip:
        return amdgpu(properties.gcnArchName)
    return cuda(f"{properties.major}.{properties.minor}")


TARGET = target_here()
pytestmark = pytest.mark.skipif(TARGET is None, reason="no GPU that torch can use")


def library(name: str) -> code_cache.Library:
    assert TARGET is not None
    compiler = find_compiler(TARGET)
    if not isinstance(compiler, Compiler) or not compiler.loadable:
        pytest.skip(f"no compiler that makes a library for {TARGET}")
    return code_cache.load(build(name, TARGET).path)


@pytest.mark.parametrize("shape", [(64, 64, 16), (1, 1, 1), (65, 67, 33), (512, 512, 512)])
def test_a_tiled_gemm(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    torch.manual_seed(0)
    a, b = torch.randn(m, k).half().cuda(), torch.randn(k, n).half().cuda()
    c = torch.full((m, n), float("nan"), device="cuda").half()
    lib = library("gemm")
    lib.check("gemm", call(lib, "gemm", a, b, c, m, n, k))
    torch.cuda.synchronize()
    exact = a.double() @ b.double()
    size = a.double().abs() @ b.double().abs()
    assert ((c.double() - exact).abs() <= exact.abs() * 2**-10 + size * k * 2**-24 + 1e-7).all()


@pytest.mark.parametrize(("name", "dtype"), [("half", torch.float16), ("bf16", torch.bfloat16)])
def test_conversions(name: str, dtype: torch.dtype) -> None:
    lib = library("numbers")
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).cuda()
    wide = torch.zeros(every.numel(), device="cuda")
    lib.check(name, call(lib, f"{name}_to_float", every, wide, every.numel()))
    torch.cuda.synchronize()
    want = every.cpu().view(dtype).float()
    assert torch.equal(wide.cpu().nan_to_num(nan=7.0), want.nan_to_num(nan=7.0))
    x = torch.randn(2**18).mul(2).exp()
    narrow = torch.zeros(x.numel(), dtype=dtype, device="cuda")
    lib.check(name, call(lib, f"float_to_{name}", x.cuda(), narrow, x.numel()))
    torch.cuda.synchronize()
    assert torch.equal(narrow.cpu(), x.to(dtype))


UNITS = (*CDNA, *OTHERS)


def test_shuffles_and_sums() -> None:
    lib = library("waves")
    x = torch.randint(-9, 9, (5, 1000)).float().cuda()
    sums = torch.zeros(5, device="cuda")
    lib.check("row_sum", call(lib, "row_sum", x, sums, 5, 1000))
    torch.cuda.synchronize()
    assert torch.equal(sums, x.sum(1))


def test_matrix_instructions() -> None:
    if TARGET is None or not TARGET.matrix:
        pytest.skip("no matrix unit that is known here")
    lib = library("matrix")
    for unit in (unit for unit in UNITS if unit.name.startswith(f"{TARGET.matrix}_")):
        if unit.only and TARGET.arch not in unit.only:
            continue
        a = torch.randint(-8, 9, (unit.m, unit.k)).float().to(unit.dtype).cuda()
        b = torch.randint(-8, 9, (unit.k, unit.n)).float().to(unit.dtype).cuda()
        d = torch.zeros(unit.m, unit.n, dtype=unit.sums, device="cuda")
        lib.check(unit.name, call(lib, unit.name, a, b, d))
        torch.cuda.synchronize()
        assert torch.equal(d.cpu().float(), a.cpu().float() @ b.cpu().float()), unit
