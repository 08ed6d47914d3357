"""A pointwise node before a product as the prologue of a factor: Inductor's own body is run for it,
so what is computed is what its own kernel would compute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
_PLACES = {LINE: "line", K: "k"}


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
            if handler.partial and not _inside(name, found[1], digits):
                raise ExpressionError(f"{name} is read where it may have no element")
            operand = self.sources.setdefault(found, f"{self.side}{len(self.sources)}")
            return self.chain.load(operand, _stored(name))

        def store(name: str, index: sympy.Expr, value: Value) -> None:
            self.result = value

        handler = _Handler(self.chain, load, store, digits)
        pointwise.run_body(node, digits.values, handler)

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
            return place(self._chain, _PLACES[dim])
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
            return place(self._chain, "k", 1, 1)
        found = self._digits.place(index)
        if found is None or found[0] * found[1] > 1 << 20:
            raise ExpressionError(f"{index} is no digit of K")
        return place(self._chain, "k", *found)


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
        sources.append(Source(source, found.group, found.periods))
    return Computed(Prologue(tuple(sources), tracing.chain.steps, tracing.result.step), nodes)


def _tensor(name: str, found: Gathered, factor: Node, side: str) -> Node:
    """The elements of a buffer that a factor is computed of, as (batch, lines, groups of K)."""
    sizes: list[Any] = [1, 1, 1]
    dims: Sequence[int] = _DIMS[side]
    own = [sympy.expand(size) for size in factor.get_size()]
    for dim, size in zip(dims[-len(own) :], own, strict=True):
        period = 0 if dim == BATCH else found.periods[dim - LINE]
        own_size = sympy.Integer(period) if period else size
        sizes[dim] = sympy.ceiling(own_size / found.group) if dim == K else own_size
    return pointwise.part_of(name, sizes, found.strides, found.offset, factor.get_device())


def _inside(name: str, found: Gathered, digits: Digits) -> bool:
    """Whether all that a factor's elements are computed of is certainly there."""
    last, elements = digits.last(found), pointwise.elements(name)
    return last is not None and elements is not None and found.offset >= 0 and last < elements


def _stored(name: str) -> str:
    """The dtype of a buffer. Raises ExpressionError for one that kernels do not read."""
    dtype = pointwise.buffer_dtype(name)
    if dtype not in STORED.values():
        raise ExpressionError(f"{name} is of {dtype}")
    return dtype
