"""Pointwise nodes before and behind a product as the prologue of a factor and as the product's
epilogue.

Inductor's own bodies are run for it, so what is computed is what its own kernels would compute. As
behind its own templates the product is rounded to its tensor's dtype first, and what one fused node
hands to the next is not.
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
    """`nodes` has the tensor of each operand that the epilogue brings; `removed` are the buffers
    that need no memory any more."""

    epilogue: Epilogue
    nodes: dict[str, Node]
    removed: frozenset[str]


@dataclass(slots=True)
class _ComputedBuffer:
    """A buffer that is computed in here: where its elements are, and their value."""

    walk: Walk
    value: Value


@dataclass(slots=True)
class _EpilogueTracing:
    """What the nodes so far have asked for. `sizes` are batch, rows and columns of the product."""

    buffer: Any
    sizes: Sequence[sympy.Expr]
    chain: ChainBuilder
    known: dict[str, _ComputedBuffer]
    operands: dict[tuple[str, Walk], str] = field(default_factory=dict)

    def add(self, node: Any) -> None:
        """Run one node's body. Raises ExpressionError for one that is no function of an element."""
        ranges, loops = _loops_of(node)
        loops_of_product = self._map(node, ranges, loops)

        def by_dim(index: sympy.Expr) -> Walk:
            return loops_of_product.by_dim(walk_of(index, loops))

        def load(name: str, index: sympy.Expr) -> Value:
            walk, own = by_dim(index), self.known.get(name)
            if own is None:
                return self._load(name, walk)
            if own.walk != walk:
                raise ExpressionError(f"{name} is read elsewhere than it is computed")
            return own.value

        def store(name: str, index: sympy.Expr, value: Value) -> None:
            dtype = stored_dtype(name)
            self.known[name] = _ComputedBuffer(by_dim(index), self.chain.cast(value, dtype))

        pointwise.run_body(node, loops, pointwise.ChainHandler(self.chain, load, store))

    def _map(
        self, node: Any, ranges: Sequence[sympy.Expr], loops: Sequence[sympy.Symbol]
    ) -> LoopMap:
        """How the node's loops run over the product, by the first that it reads of it."""
        reads, _ = _accesses(node, loops)
        of_product = next((read for read in reads if read[0] in self.known), None)
        if of_product is None:
            raise ExpressionError("it reads nothing of the product")
        name, index = of_product
        own, walk = self.known[name], walk_of(index, loops)
        if walk.offset != own.walk.offset:
            raise ExpressionError("a part of the product")
        return loop_map(ranges, walk, self.sizes, own.walk.steps)

    def _load(self, name: str, walk: Walk) -> Value:
        if any(step.could_extract_minus_sign() for step in walk.steps):
            raise ExpressionError(f"{name} is read backwards")
        operand = self.operands.setdefault((name, walk), f"in{len(self.operands)}")
        return self.chain.load(operand, stored_dtype(name))

    def node(self, name: str, walk: Walk) -> Node:
        """The tensor that a walk along the product visits in a buffer."""
        device = self.buffer.get_device()
        return pointwise.part_of(name, self.sizes, walk.steps, walk.offset, device)


def _loops_of(node: Any) -> tuple[Sequence[sympy.Expr], list[sympy.Symbol]]:
    """The ranges of a node's loops, and a symbol for each. Raises ExpressionError where its body is
    no function of an element."""
    if not pointwise.is_pointwise(node):
        raise ExpressionError("no pointwise function")
    ranges = pointwise.ranges(node)
    numbers = range(len(ranges))
    return ranges, [sympy.Symbol(f"loop{n}", integer=True, nonnegative=True) for n in numbers]


def _accesses(
    node: Any, loops: Sequence[sympy.Symbol]
) -> tuple[list[tuple[str, sympy.Expr]], list[sympy.Expr]]:
    """What a node's body loads, as (buffer, index), and the indices at which it stores."""
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
    tracing = _EpilogueTracing(buffer, sizes, chain, {name: _ComputedBuffer(own, value)})
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


_DIMS = {"a": (BATCH, LINE, K), "b": (BATCH, K, LINE)}
"""What the dimensions of a factor are, the last ones for a matrix."""
_PLACES = {LINE: "line", K: "k"}


@dataclass(frozen=True, slots=True)
class ComputedFactor:
    """A factor that is computed where it is loaded. `nodes` has the tensor of each source."""

    prologue: Prologue
    nodes: Mapping[str, Node]


@dataclass(slots=True)
class _FactorTracing:
    """What the body has asked for so far. `factor` is the tensor as the product takes it."""

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
        """The node's loops as parts of the factor's dimensions."""
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
    """`first <= index < end`; an end that is None is not known."""

    index: sympy.Expr
    first: int | None = None
    end: int | None = None


