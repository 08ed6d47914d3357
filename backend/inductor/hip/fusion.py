"""Pointwise nodes before and behind a product as the prologue of a factor and the epilogue of the
product.

Inductor's own bodies are run symbolically, so the result is that of its own kernels. As behind
Inductor's templates, the product is first rounded to its tensor's dtype, and values passed between
fused nodes are not rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch

from backend.errors import ExpressionError
from backend.inductor.hip.loops import (
    BATCH,
    LINE,
    Digits,
    Gathered,
    K,
    LoopMap,
    Walk,
    loop_map,
    walk_of,
)
from backend.inductor.hip.operands import STORED, operand_of, stored_dtype
from backend.inductor.torch import pointwise
from backend.inductor.torch.graph import Node
from backend.templates.expressions import ChainBuilder, Value
from backend.templates.fusion import Access, Epilogue, FactorSource, Prologue, Store, place_value
from backend.templates.operand import DType, Expr, Operand, vector_width

OUT = "out"
"""The name of the product's own tensor among a problem's operands."""


@dataclass(frozen=True, slots=True)
class Fused:
    """A fused epilogue: `nodes` has the tensor of each operand that it adds; `removed` are the
    buffers that need no memory any more."""

    epilogue: Epilogue
    nodes: dict[str, Node]
    removed: frozenset[str]


@dataclass(slots=True)
class _ComputedBuffer:
    """A buffer that is computed here: the location of its elements, and their value."""

    walk: Walk
    value: Value


@dataclass(slots=True)
class _EpilogueTracing:
    """The loads and stores of the nodes so far. `sizes` are the product's batch, rows, columns."""

    buffer: Any
    sizes: Sequence[sympy.Expr]
    chain: ChainBuilder
    computed: dict[str, _ComputedBuffer]
    operands: dict[tuple[str, Walk], str] = field(default_factory=dict)

    def add(self, node: Any) -> None:
        """Run one node's body. Raises ExpressionError if it is not a function of an element."""
        ranges, loops = _loops_of(node)
        loops_of_product = self._map(node, ranges, loops)

        def by_dim(index: sympy.Expr) -> Walk:
            return loops_of_product.by_dim(walk_of(index, loops))

        def load(name: str, index: sympy.Expr) -> Value:
            walk, own = by_dim(index), self.computed.get(name)
            if own is None:
                return self._load(name, walk)
            if own.walk != walk:
                raise ExpressionError(f"{name} is read elsewhere than it is computed")
            return own.value

        def store(name: str, index: sympy.Expr, value: Value) -> None:
            dtype = stored_dtype(name)
            self.computed[name] = _ComputedBuffer(by_dim(index), self.chain.cast(value, dtype))

        pointwise.run_body(node, loops, pointwise.ChainHandler(self.chain, load, store))

    def _map(
        self, node: Any, ranges: Sequence[sympy.Expr], loops: Sequence[sympy.Symbol]
    ) -> LoopMap:
        """Return how the node's loops map to the product, from its first load of the product."""
        reads, _ = _accesses(node, loops)
        of_product = next((read for read in reads if read[0] in self.computed), None)
        if of_product is None:
            raise ExpressionError("it reads nothing of the product")
        name, index = of_product
        own, walk = self.computed[name], walk_of(index, loops)
        if walk.offset != own.walk.offset:
            raise ExpressionError("a part of the product")
        return loop_map(ranges, walk, self.sizes, own.walk.steps)

    def _load(self, name: str, walk: Walk) -> Value:
        if any(step.could_extract_minus_sign() for step in walk.steps):
            raise ExpressionError(f"{name} is read backwards")
        operand = self.operands.setdefault((name, walk), f"in{len(self.operands)}")
        return self.chain.load(operand, stored_dtype(name))

    def node(self, name: str, walk: Walk) -> Node:
        """Return the tensor that a walk along the product visits in a buffer."""
        device = self.buffer.get_device()
        return pointwise.part_of(name, self.sizes, walk.steps, walk.offset, device)


