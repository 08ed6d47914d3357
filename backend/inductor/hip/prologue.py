"""A pointwise node before a product as the prologue of a factor: Inductor's own body is run for it,
so what is computed is what its own kernel would compute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch

from backend.inductor.hip.affine import loop_map, walk_of
from backend.inductor.hip.gather import BATCH, LINE, Digits, Gathered, K
from backend.inductor.hip.operands import STORED, operand_of
from backend.inductor.torch import pointwise
from backend.inductor.torch.graph import Node
from backend.templates.errors import ExpressionError
from backend.templates.expressions import ChainBuilder, Value
from backend.templates.prologue import Prologue, Source, place

_DIMS = {"a": (BATCH, LINE, K), "b": (BATCH, K, LINE)}
"""What the dimensions of a factor are, the last ones for a matrix."""


@dataclass(frozen=True, slots=True)
class Computed:
    """A factor that is computed where it is loaded. `nodes` has the tensor of each source."""

    prologue: Prologue
    nodes: Mapping[str, Node]


@dataclass(slots=True)
class _Tracing:
    """What the body has asked for so far. `factor` is the tensor as the product takes it."""

    side: str
    factor: Node
    chain: ChainBuilder = field(default_factory=ChainBuilder)
    sources: dict[tuple[str, Gathered], str] = field(default_factory=dict)
    result: Value | None = None

    def run(self, node: Any) -> None:
        digits = self._digits(node)

        def load(name: str, index: sympy.Expr) -> Value:
            found = (name, digits.gathered(index))
            operand = self.sources.setdefault(found, f"{self.side}{len(self.sources)}")
            return self.chain.load(operand, _stored(name))

        def store(name: str, index: sympy.Expr, value: Value) -> None:
            self.result = value

        pointwise.run_body(node, digits.values, _Handler(self.chain, load, store, digits))

    def _digits(self, node: Any) -> Digits:
        """The node's loops as parts of the factor's dimensions."""
        ranges = pointwise.ranges(node)
        loops = [
            sympy.Symbol(f"loop{number}", integer=True, nonnegative=True)
            for number in range(len(ranges))
        ]
        stored: list[sympy.Expr] = []
        scratch = ChainBuilder()
        ignore = _Handler(
            scratch,
            lambda name, index: scratch.load(name, _stored(name)),
            lambda name, index, value: stored.append(index),
        )
        pointwise.run_body(node, loops, ignore)
        walk = walk_of(stored[0], loops)
        if walk.offset != self.factor.get_layout().offset:
            raise ExpressionError("a part of what is computed")
        sizes = [sympy.expand(size) for size in self.factor.get_size()]
        strides = [sympy.expand(stride) for stride in self.factor.get_stride()]
        found = loop_map(ranges, walk, sizes, strides)
        return Digits(ranges, found, _DIMS[self.side][-len(sizes) :])


class _Handler(pointwise.ChainHandler):
    """Knows places too. Without `digits` they have some value."""

    def __init__(
        self,
        chain: ChainBuilder,
        load: pointwise.Load,
        store: pointwise.Keep,
        digits: Digits | None = None,
    ) -> None:
        super().__init__(chain, load, store)
        self._digits = digits

    def index_expr(self, index: sympy.Expr, dtype: torch.dtype) -> Value:
        """A sum of digits of k. Raises ExpressionError for others."""
        value = self._chain.constant(0, "int32")
        for term in sympy.Add.make_args(sympy.expand(index)):
            times, rest = term.as_independent(*term.free_symbols, as_Add=False)
            if not times.is_Integer or abs(times) > 1 << 20:
                raise ExpressionError(f"{index} is no number of a factor")
            part = self._chain.constant(int(times), "int32")
            if rest != 1:
                part = self._chain.apply("mul", part, self._place(rest))
            value = self._chain.apply("add", value, part)
        return self._chain.cast(value, pointwise.dtype_name(dtype))

    def _place(self, index: sympy.Expr) -> Value:
        if self._digits is None:
            return place(self._chain, 1, 1)
        found = self._digits.place(index)
        if found is None or found[0] * found[1] > 1 << 20:
            raise ExpressionError(f"{index} is no digit of K")
        return place(self._chain, *found)


def compute(node: Any, factor: Node, side: str) -> Computed:
    """The factor `side`, "a" or "b", as `node` computes it. `factor` is the tensor that the product
    takes, which is all of what `node` stores. Raises TemplateError where that cannot be."""
    if not pointwise.is_pointwise(node):
        raise ExpressionError("no pointwise function")
    tracing = _Tracing(side, factor)
    tracing.run(node)
    assert tracing.result is not None
    nodes: dict[str, Node] = {}
    sources = []
    for (name, found), operand in tracing.sources.items():
        nodes[operand] = _tensor(name, found, factor, side)
        source = operand_of(operand, nodes[operand], STORED)
        sources.append(Source(source, found.group))
    return Computed(Prologue(tuple(sources), tracing.chain.steps, tracing.result.step), nodes)


def _tensor(name: str, found: Gathered, factor: Node, side: str) -> Node:
    """The elements of a buffer that a factor is computed of, as (batch, lines, groups of K)."""
    sizes: list[Any] = [1, 1, 1]
    dims: Sequence[int] = _DIMS[side]
    own = [sympy.expand(size) for size in factor.get_size()]
    for dim, size in zip(dims[-len(own) :], own, strict=True):
        sizes[dim] = sympy.ceiling(size / found.group) if dim == K and found.group > 1 else size
    return pointwise.part_of(name, sizes, found.strides, found.offset, factor.get_device())


def _stored(name: str) -> str:
    """The dtype of a buffer. Raises ExpressionError for one that kernels do not read."""
    dtype = pointwise.buffer_dtype(name)
    if dtype not in STORED.values():
        raise ExpressionError(f"{name} is of {dtype}")
    return dtype
