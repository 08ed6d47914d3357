"""The table of ops: operand order, and problems with and without results."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.model.choice import Choice
from backend.model.ops import OPS, factors, flops, op_row, traffic
from backend.model.problem import Problem
from backend.model.tuning import Tuning


@pytest.mark.parametrize(
    ("op", "order", "reorder", "counts"),
    [
        ("mm", (0, 1), [0, 1], {2}),
        ("bmm", (0, 1), [0, 1], {2}),
        ("addmm", (1, 2, 0), [2, 0, 1], {3}),
        ("baddbmm", (1, 2, 0), [2, 0, 1], {3}),
        ("int_mm", (0, 1), [0, 1], {2}),
        ("scaled_mm", (0, 1, 2, 3, 4), [0, 1, 2, 3, 4], {4, 5}),
        ("mm_plus_mm", (0, 1, 2, 3), [0, 1, 2, 3], {4}),
        ("packed_linear", (0, 2), [0, 1], {3}),
        ("linear_unary", (0, 1, 2), [0, 1, 2], {2, 3}),
    ],
)
def test_the_order_of_operands(
    op: str, order: tuple[int, ...], reorder: list[int], counts: set[int]
) -> None:
    row = OPS[op]
    assert row.buildable and (row.order, row.reorder) == (order, reorder)
    assert {count for count in range(6) if row.takes(count)} == counts


def test_ops_that_are_no_product_have_no_arithmetic() -> None:
    assert op_row("flex_attention") is None and op_row("_int_mm") is OPS["int_mm"]
    assert factors(Problem("mm", ((2, 3),))) is None
    assert flops(Problem("linear_unary", ((2, 3), (4, 3)))) is None


def test_two_products_are_twice_the_arithmetic() -> None:
    shapes = ((2, 3), (3, 4), (2, 3), (3, 4))
    assert flops(Problem("mm_plus_mm", shapes)) == 96
    assert flops(Problem("scaled_mm", (*shapes[:2], (), (1, 4)))) == 48


def test_a_tuning_is_its_problem_and_what_came_of_it() -> None:
    shapes = ((2, 3), (3, 4))
    problem = Problem("mm", shapes, precision="high", inputs_key="k", dims=(2, 3, 4), threads=2)
    tuning = Tuning("mm", shapes, precision="high", inputs_key="k", dims=(2, 3, 4), threads=2)
    done = replace(tuning, choices=(Choice("mm", "mm-1", 1.0),))
    assert done.problem == tuning.problem == problem != tuning
    assert done.id == problem.id and done.key == problem.key
    assert flops(done) == flops(problem) == 48


def problem(op: str, *shapes: tuple[int, ...], dtype: str = "torch.bfloat16") -> Problem:
    strides = tuple((shape[-1], 1) if len(shape) == 2 else (1,) * len(shape) for shape in shapes)
    return Problem(op, shapes, strides, (dtype,) * len(shapes), "cuda")


def test_traffic_is_each_operand_and_the_result_once() -> None:
    product = problem("mm", (4096, 4096), (4096, 4096))
    assert traffic(product) == 3 * 4096 * 4096 * 2
    bias = problem("addmm", (64, 32), (64, 16), (16, 32), dtype="torch.float32")
    every = (64 * 32 + 64 * 16 + 16 * 32 + 64 * 32) * 4
    assert traffic(bias) == every
    row_of_bias = replace(bias, strides=((0, 1), *bias.strides[1:]))
    assert traffic(row_of_bias) == every - 63 * 32 * 4
    small = problem("_int_mm", (32, 64), (64, 16), dtype="torch.int8")
    assert traffic(small) == 32 * 64 + 64 * 16 + 32 * 16 * 4
    packed = problem("packed_linear", (32, 64), (9999, 1), (16, 64), dtype="torch.float32")
    assert traffic(packed) == (32 * 64 + 64 * 16 + 32 * 16) * 4
    assert traffic(problem("convolution", (1, 3, 8, 8), (4, 3, 3, 3))) is None
    assert traffic(replace(product, dtypes=("torch.complex64",) * 2)) is None