def _loops_of(node: Any) -> tuple[Sequence[sympy.Expr], list[sympy.Symbol]]:
    """Return the ranges of a node's loops, and a symbol for each. Raises ExpressionError if its
    body is not a function of an element."""
    if not pointwise.is_pointwise(node):
        raise ExpressionError("no pointwise function")
    ranges = pointwise.ranges(node)
    numbers = range(len(ranges))
    return ranges, [sympy.Symbol(f"loop{n}", integer=True, nonnegative=True) for n in numbers]


def _accesses(
    node: Any, loops: Sequence[sympy.Symbol]
) -> tuple[list[tuple[str, sympy.Expr]], list[sympy.Expr]]:
    """Return the loads of a node's body as (buffer, index), and the indices of its stores."""
    scratch, reads, stored = ChainBuilder(), list[tuple[str, sympy.Expr]](), list[sympy.Expr]()

    def load(name: str, index: sympy.Expr) -> Value:
        reads.append((name, index))
        return scratch.load(name, stored_dtype(name))

    handler = _Handler(scratch, load, lambda name, index, value: stored.append(index))
    pointwise.run_body(node, loops, handler)
    return reads, stored


def fuse(
    buffer: Any, out: Operand, nodes: Sequence[Any], acc: DType, removed: Iterable[str] = ()
) -> Fused:
    """Fuse `nodes` behind the product `out` in `buffer`, in execution order.

    The product is summed in `acc`. Buffers in `removed` are not stored. Raises ExpressionError if
    they cannot be fused.
    """
    name, dtype = buffer.get_name(), pointwise.dtype_name(buffer.get_dtype())
    chain = ChainBuilder()
    value = chain.cast(chain.value(acc), dtype, rounded=True)
    sizes, strides = _three(out.sizes, 1), _three(out.strides, 0)
    # A dimension of size 1 imposes nothing.
    steps = [sympy.S.Zero if n == 1 else step for n, step in zip(sizes, strides, strict=True)]
    own = Walk(tuple(steps), sympy.expand(buffer.get_layout().offset))
    tracing = _EpilogueTracing(buffer, sizes, chain, {name: _ComputedBuffer(own, value)})
    for node in nodes:
        tracing.add(node)
    tensors: dict[str, Node] = {}

    def access(operand: str, buffer_name: str, walk: Walk) -> Access:
        tensors[operand] = buffer if buffer_name == name else tracing.node(buffer_name, walk)
        return _access(operand, tensors[operand], walk, strides)

    loads = [access(to, read, walk) for (read, walk), to in tracing.operands.items()]
    stores = [
        Store(access(OUT if at == 0 else f"to{at}", written, computed.walk), computed.value.step)
        for at, (written, computed) in enumerate(tracing.computed.items())
        if written not in removed
    ]
    if not stores:
        raise ExpressionError("nobody reads what is computed")
    return Fused(Epilogue(chain.steps, tuple(stores), tuple(loads)), tensors, frozenset(removed))


def _access(name: str, node: Node, walk: Walk, out: Sequence[sympy.Expr]) -> Access:
    """Return the access; `out` are the strides of the product, which determine the dimension along
    which the kernel stores."""
    operand = operand_of(name, node, STORED)
    along = 1 if out[1] == 1 and out[2] != 1 else 2
    others = tuple(_number(step) for at, step in enumerate(walk.steps) if at != along)
    vector = vector_width(operand, others) if walk.steps[along] == 1 else 1
    batch, row, col = map(_number, walk.steps)
    return Access(name, operand.dtype, (batch, row, col), vector)


def _number(expr: sympy.Expr) -> Expr:
    return int(expr) if expr.is_Integer else expr


def _three(values: Sequence[Any], fill: int) -> list[sympy.Expr]:
    """Return three values, with a batch if it is missing."""
    return [sympy.expand(value) for value in ([fill] * (3 - len(values)) + list(values))]


_DIMS = {"a": (BATCH, LINE, K), "b": (BATCH, K, LINE)}
"""The dimensions of a factor, the last ones for a matrix."""
_PLACES = {LINE: "line", K: "k"}


