"""fp16, bf16 and the math of kernels, against torch: every bit pattern, every rounding boundary."""

from __future__ import annotations

import pytest
import torch

from backend.toolchain.code_cache import Library
from backend.toolchain.target import cpu
from tests.support.functions import ENDS, FUNCTIONS, defect, end_defect, points
from tests.support.toolchain_kernels import available, call, library

pytestmark = pytest.mark.skipif(not available(cpu()), reason="no C++ compiler")

DTYPES = {
    "half": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3fn": torch.float8_e4m3fn,
    "e4m3fnuz": torch.float8_e4m3fnuz,
    "e5m2": torch.float8_e5m2,
    "e5m2fnuz": torch.float8_e5m2fnuz,
}
WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32}
"""Whole numbers of so many bytes."""


def every(dtype: torch.dtype) -> torch.Tensor:
    """All bit patterns of a type."""
    limits = torch.iinfo(WORDS[dtype.itemsize])
    return torch.arange(limits.min, limits.max + 1).to(WORDS[dtype.itemsize]).view(dtype)


@pytest.fixture(params=["hardware", "software"])
def lib(request: pytest.FixtureRequest) -> Library:
    defines = {"RT_CPU_SOFT_HALF": 1} if request.param == "software" else {}
    return library("numbers", **defines)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(WORDS[tensor.element_size()])


def same(got: torch.Tensor, want: torch.Tensor) -> bool:
    """Bit for bit, signed zeros and all; any NaN is as good as another."""
    nan = got.float().isnan() & want.float().isnan()
    return bool(((bits(got) == bits(want)) | nan).all())


@pytest.mark.parametrize("name", DTYPES)
def test_every_bit_pattern_widens_as_in_torch(lib: Library, name: str) -> None:
    values = every(DTYPES[name])
    out = torch.zeros(values.numel())
    assert call(lib, f"{name}_to_float", values, out, values.numel()) == 0
    assert same(out, values.float())


def boundaries(dtype: torch.dtype) -> torch.Tensor:
    """Every value of the type, every midpoint of two neighbours, and the floats beside each."""
    values = every(dtype).float()
    finite = values[values.isfinite()].sort().values
    middle = (finite[1:].double() + finite[:-1].double()).div(2).float()
    top = finite[-1].double() + (finite[-1].double() - finite[-2].double()) / 2
    edges = torch.cat([values, middle, torch.tensor([top, -top]).float()])
    away = torch.tensor(float("inf"))
    return torch.cat([edges, edges.nextafter(away), edges.nextafter(-away)])


@pytest.mark.parametrize("name", DTYPES)
def test_rounding_is_to_nearest_even_as_in_torch(lib: Library, name: str) -> None:
    torch.manual_seed(0)
    any_bits = torch.randint(-(2**31), 2**31, (2**18,), dtype=torch.int64).to(torch.int32)
    x = torch.cat([boundaries(DTYPES[name]), any_bits.view(torch.float32)])
    out = torch.zeros(x.numel(), dtype=DTYPES[name])
    assert call(lib, f"float_to_{name}", x, out, x.numel()) == 0
    assert same(out, x.to(DTYPES[name]))


def evaluate(name: str, x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    assert call(library("numbers"), "math", x, out, x.numel(), list(FUNCTIONS).index(name)) == 0
    return out


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_within_a_few_roundings_of_double(name: str) -> None:
    x = points(name)
    assert defect(name, x, evaluate(name, x)) == ""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_at_the_ends(name: str) -> None:
    assert end_defect(name, evaluate(name, ENDS)) == ""
