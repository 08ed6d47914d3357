"""The tensors of a problem and the numerical arguments of a kernel."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import sympy

from backend.model.ops import ITEM_BYTES
from backend.templates.expressions import CPP_VALUE, NARROW

DType = Literal[
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "bool",
]
"""The type of an element, by torch's name."""
Expr: TypeAlias = sympy.Expr | int
"""A size or stride: a number, or an expression of symbols with values at run time."""

CPP_TYPE: dict[str, str] = {**CPP_VALUE, **NARROW, "bool": "uint8_t"}
ACC: dict[str, DType] = dict.fromkeys((*NARROW, "float32"), "float32")
ACC.update({"float64": "float64", "int8": "int32"})
"""The type of sums for each factor type; other types cannot be factors."""
VECTOR_BYTES = 16
"""The widest load or store of one lane."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that the kernel reads or writes. Sizes, strides and offset are in elements.

    `name` is the parameter's name in C. The pointer passed is that of the first element: `offset`
    only describes its alignment. `base_bytes` is the alignment of the storage itself.
    """

    name: str
    dtype: DType
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    offset: Expr = 0
    base_bytes: int = VECTOR_BYTES

    @property
    def cpp_type(self) -> str:
        return CPP_TYPE[self.dtype]

    @property
    def item_bytes(self) -> int:
        return ITEM_BYTES[self.dtype]

    @property
    def widest(self) -> int:
        """The elements of the widest vector access."""
        return VECTOR_BYTES // self.item_bytes


@dataclass(frozen=True, slots=True)
class ArgInfo:
    """A scalar that the caller chooses at run time: its name and its C type."""

    name: str
    ty: str


@dataclass(frozen=True, slots=True)
class SizeArg:
    """An `int64_t` of the signature that the operands' shapes determine.

    `sizes` and `strides` list the (operand name, dimension) for which the template may use it.
    `most` is the largest value that the entry takes; with None, a larger one takes several
    launches.
    """

    name: str
    value: Expr
    sizes: tuple[tuple[str, int], ...] = ()
    strides: tuple[tuple[str, int], ...] = ()
    most: int | None = None


LARGEST_SIZE = 0x7FFF0000
"""The maximum of a dimension in one launch: an `int` has room for one more tile."""


def is_number(expr: Expr, number: int) -> bool:
    """Return whether the expression certainly is this number for all values of its symbols."""
    return bool(expr == number)


def power_of_two_factor(expr: Expr, most: int) -> int:
    """Return the largest power of two up to `most` that always divides the expression."""
    if isinstance(expr, int) or expr.is_Integer:
        return math.gcd(int(expr), most)
    if expr.is_Mul:
        return math.gcd(math.prod(power_of_two_factor(arg, most) for arg in expr.args), most)
    if expr.is_Add:
        return functools.reduce(math.gcd, (power_of_two_factor(arg, most) for arg in expr.args))
    if expr.is_Pow and isinstance(expr.args[1], sympy.Integer) and expr.args[1] > 0:
        return math.gcd(power_of_two_factor(expr.args[0], most) ** int(expr.args[1]), most)
    return 1


def vector_width(operand: Operand, strides: tuple[Expr, ...]) -> int:
    """Return the elements that may be accessed at once along the contiguous dimension. `strides`
    are those of the other dimensions. A power of two, at most 16 bytes."""
    most = min(operand.widest, max(1, operand.base_bytes // operand.item_bytes))
    widths = (power_of_two_factor(step, most) for step in (operand.offset, *strides))
    return functools.reduce(math.gcd, widths, most)