@dataclass(frozen=True, slots=True)
class ComputedFactor:
    """A factor that is computed while loading. `nodes` has the tensor of each source."""

    prologue: Prologue
    nodes: Mapping[str, Node]


@dataclass(slots=True)
class _FactorTracing:
    """The loads of the body so far. `factor` is the tensor as the product reads it."""

    side: str
    factor: Node
    chain: ChainBuilder = field(default_factory=ChainBuilder)
    sources: dict[tuple[str, Gathered], str] = field(default_factory=dict)
    result: Value | None = None

    def run(self, node: Any) -> None:
        digits = self._digits(node)

        def load(name: str, index: sympy.Expr) -> Value:
            gathered = digits.gathered(index)
            if handler.partial and not _inside(name, gathered, digits):
                raise ExpressionError(f"{name} is read where it may have no element")
            number = len(self.sources)
            operand = self.sources.setdefault((name, gathered), f"{self.side}{number}")
            return self.chain.load(operand, stored_dtype(name))

        def store(name: str, index: sympy.Expr, value: Value) -> None:
            self.result = value

        handler = _Handler(self.chain, load, store, digits)
        pointwise.run_body(node, digits.values, handler)

    def _digits(self, node: Any) -> Digits:
        """Return the node's loops as parts of the factor's dimensions."""
        ranges, loops = _loops_of(node)
        _, stored = _accesses(node, loops)
        walk = walk_of(stored[0], loops)
        if walk.offset != self.factor.get_layout().offset:
            raise ExpressionError("a part of what is computed")
        sizes = [sympy.expand(size) for size in self.factor.get_size()]
        strides = [sympy.expand(stride) for stride in self.factor.get_stride()]
        loops_of_factor = loop_map(ranges, walk, sizes, strides)
        return Digits(ranges, loops_of_factor, _DIMS[self.side][-len(sizes) :])


@dataclass(frozen=True, slots=True)
class _Range:
    """`first <= index < end`; an end of None is unknown."""

    index: sympy.Expr
    first: int | None = None
    end: int | None = None


