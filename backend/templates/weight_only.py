"""Products whose weight is stored in 8 bits."""

from __future__ import annotations

from backend.templates.epilogue import Access, Epilogue, Store
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
    loads = ChainBuilder()
    wide = loads.cast(loads.load(weight.name, weight.dtype), "float32")
    stored = Operand(
        weight.name, weight.dtype, (1, n, k), (0, *weight.strides), weight.offset, weight.base_bytes
    )
    stores = ChainBuilder()
    scaled = stores.apply("mul", stores.value(), stores.load(scale.name, scale.dtype))
    to = Access(out.name, out.dtype, (0, out.strides[0], out.strides[1]))
    return GemmProblem(
        x,
        Operand("b", x.dtype, (k, n), (n, 1)),
        out,
        epilogue=Epilogue(
            stores.steps,
            (Store(to, scaled.step),),
            (Access(scale.name, scale.dtype, (0, 0, scale.strides[0])),),
        ),
        b_prologue=Prologue((Source(stored),), loads.steps, wide.step),
    )
