"""Bodies of pointwise nodes as our steps: Inductor runs them with operations that record their
calls.

Checked with torch 2.13.0 (`torch/_inductor/ops_handler.py`, `loop_body.py`, `scheduler.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.ops_handler import DefaultHandler
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import Identity, ModularIndexing

from backend.errors import ExpressionError
from backend.templates.expressions import ChainBuilder, Value

Load = Callable[[str, sympy.Expr], Value]
"""The value of a buffer at an index."""
Keep = Callable[[str, sympy.Expr, Value], None]
"""Receives a value that a body stores into a buffer."""


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class ChainHandler(DefaultHandler):  # type: ignore[misc]
    """Inductor's operations on `Value`s. Unknown operations raise ExpressionError."""

    def __init__(self, chain: ChainBuilder, load: Load, store: Keep) -> None:
        self._chain = chain
        self._load = load
        self._store = store

    def _default(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs or not args or not all(isinstance(arg, Value) for arg in args):
            raise ExpressionError(f"{name} is not a function of the elements alone")
        return self._chain.apply(name, *args)

    def constant(self, value: float, dtype: torch.dtype) -> Value:
        return self._chain.constant(value, dtype_name(dtype))

    def load(self, name: str, index: sympy.Expr) -> Value:
        return self._load(name, index)

    def store(self, name: str, index: sympy.Expr, value: Value, mode: Any = None) -> None:
        if mode is not None:
            raise ExpressionError(f"a store with {mode}")
        self._store(name, index, value)

    def to_dtype(
        self,
        x: Value,
        dtype: torch.dtype,
        src_dtype: torch.dtype | None = None,
        use_compute_types: bool = True,
    ) -> Value:
        """Cast; narrow floats stay fp32, unless the program requires eager rounding."""
        return self._chain.cast(x, dtype_name(dtype), rounded=not use_compute_types)

    def where(self, condition: Value, input: Value, other: Value) -> Value:
        return self._chain.where(condition, input, other)

    def identity(self, x: Value) -> Value:
        return x

    def trunc_to_int(self, x: Value, dtype: torch.dtype) -> Value:
        return self._chain.cast(x, dtype_name(dtype))

    def floor_to_int(self, x: Value, dtype: torch.dtype) -> Value:
        return self._chain.cast(self._chain.apply("floor", x), dtype_name(dtype))

    def ceil_to_int(self, x: Value, dtype: torch.dtype) -> Value:
        return self._chain.cast(self._chain.apply("ceil", x), dtype_name(dtype))

    def round_to_int(self, x: Value, dtype: torch.dtype) -> Value:
        return self._chain.cast(self._chain.apply("round", x), dtype_name(dtype))

    def div_rn(self, x0: Value, x1: Value) -> Value:
        return self._chain.apply("truediv", x0, x1)

    def output(self, *args: Any) -> None:
        """Do nothing at the end of a body."""


def is_pointwise(node: Any) -> bool:
    """Return whether a scheduler node computes one buffer by element, and changes no other."""
    buffer = getattr(node, "node", None)
    return (
        isinstance(buffer, ir.ComputedBuffer)
        and isinstance(buffer.data, ir.Pointwise)
        and not isinstance(buffer.data, ir.Scatter)
        and not node.has_aliasing_or_mutation()
        and hasattr(node, "_body")
    )


def ranges(node: Any) -> Sequence[sympy.Expr]:
    """Return the loop sizes of a pointwise node, outermost first."""
    loops, reduced = node._body.sizes
    if any(size != 1 for size in reduced):
        raise ExpressionError("a loop that adds up")
    return [sympy.sympify(size) for size in loops]


def run_body(node: Any, index: Sequence[sympy.Expr], handler: ChainHandler) -> None:
    """Run the body of a node once, with these values of its loops. Raises ExpressionError."""
    rest = [sympy.Integer(0)] * len(node._body.sizes[1])
    with V.set_ops_handler(handler):
        node._body(list(index), rest)


def buffer_dtype(name: str) -> str:
    return dtype_name(V.graph.get_dtype(name))


def elements(name: str) -> int | None:
    """Return the number of elements in a buffer; None if unknown."""
    count = sympy.sympify(V.graph.get_numel(name))
    return int(count) if count.is_Integer else None


def remainder(index: sympy.Expr, size: int) -> sympy.Expr:
    return ModularIndexing(index, sympy.Integer(1), sympy.Integer(size))


def plain_index(
    index: sympy.Expr, inner: Callable[[sympy.Expr], sympy.Expr] = lambda index: index
) -> sympy.Expr:
    """Return an index without the marks that keep sums together, applying `inner` to each. A nested
    remainder becomes one of the number itself, if one divisor divides the other."""
    plain = sympy.sympify(index).replace(Identity, inner)
    return plain.replace(_nested, _unnested)


def _nested(index: sympy.Expr) -> bool:
    if not isinstance(index, ModularIndexing) or not isinstance(index.args[0], ModularIndexing):
        return False
    whole, part = index.args[0].args[2], index.args[1] * index.args[2]
    return bool(whole.is_Integer and part.is_Integer and whole % part == 0)


def _unnested(index: sympy.Expr) -> sympy.Expr:
    inner, divisor, modulus = index.args
    return ModularIndexing(inner.args[0], inner.args[1] * divisor, modulus)


def part_of(
    name: str, sizes: Sequence[Any], strides: Sequence[Any], offset: Any, device: torch.device
) -> Any:
    """Return the tensor of a buffer with its own layout. Raises ExpressionError if the graph has no
    such buffer on the device."""
    buffer = V.graph.try_get_buffer(name)
    while isinstance(buffer, ir.MutableBox):
        buffer = buffer.data
    if not isinstance(buffer, ir.Buffer) or buffer.get_device() != device:
        raise ExpressionError(f"{name} is not a tensor of the device")
    layout = ir.FixedLayout(device, buffer.get_dtype(), list(sizes), list(strides), offset)
    return ir.ReinterpretView(data=ir.StorageBox(buffer), layout=layout)


def removable(names: Sequence[str], nodes: Sequence[Any]) -> frozenset[str]:
    """Return the buffers that only these nodes read."""
    operations = {operation for node in nodes for operation in node.get_operation_names()}
    may = V.graph.scheduler.can_buffer_be_removed_through_fusion
    return frozenset(name for name in names if may(name, operations))