class _Handler(pointwise.ChainHandler):
    """A handler that also tracks positions, and the parts of a factor that tensors are joined for
    (`cat`, `stack`): within its part, each of equal parts has the position's remainder. Without
    `digits` positions have an arbitrary value."""

    def __init__(
        self,
        chain: ChainBuilder,
        load: pointwise.Load,
        store: pointwise.Keep,
        digits: Digits | None = None,
    ) -> None:
        super().__init__(chain, load, store)
        self._digits = digits
        self._indices: dict[int, sympy.Expr] = {}
        self._ranges: dict[int, _Range] = {}
        self._within: list[_Range | None] = []

    @property
    def partial(self) -> bool:
        """Whether the current loads are not for all elements."""
        return bool(self._within)

    def _default(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value: Value = super()._default(name, args, kwargs)
        range_ = self._range(name, *args) if len(args) == 2 else None
        if range_ is not None:
            self._ranges[value.step] = range_
        return value

    def _range(self, name: str, left: Value, right: Value) -> _Range | None:
        """Return the range in which such a comparison holds."""
        first, second = self._ranges.get(left.step), self._ranges.get(right.step)
        if name in ("and_", "logical_and", "bitwise_and") and first is not None:
            alike = second is not None and second.index == first.index
            return _Range(first.index, first.first, second.end) if alike and second else None
        index, limit = self._indices.get(left.step), self._indices.get(right.step)
        if index is None or name not in ("ge", "lt"):
            return None
        step = self._chain.steps[right.step]
        number = limit if limit is not None else step.text if step.function == "constant" else None
        if number is None or not sympy.sympify(number).is_Integer:
            return None
        return _Range(index, int(number)) if name == "ge" else _Range(index, None, int(number))

    def masked(self, mask: Value, body: Callable[[], Value], other: float) -> Value:
        """Compute `body` where the mask holds; loads are for all elements, within bounds."""
        self._within.append(self._ranges.get(mask.step))
        try:
            value = body()
        finally:
            self._within.pop()
        return self._chain.where(mask, value, self._chain.constant(other, value.dtype))

    def load(self, name: str, index: sympy.Expr) -> Value:
        return super().load(name, pointwise.plain_index(index, self._remainder))

    def _remainder(self, index: sympy.Expr) -> sympy.Expr:
        """Return the position within a part, if `index` is that of the part being loaded."""
        for part in self._within:
            first, end = (0, None) if part is None else (part.first or 0, part.end)
            if part is None or (end := end or self._end(part.index)) is None:
                continue
            size = end - first
            if size > 0 and first % size == 0 and sympy.expand(index - part.index + first) == 0:
                return pointwise.remainder(part.index, size)
        return index

    def _end(self, index: sympy.Expr) -> int | None:
        """Return the number of positions along a dimension."""
        dim = None if self._digits is None else self._digits.whole(index)
        size = None if dim is None or self._digits is None else self._digits.size(dim)
        return int(size) if size is not None and size.is_Integer else None

    def index_expr(self, index: sympy.Expr, dtype: torch.dtype) -> Value:
        """Return a sum of digits of k. Raises ExpressionError for other indices."""
        index = pointwise.plain_index(index)
        value = self._index(index)
        result = self._chain.cast(value, pointwise.dtype_name(dtype))
        self._indices[result.step] = index
        return result

    def _index(self, index: sympy.Expr) -> Value:
        dim = None if self._digits is None else self._digits.whole(index)
        if dim is not None:
            return place_value(self._chain, _PLACES[dim])
        value = None
        for term in sympy.Add.make_args(sympy.expand(index)):
            times, rest = term.as_independent(*term.free_symbols, as_Add=False)
            if not times.is_Integer or abs(times) > 1 << 20:
                raise ExpressionError(f"{index} is not a position in a factor")
            part = self._chain.constant(int(times), "int32")
            if rest != 1:
                part = self._chain.apply("mul", part, self._place(rest))
            value = part if value is None else self._chain.apply("add", value, part)
        assert value is not None
        return value

    def _place(self, index: sympy.Expr) -> Value:
        if self._digits is None:
            return place_value(self._chain, "k", 1, 1)
        divided = self._digits.place(index)
        if divided is None or divided[0] * divided[1] > 1 << 20:
            raise ExpressionError(f"{index} is not a digit of K")
        return place_value(self._chain, "k", *divided)


def compute(node: Any, factor: Node, side: str) -> ComputedFactor:
    """Return the factor `side`, "a" or "b", as `node` computes it. `factor` is the tensor that the
    product reads, which is all that `node` stores. Raises TemplateError if that is impossible."""
    tracing = _FactorTracing(side, factor)
    tracing.run(node)
    assert tracing.result is not None
    nodes: dict[str, Node] = {}
    sources = []
    for (name, gathered), operand in tracing.sources.items():
        nodes[operand] = _tensor(name, gathered, factor, side)
        source = operand_of(operand, nodes[operand], STORED)
        sources.append(FactorSource(source, gathered.group, gathered.periods))
    return ComputedFactor(Prologue(tuple(sources), tracing.chain.steps, tracing.result.step), nodes)


def _tensor(name: str, gathered: Gathered, factor: Node, side: str) -> Node:
    """Return the elements of a factor's source buffer, as (batch, lines, groups of K)."""
    sizes: list[Any] = [1, 1, 1]
    dims: Sequence[int] = _DIMS[side]
    own = [sympy.expand(size) for size in factor.get_size()]
    for dim, size in zip(dims[-len(own) :], own, strict=True):
        period = 0 if dim == BATCH else gathered.periods[dim - LINE]
        own_size = sympy.Integer(period) if period else size
        sizes[dim] = sympy.ceiling(own_size / gathered.group) if dim == K else own_size
    return pointwise.part_of(name, sizes, gathered.strides, gathered.offset, factor.get_device())


def _inside(name: str, gathered: Gathered, digits: Digits) -> bool:
    """Return whether all sources of a factor's elements certainly exist."""
    last, elements = digits.last(gathered), pointwise.elements(name)
    return last is not None and elements is not None and gathered.offset >= 0 and last < elements
