"""Pointwise nodes behind a product as the product's epilogue.

Inductor's own bodies are run for it, so what is computed is what its own kernels would compute. As
behind its own templates the product is rounded to its tensor's dtype first, and what one fused node
hands to the next is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy

from backend.inductor.hip.affine import LoopMap, Walk, loop_map, walk_of
from backend.inductor.hip.operands import STORED, operand_of
from backend.inductor.torch import pointwise
from backend.inductor.torch.graph import Node
from backend.templates.epilogue import Access, Epilogue, Store
from backend.templates.errors import ExpressionError
from backend.templates.expressions import ChainBuilder, Value
from backend.templates.operand import DType, Expr, Operand, vector_width

OUT = "out"
"""The name of the product's own tensor among a problem's operands."""


@dataclass(frozen=True, slots=True)
class Fused:
    """`nodes` has the tensor of each operand that the epilogue brings; `removed` are the buffers
    that need no memory any more."""

    epilogue: Epilogue
    nodes: dict[str, Node]
    removed: frozenset[str]


@dataclass(slots=True)
class _Known:
    """A buffer that is computed in here: where its elements are, and their value."""

    walk: Walk
    value: Value


@dataclass(slots=True)
class _Tracing:
    """What the nodes so far have asked for. `sizes` are batch, rows and columns of the product."""

    buffer: Any
    sizes: Sequence[sympy.Expr]
    chain: ChainBuilder
    known: dict[str, _Known]
    operands: dict[tuple[str, Walk], str] = field(default_factory=dict)

    def add(self, node: Any) -> None:
        """Run one node's body. Raises ExpressionError for one that is no function of an element."""
        if not pointwise.is_pointwise(node):
            raise ExpressionError("no pointwise function")
        ranges = pointwise.ranges(node)
        loops = [
            sympy.Symbol(f"loop{number}", integer=True, nonnegative=True)
            for number in range(len(ranges))
        ]
        found = self._map(node, ranges, loops)

        def by_dim(index: sympy.Expr) -> Walk:
            return found.by_dim(walk_of(index, loops))

        def load(name: str, index: sympy.Expr) -> Value:
            walk, own = by_dim(index), self.known.get(name)
            if own is None:
                return self._load(name, walk)
            if own.walk != walk:
                raise ExpressionError(f"{name} is read elsewhere than it is computed")
            return own.value

        def store(name: str, index: sympy.Expr, value: Value) -> None:
            dtype = _stored(name)
            self.known[name] = _Known(by_dim(index), self.chain.cast(value, dtype))

        pointwise.run_body(node, loops, pointwise.ChainHandler(self.chain, load, store))

    def _map(
        self, node: Any, ranges: Sequence[sympy.Expr], loops: Sequence[sympy.Symbol]
    ) -> LoopMap:
        """How the node's loops run over the product, by the first that it reads of it."""
        reads: list[tuple[_Known, sympy.Expr]] = []

        def load(name: str, index: sympy.Expr) -> Value:
            if name in self.known:
                reads.append((self.known[name], index))
            return scratch.load(name, _stored(name))

        scratch = ChainBuilder()
        ignore = pointwise.ChainHandler(scratch, load, lambda name, index, value: None)
        pointwise.run_body(node, loops, ignore)
        if not reads:
            raise ExpressionError("it reads nothing of the product")
        own, index = reads[0]
        walk = walk_of(index, loops)
        if walk.offset != own.walk.offset:
            raise ExpressionError("a part of the product")
        return loop_map(ranges, walk, self.sizes, own.walk.steps)

    def _load(self, name: str, walk: Walk) -> Value:
        if any(step.could_extract_minus_sign() for step in walk.steps):
            raise ExpressionError(f"{name} is read backwards")
        operand = self.operands.setdefault((name, walk), f"in{len(self.operands)}")
        return self.chain.load(operand, _stored(name))

    def node(self, name: str, walk: Walk) -> Node:
        """The tensor that a walk along the product visits in a buffer."""
        device = self.buffer.get_device()
        return pointwise.part_of(name, self.sizes, walk.steps, walk.offset, device)


def fuse(
    buffer: Any, out: Operand, nodes: Sequence[Any], acc: DType, removed: Iterable[str] = ()
) -> Fused:
    """`nodes` behind the product `out` that `buffer` holds, in the order in which they run.

    The product is summed up in `acc`. What is in `removed` is not stored. Raises ExpressionError
    where they cannot be fused.
    """
    name, dtype = buffer.get_name(), pointwise.dtype_name(buffer.get_dtype())
    chain = ChainBuilder()
    value = chain.cast(chain.value(acc), dtype, rounded=True)
    sizes, strides = _three(out.sizes, 1), _three(out.strides, 0)
    # Nothing is said about a dimension of size 1.
    steps = [sympy.S.Zero if n == 1 else step for n, step in zip(sizes, strides, strict=True)]
    own = Walk(tuple(steps), sympy.expand(buffer.get_layout().offset))
    tracing = _Tracing(buffer, sizes, chain, {name: _Known(own, value)})
    for node in nodes:
        tracing.add(node)
    tensors: dict[str, Node] = {}

    def access(operand: str, buffer_name: str, walk: Walk) -> Access:
        tensors[operand] = buffer if buffer_name == name else tracing.node(buffer_name, walk)
        return _access(operand, tensors[operand], walk, strides)

    loads = [access(to, read, walk) for (read, walk), to in tracing.operands.items()]
    stores = [
        Store(access(OUT if at == 0 else f"to{at}", written, known.walk), known.value.step)
        for at, (written, known) in enumerate(tracing.known.items())
        if written not in removed
    ]
    if not stores:
        raise ExpressionError("nobody reads what is computed")
    return Fused(Epilogue(chain.steps, tuple(stores), tuple(loads)), tensors, frozenset(removed))


def _access(name: str, node: Node, walk: Walk, out: Sequence[sympy.Expr]) -> Access:
    """`out` are the strides of the product, which tell along which dimension the kernel stores."""
    operand = operand_of(name, node, STORED)
    along = 1 if out[1] == 1 and out[2] != 1 else 2
    others = tuple(_number(step) for at, step in enumerate(walk.steps) if at != along)
    vector = vector_width(operand, others) if walk.steps[along] == 1 else 1
    batch, row, col = map(_number, walk.steps)
    return Access(name, operand.dtype, (batch, row, col), vector)


def _number(expr: sympy.Expr) -> Expr:
    return int(expr) if expr.is_Integer else expr


def _three(values: Sequence[Any], fill: int) -> list[sympy.Expr]:
    """With the batch, if it is missing."""
    return [sympy.expand(value) for value in ([fill] * (3 - len(values)) + list(values))]


def _stored(name: str) -> str:
    """The dtype of a buffer. Raises ExpressionError for one that kernels neither read nor write."""
    dtype = pointwise.buffer_dtype(name)
    if dtype not in STORED.values():
        raise ExpressionError(f"{name} is of {dtype}")
    return dtype
