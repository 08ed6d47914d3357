"""How the operands of a problem lie in memory. Pure functions."""

from __future__ import annotations

from functools import lru_cache
from sys import intern

from backend.model.ops import OPS, product_of
from backend.model.problem import Problem, Shape

_CONVOLUTION = "convolution"


def layout_of(problem: Problem) -> str:
    """How the two factors of a product lie in memory: `NT`, N by rows and T by columns; `NT+` where
    rows, columns or batches do not lie close together. `NHWC` or `NCHW` of a convolution's input.

    Empty where no source tells the strides, or where they say nothing.
    """
    a, b, turned, image = _factors(problem.op)
    if image:
        return _image(problem)
    shapes, strides = problem.shapes, problem.strides
    if len(strides) != len(shapes) or not 0 <= max(a, b) < len(shapes):
        return ""
    first, second = _operand(shapes[a], strides[a]), _operand(shapes[b], strides[b])
    if first is None or second is None:
        return ""
    (left, left_close), (right, right_close) = first, second
    if turned:
        right = "T" if right == "N" else "N"
    return intern(left + right + ("" if left_close and right_close else "+"))


@lru_cache(64)
def _factors(name: str) -> tuple[int, int, bool, bool]:
    """Where the two factors of an op stand, -1 for one without; whether the second is given as
    (N, K), and multiplied as (K, N); and whether it is a convolution of an image."""
    op, image = product_of(name), name.lstrip("_") == _CONVOLUTION
    if op is None or op.packed:
        return -1, -1, False, image
    return op.place("a"), op.place("b"), op.weight, image


def _operand(shape: Shape, strides: Shape) -> tuple[str, bool] | None:
    """By rows or by columns, and whether its elements lie close together."""
    if len(shape) < 2 or len(strides) != len(shape):
        return None
    if len(shape) == 2 and strides[1] == 1:  # as below, for most of them
        return "N", shape[0] == 1 or strides[0] == shape[1]
    by_rows = shape[-1] == 1 or strides[-1] == 1
    if not by_rows and not (shape[-2] == 1 or strides[-2] == 1):
        return None
    order = [*range(len(shape) - 2), -2, -1] if by_rows else [*range(len(shape) - 2), -1, -2]
    step, close = 1, True
    for at in reversed(order):
        close = close and (shape[at] == 1 or strides[at] == step)
        step *= shape[at]
    return ("N" if by_rows else "T"), close


def _image(problem: Problem) -> str:
    place = OPS[_CONVOLUTION].place("a")
    if place >= len(problem.strides) or len(problem.strides[place]) != 4:
        return ""
    shape, strides = problem.shapes[place], problem.strides[place]
    if len(shape) != 4 or shape[1] == 1 or shape[2] * shape[3] == 1:
        return ""  # the same bytes either way
    return "NHWC" if strides[1] == 1 else "NCHW" if strides[3] == 1 else ""
