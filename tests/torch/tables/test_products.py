"""What TunableOp's lines mean: as PyTorch's own tuning of such files builds the products again, and
as BLAS defines a product of matrices that lie column by column."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.cuda import tunable
from torch.overrides import TorchFunctionMode

from backend.model.problem import Problem
from backend.tables.model import problem_of_gemm
from backend.tables.tunableop import product_of

pytestmark = pytest.mark.torch
LAYOUTS = ("NN", "NT", "TN", "TT")
OPS = {
    "mm": "GemmTunableOp",
    "addmm": "GemmAndBiasTunableOp",
    "bmm": "GemmStridedBatchedTunableOp",
}
TYPES = ("float", "double", "BFloat16", "Half", "tf32")


class Products(TorchFunctionMode):  # type: ignore[misc]
    """Which products are asked for; tensors have no memory."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if "device" in kwargs:
            kwargs["device"] = "meta"
        if func in (torch.mm, torch.bmm, torch.nn.functional.linear):
            self.calls.append((func.__name__, args))
        return func(*args, **kwargs)


def line(op: str, type: str, layout: str, sizes: tuple[int, int, int], gap: int, b: int) -> str:
    """As PyTorch writes it; each leading dimension is `gap` more than it must be."""
    m, n, k = sizes
    lda, ldb = (k if layout[0] == "T" else m) + gap, (n if layout[1] == "T" else k) + gap
    batch = f"_B_{b}" if op == "bmm" else ""
    params = f"{layout.lower()}_{m}_{n}_{k}{batch}_ld_{lda}_{ldb}_{m}"
    return f"{OPS[op]}_{type}_{layout},{params}"


def problem(text: str) -> Problem:
    return problem_of_gemm(product_of(*text.split(",")))


@pytest.fixture
def unchanged_precision() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


def drawn(many: int) -> Iterator[tuple[str, str]]:
    """Lines of those that PyTorch builds again, and their op: no size is 1, layouts of a linear
    layer with a bias; and where there are gaps, no more rows than it makes then."""
    draw = random.Random(11)
    for _ in range(many):
        op = draw.choice(tuple(OPS))
        layout = draw.choice(("TN", "NT") if op == "addmm" else LAYOUTS)
        m, n, k = (draw.randint(2, 5000) for _ in range(3))
        gap = draw.choice((0, 0, 8)) if op != "bmm" and n <= max(m, k) else 0
        yield op, line(op, draw.choice(TYPES), layout, (m, n, k), gap, draw.randint(1, 64))


@pytest.mark.usefixtures("unchanged_precision")
def test_pytorch_builds_the_same_product_from_the_same_line() -> None:
    for op, text in drawn(600):
        asked = problem(text)
        with Products() as products, warnings.catch_warnings():
            warnings.simplefilter("error")
            tunable._process_single_offline_gemm(text, 0)
        [(name, given)] = products.calls
        factors = list(given[:2])
        if op == "addmm":
            factors = [given[2], given[0], given[1].t()]
        assert (asked.op, name) in {("mm", "mm"), ("bmm", "bmm"), ("addmm", "linear")}, text
        assert asked.shapes == tuple(tuple(tensor.shape) for tensor in factors), text
        assert asked.strides == tuple(tensor.stride() for tensor in factors), text
        assert asked.dtypes == tuple(str(tensor.dtype) for tensor in factors), text
        if "float_" in text or "tf32" in text:
            tf32 = torch.backends.cuda.matmul.allow_tf32
            assert asked.precision == ("high" if tf32 else "highest"), text


def by_columns(memory: Any, rows: int, columns: int, step: int, turned: bool) -> Any:
    """op(A), from `memory` where A lies column by column; written as BLAS defines it."""
    out = torch.empty(rows, columns, dtype=memory.dtype)
    for i in range(rows):
        for j in range(columns):
            out[i, j] = memory[j + i * step] if turned else memory[i + j * step]
    return out


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", [(3, 4, 5), (1, 4, 5), (3, 1, 5), (3, 4, 1), (1, 1, 1)])
@pytest.mark.parametrize("gap", [0, 2])
def test_the_result_is_that_of_the_call_of_blas(
    layout: str, sizes: tuple[int, int, int], gap: int
) -> None:
    m, n, k = sizes
    asked = problem(line("mm", "double", layout, sizes, gap, 1))
    a_rows, b_rows = (k if layout[0] == "T" else m), (n if layout[1] == "T" else k)
    memory = [torch.randn(100, dtype=torch.float64) for _ in range(2)]
    a = by_columns(memory[0], m, k, a_rows + gap, layout[0] == "T")
    b = by_columns(memory[1], k, n, b_rows + gap, layout[1] == "T")
    first = torch.as_strided(memory[1], asked.shapes[0], asked.strides[0])
    second = torch.as_strided(memory[0], asked.shapes[1], asked.strides[1])
    # the library's result, read row by row, is torch's
    torch.testing.assert_close(torch.mm(first, second).flatten(), (a @ b).t().flatten())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_product_of_a_batch_is_that_of_the_call(layout: str) -> None:
    m, n, k, b = 3, 4, 5, 2
    asked = problem(line("bmm", "double", layout, (m, n, k), 0, b))
    memory = [torch.randn(b * 20, dtype=torch.float64) for _ in range(2)]
    first = torch.as_strided(memory[1], asked.shapes[0], asked.strides[0])
    second = torch.as_strided(memory[0], asked.shapes[1], asked.strides[1])
    got = torch.bmm(first, second)
    for at in range(b):
        turned = layout[0] == "T", layout[1] == "T"
        left = by_columns(memory[0][at * m * k :], m, k, k if turned[0] else m, turned[0])
        right = by_columns(memory[1][at * n * k :], k, n, n if turned[1] else k, turned[1])
        torch.testing.assert_close(got[at], (left @ right).t())
