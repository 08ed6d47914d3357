"""The matrix products that Inductor tunes, one row each: the order and layout of their inputs,
their arithmetic and their bytes.

Only compulsory bytes count: each operand is read once, the result is written once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Literal

from backend.model.problem import Problem, Shape

Role = Literal["a", "b", "scale_a", "scale_b", "c", "d", "bias", "ends", "copy"]
"""The role of an input of `(scale_a * a) @ (scale_b * b) + c @ d + bias`; a `copy` is b again,
packed for a library; `ends` are the ends of groups of rows."""

OPERANDS: tuple[Role, ...] = ("a", "b", "scale_a", "scale_b", "c", "d", "bias", "ends")
"""The operand order of our templates."""

ITEM_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
    "float8_e4m3fn": 1, "float8_e4m3fnuz": 1, "float8_e5m2": 1, "float8_e5m2fnuz": 1,
}  # fmt: skip
"""Bytes of an element, by dtype."""

TOO_MANY = 1 << 100
"""An upper bound of operations or bytes; sizes from a damaged file may exceed it."""


@dataclass(frozen=True, slots=True)
class Op:
    """A matrix product, `a` (M, K) by `b` (K, N), possibly batched.

    `inputs` are the roles in the order of the inputs key; the last `optional` ones may be missing.
    `function` is torch's function, if its calls make up the op; otherwise the op is a linear
    layer with a frozen `weight`, given as (N, K). The strides of a `packed` weight carry no
    information. `counted` is False if its arithmetic cannot be derived; `result` is the bytes of a
    result element if its type is not the factors'.
    """

    inputs: tuple[Role, ...]
    function: str | None = None
    weight: bool = False
    packed: bool = False
    optional: int = 0
    counted: bool = True
    result: int | None = None
    products: int = 1
    """The number of products as large as a by b."""

    def takes(self, count: int) -> bool:
        """Return whether the op can have this number of inputs."""
        return len(self.inputs) - self.optional <= count <= len(self.inputs)

    @property
    def buildable(self) -> bool:
        """Whether its inputs suffice for a program to call it again."""
        return self.weight or self.function is not None

    def place(self, role: Role) -> int:
        """Return the index of the input with this role."""
        return self.inputs.index(role)

    @property
    def roles(self) -> tuple[Role, ...]:
        """The inputs that our templates take, in the templates' order."""
        return tuple(role for role in OPERANDS if role in self.inputs)

    @property
    def order(self) -> tuple[int, ...]:
        """The index of each of `roles`."""
        return tuple(map(self.place, self.roles))

    @property
    def reorder(self) -> list[int]:
        """The positions of a template's inputs in this op's order."""
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
"""Rows by Inductor's name, without a leading `_`."""


def is_flex(op: str) -> bool:
    """Return whether the op is flex attention, FLASH included."""
    return op.startswith("flex_") and "gemm" not in op


def op_row(op: str) -> Op | None:
    """Return the row of an op, or None if it is not in OPS."""
    return OPS.get(op.lstrip("_"))


def factors(problem: Problem) -> tuple[int, int] | None:
    """Return the indices of the two inputs that a matrix product multiplies; None for other ops."""
    places = _places(problem.op)
    return places if places is not None and max(places) < len(problem.shapes) else None


@lru_cache(256)
def _places(name: str) -> tuple[int, int] | None:
    """Return the indices of the factors; None if the op's work does not follow from its sizes."""
    op = op_row(name)
    return (op.place("a"), op.place("b")) if op is not None and op.counted else None


def gemm_sizes(problem: Problem) -> tuple[int, int, int, int] | None:
    """Return (batch, M, N, K) of a matrix product from the operands' sizes; None for other ops."""
    op, places, shapes = op_row(problem.op), _places(problem.op), problem.shapes
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
    """Return the floating-point operations of a call, 2·M·N·K per batch; None for other ops."""
    op, sizes = op_row(problem.op), gemm_sizes(problem)
    return None if op is None or sizes is None else 2 * op.products * prod(sizes)


def traffic(problem: Problem) -> int | None:
    """Return the bytes that a matrix product must move: each operand and the result, once.

    A result of unknown type counts as the factors' type. Returns None for other ops, or if the size
    of a type is unknown.
    """
    op, sizes, places = op_row(problem.op), gemm_sizes(problem), factors(problem)
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
    """Return the number of elements in memory: a broadcast dimension has stride 0."""
    if strides is None or len(strides) != len(shape):
        return prod(shape)
    return prod(size for size, stride in zip(shape, strides, strict=True) if stride)