class _Handler(pointwise.ChainHandler):
    """Knows places too, and parts of a factor that tensors are put together for (`cat`, `stack`):
    within its part, each of equal parts has the place's remainder. Without `digits` places have
    some value.
    """

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
        """Whether what is loaded now is not for all elements."""
        return bool(self._within)

    def _default(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value: Value = super()._default(name, args, kwargs)
        known = self._range(name, *args) if len(args) == 2 else None
        if known is not None:
            self._ranges[value.step] = known
        return value

    def _range(self, name: str, left: Value, right: Value) -> _Range | None:
        """What is known where such a comparison holds."""
        one, other = self._ranges.get(left.step), self._ranges.get(right.step)
        if name in ("and_", "logical_and", "bitwise_and") and one is not None:
            alike = other is not None and other.index == one.index
            return _Range(one.index, one.first, other.end) if alike and other else None
        index, limit = self._indices.get(left.step), self._indices.get(right.step)
        if index is None or name not in ("ge", "lt"):
            return None
        step = self._chain.steps[right.step]
        number = limit if limit is not None else step.text if step.function == "constant" else None
        if number is None or not sympy.sympify(number).is_Integer:
            return None
        return _Range(index, int(number)) if name == "ge" else _Range(index, None, int(number))

    def masked(self, mask: Value, body: Callable[[], Value], other: float) -> Value:
        """`body` where the mask holds; it loads what is there for all elements."""
        self._within.append(self._ranges.get(mask.step))
        try:
            value = body()
        finally:
            self._within.pop()
        return self._chain.where(mask, value, self._chain.constant(other, value.dtype))

    def load(self, name: str, index: sympy.Expr) -> Value:
        return super().load(name, pointwise.plain_index(index, self._remainder))

    def _remainder(self, index: sympy.Expr) -> sympy.Expr:
        """The place within a part, if `index` is that of the part that is loaded for."""
        for known in self._within:
            first, end = (0, None) if known is None else (known.first or 0, known.end)
            if known is None or (end := end or self._end(known.index)) is None:
                continue
            size = end - first
            if size > 0 and first % size == 0 and sympy.expand(index - known.index + first) == 0:
                return pointwise.remainder(known.index, size)
        return index

    def _end(self, index: sympy.Expr) -> int | None:
        """How many values the place along a dimension has."""
        dim = None if self._digits is None else self._digits.whole(index)
        size = None if dim is None or self._digits is None else self._digits.size(dim)
        return int(size) if size is not None and size.is_Integer else None

    def index_expr(self, index: sympy.Expr, dtype: torch.dtype) -> Value:
        """A sum of digits of k. Raises ExpressionError for others."""
        index = pointwise.plain_index(index)
        value = self._index(index)
        found = self._chain.cast(value, pointwise.dtype_name(dtype))
        self._indices[found.step] = index
        return found

    def _index(self, index: sympy.Expr) -> Value:
        dim = None if self._digits is None else self._digits.whole(index)
        if dim is not None:
            return place_value(self._chain, _PLACES[dim])
        value = None
        for term in sympy.Add.make_args(sympy.expand(index)):
            times, rest = term.as_independent(*term.free_symbols, as_Add=False)
            if not times.is_Integer or abs(times) > 1 << 20:
                raise ExpressionError(f"{index} is no number of a factor")
            part = self._chain.constant(int(times), "int32")
            if rest != 1:
                part = self._chain.apply("mul", part, self._place(rest))
            value = part if value is None else self._chain.apply("add", value, part)
        assert value is not None
        return value

    def _place(self, index: sympy.Expr) -> Value:
        if self._digits is None:
            return place_value(self._chain, "k", 1, 1)
        found = self._digits.place(index)
        if found is None or found[0] * found[1] > 1 << 20:
            raise ExpressionError(f"{index} is no digit of K")
        return place_value(self._chain, "k", *found)


def compute(node: Any, factor: Node, side: str) -> ComputedFactor:
    """The factor `side`, "a" or "b", as `node` computes it. `factor` is the tensor that the product
    takes, which is all of what `node` stores. Raises TemplateError where that cannot be."""
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
    """The elements of a buffer that a factor is computed of, as (batch, lines, groups of K)."""
    sizes: list[Any] = [1, 1, 1]
    dims: Sequence[int] = _DIMS[side]
    own = [sympy.expand(size) for size in factor.get_size()]
    for dim, size in zip(dims[-len(own) :], own, strict=True):
        period = 0 if dim == BATCH else gathered.periods[dim - LINE]
        own_size = sympy.Integer(period) if period else size
        sizes[dim] = sympy.ceiling(own_size / gathered.group) if dim == K else own_size
    return pointwise.part_of(name, sizes, gathered.strides, gathered.offset, factor.get_device())


def _inside(name: str, gathered: Gathered, digits: Digits) -> bool:
    """Whether all that a factor's elements are computed of is certainly there."""
    last, elements = digits.last(gathered), pointwise.elements(name)
    return last is not None and elements is not None and gathered.offset >= 0 and last < elements
