"""Products whose weight is stored in 8 bits."""

from __future__ import annotations

from backend.templates.errors import UnsupportedProblemError
from backend.templates.expressions import ChainBuilder
from backend.templates.operand import Operand
from backend.templates.problem import GemmProblem
from backend.templates.prologue import Prologue, Source


def scaled_int8(x: Operand, weight: Operand, scale: Operand, out: Operand) -> GemmProblem:
    """`out = x @ weight.T * scale`: `x` is (M, K), `weight` (N, K) of int8, `scale` (N,). The sums
    are scaled. Raises UnsupportedProblemError."""
    ranks = [len(operand.sizes) for operand in (x, weight, scale, out)]
    if weight.dtype != "int8" or ranks != [2, 2, 1, 2]:
        raise UnsupportedProblemError(f"a weight of {weight.dtype}, dimensions {ranks}")
    n, k = weight.sizes
    chain = ChainBuilder()
    wide = chain.cast(chain.load(weight.name, weight.dtype), "float32")
    stored = Operand(
        weight.name, weight.dtype, (1, n, k), (0, *weight.strides), weight.offset, weight.base_bytes
    )
    return GemmProblem(
        x,
        Operand("b", x.dtype, (k, n), (n, 1)),
        out,
        b_prologue=Prologue((Source(stored),), chain.steps, wide.step),
        scales=(scale,),
    )
