"""The matrix products that Inductor tunes, a row each: the order of their inputs, how each is
built, how much arithmetic and how many bytes it is.

The bytes are the compulsory ones: each operand is read once, the result is written once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Literal

from backend.model.problem import Problem, Shape

Role = Literal["a", "b", "scale_a", "scale_b", "c", "d", "bias", "ends", "copy"]
"""What an input of `(scale_a * a) @ (scale_b * b) + c @ d + bias` is; a `copy` is b once more,
packed for a library; `ends` are those of groups of rows."""

OPERANDS: tuple[Role, ...] = ("a", "b", "scale_a", "scale_b", "c", "d", "bias", "ends")
"""The order of our templates."""

ITEM_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
    "float8_e4m3fn": 1, "float8_e4m3fnuz": 1, "float8_e5m2": 1, "float8_e5m2fnuz": 1,
}  # fmt: skip
"""Of an element, by dtype."""

TOO_MANY = 1 << 100
"""Operations or bytes: sizes from a damaged file."""


@dataclass(frozen=True, slots=True)
class Op:
    """A product of matrices, `a` (M, K) by `b` (K, N), or many of each.

    `inputs` are the roles in the order of the inputs key; the last `optional` ones may be missing.
    `function` is torch's, where the op is made of calls of it; without, it is a linear layer with
    a frozen weight. Such a `weight` is given as (N, K); `packed` says that its strides tell
    nothing.
    `counted` is False where its arithmetic is not told, `result` the bytes of an element of its
    result, if that is not the factors' type.
    """

    inputs: tuple[Role, ...]
    function: str | None = None
    weight: bool = False
    packed: bool = False
    optional: int = 0
    counted: bool = True
    result: int | None = None
    products: int = 1
    """As large as that of a and b."""

    def takes(self, count: int) -> bool:
        """Whether the op may have so many inputs."""
        return len(self.inputs) - self.optional <= count <= len(self.inputs)

    @property
    def buildable(self) -> bool:
        """Whether its inputs tell all that a program needs to ask for it again."""
        return self.weight or self.function is not None

    def place(self, role: Role) -> int:
        """Where the input with this role stands."""
        return self.inputs.index(role)

    @property
    def roles(self) -> tuple[Role, ...]:
        """Those of its inputs that our templates take, in their order."""
        return tuple(role for role in OPERANDS if role in self.inputs)

    @property
    def order(self) -> tuple[int, ...]:
        """Where each of `roles` stands."""
        return tuple(map(self.place, self.roles))

    @property
    def reorder(self) -> list[int]:
        """The inputs of a template in the order in which this op has them."""
        return [self.order.index(place) for place in sorted(self.order)]


OPS: Mapping[str, Op] = {
    "mm": Op(("a", "b"), "mm"),
    "bmm": Op(("a", "b"), "bmm"),
    "addmm": Op(("bias", "a", "b"), "addmm"),
    "baddbmm": Op(("bias", "a", "b"), "baddbmm"),
    "int_mm": Op(("a", "b"), "_int_mm", result=4),
    "scaled_mm": Op(("a", "b", "scale_a", "scale_b", "bias"), "_scaled_mm", optional=1),
    "weight_int8pack_mm": Op(("a", "b", "scale_b"), counted=False),
    "mm_plus_mm": Op(("a", "b", "c", "d"), "mm", products=2),
    "mixed_mm": Op(("a", "b")),
    "convolution": Op(("a", "b", "bias"), optional=1, counted=False),
    "grouped_mm": Op(("a", "b", "ends"), "_grouped_mm", counted=False, optional=1),
    "packed_linear": Op(("a", "copy", "b"), weight=True),
    "linear_unary": Op(("a", "b", "bias"), weight=True, packed=True, optional=1, counted=False),
}
"""By Inductor's name, without a `_` before it."""


def is_flex(op: str) -> bool:
    """Whether it is flex attention, FLASH included."""
    return op.startswith("flex_") and "gemm" not in op


def product_of(op: str) -> Op | None:
    """The row of an op; None if it is no product that is known."""
    return OPS.get(op.lstrip("_"))


def factors(problem: Problem) -> tuple[int, int] | None:
    """Which two of its inputs a matrix product multiplies; None for other ops."""
    places = _places(problem.op)
    return places if places is not None and max(places) < len(problem.shapes) else None


@lru_cache(256)
def _places(name: str) -> tuple[int, int] | None:
    """Where the factors of an op stand; None for one whose sizes say nothing of its work."""
    op = product_of(name)
    return (op.place("a"), op.place("b")) if op is not None and op.counted else None


def gemm_sizes(problem: Problem) -> tuple[int, int, int, int] | None:
    """(batch, M, N, K) of a matrix product, from the operands' sizes; None for other ops."""
    op, places, shapes = product_of(problem.op), _places(problem.op), problem.shapes
    if op is None or places is None or max(places) >= len(shapes):
        return None
    left, right = shapes[places[0]], shapes[places[1]]
    if op.weight:
        right = right[:-2] + right[-2:][::-1]
    if len(left) < 2 or len(right) < 2 or left[-1] != right[-2]:
        return None
    sizes = (prod(left[:-2]), left[-2], right[-1], left[-1])
    return sizes if min(sizes) >= 0 and prod(sizes) < TOO_MANY else None


def flops(problem: Problem) -> int | None:
    """Floating-point operations of one call, 2·M·N·K (times the batch); None for other ops."""
    op, sizes = product_of(problem.op), gemm_sizes(problem)
    return None if op is None or sizes is None else 2 * op.products * prod(sizes)


def traffic(problem: Problem) -> int | None:
    """Bytes that a matrix product has to move: its operands and its result, each once.

    A result whose type no source tells counts as one of the factors' type. None for other ops, or
    where a type's size is not known.
    """
    op, sizes, places = product_of(problem.op), gemm_sizes(problem), factors(problem)
    shapes = problem.shapes
    widths = [ITEM_BYTES.get(dtype.removeprefix("torch.")) for dtype in problem.dtypes]
    if op is None or sizes is None or places is None:
        return None
    if None in widths or len(widths) != len(shapes):
        return None
    batch, m, n, _ = sizes
    strides = problem.strides if len(problem.strides) == len(shapes) else (None,) * len(shapes)
    moved = batch * m * n * (op.result or widths[places[0]] or 0)
    for at, (shape, steps) in enumerate(zip(shapes, strides, strict=True)):
        if op.inputs[at : at + 1] != ("copy",):
            moved += _elements(shape, steps) * (widths[at] or 0)
    return moved if moved < TOO_MANY else None


def _elements(shape: Shape, strides: Shape | None) -> int:
    """How many elements lie in memory: a dimension that is broadcast has stride 0."""
    if strides is None or len(strides) != len(shape):
        return prod(shape)
    return prod(size for size, stride in zip(shape, strides, strict=True) if stride)
