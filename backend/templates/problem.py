"""A matrix product to be computed: its operands and scalar arguments, of which the C signature of a
kernel is made, and what a kernel must know of them in advance.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import sympy

from backend.model.ops import ITEM_BYTES
from backend.templates.errors import UnsupportedProblemError

DType = Literal["float16", "bfloat16", "float32"]
Expr: TypeAlias = sympy.Expr | int
"""A size or stride: a number, or an expression of symbols that are known at run time."""

CPP_TYPE: dict[str, str] = {"float16": "rt::half", "bfloat16": "rt::bf16", "float32": "float"}
VECTOR_BYTES = 16
"""The widest load or store of one lane."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that the kernel reads or writes. Sizes, strides and offset are in elements.

    `name` is the parameter's name in C. The pointer that is passed is that of the first element:
    `offset` tells only how it is aligned. `base_bytes` is the alignment of the storage itself.
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
        """Elements of the widest vector access."""
        return VECTOR_BYTES // self.item_bytes


@dataclass(frozen=True, slots=True)
class ArgInfo:
    """A scalar that the caller chooses at run time: its name and its C type."""

    name: str
    ty: str


@dataclass(frozen=True, slots=True)
class SizeArg:
    """An `int64_t` of the signature that the operands' shapes determine.

    `sizes` and `strides` say for which (operand name, dimension) the template may use it.
    """

    name: str
    value: Expr
    sizes: tuple[tuple[str, int], ...] = ()
    strides: tuple[tuple[str, int], ...] = ()


def is_number(expr: Expr, number: int) -> bool:
    """Whether the expression is this number for every value of its symbols, as far as known."""
    return bool(expr == number)


def power_of_two_factor(expr: Expr, most: int) -> int:
    """The largest power of two up to `most` that divides the expression for all integer symbols."""
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
    """Elements that may be accessed at once along the contiguous dimension.

    `strides` are those of the other dimensions. A power of two, at most 16 bytes.
    """
    most = min(operand.widest, max(1, operand.base_bytes // operand.item_bytes))
    widths = (power_of_two_factor(step, most) for step in (operand.offset, *strides))
    return functools.reduce(math.gcd, widths, most)


Activation = Literal["none", "relu", "gelu", "gelu_tanh", "silu"]
ACTIVATIONS: tuple[Activation, ...] = ("none", "relu", "gelu", "gelu_tanh", "silu")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers, or guesses where the sizes are dynamic: `m` x `k` times `k` x `n`, `batch` times."""

    m: int
    n: int
    k: int
    batch: int = 1


@dataclass(frozen=True, slots=True)
class GemmProblem:
    """`out = activation(alpha * a @ b + beta * bias)`, in fp32 until the store.

    `a` is (M, K) or (B, M, K), `b` (K, N) or (B, K, N), `out` (M, N) or (B, M, N); either dimension
    of a matrix may be the contiguous one. `bias` has up to `out`'s rank and broadcasts to it, by a
    missing dimension, by size 1 or by stride 0; with `beta` 0 it is not read. Raises
    UnsupportedProblemError.
    """

    a: Operand
    b: Operand
    out: Operand
    bias: Operand | None = None
    activation: Activation = "none"
    alpha: float = 1.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        check_factors(self.a, self.b, self.out)
        if self.bias is not None and not 1 <= len(self.bias.sizes) <= len(self.out.sizes):
            raise UnsupportedProblemError(f"a bias of {len(self.bias.sizes)} dimensions")
        if self.activation not in ACTIVATIONS:
            raise UnsupportedProblemError(f"no activation {self.activation}")
        if not (math.isfinite(self.alpha) and math.isfinite(self.beta)):
            raise UnsupportedProblemError(
                f"alpha {self.alpha} and beta {self.beta}: not both finite"
            )
        for operand in (self.a, self.b, self.out):
            contiguous_dim(operand)

    @property
    def batched(self) -> bool:
        return len(self.out.sizes) == 3

    @property
    def m(self) -> Expr:
        return self.out.sizes[-2]

    @property
    def n(self) -> Expr:
        return self.out.sizes[-1]

    @property
    def k(self) -> Expr:
        return self.a.sizes[-1]

    @property
    def batch(self) -> Expr:
        return self.out.sizes[0] if self.batched else 1

    def sizes(self, hint: Callable[[Expr], int] = int) -> Sizes:
        """Numbers for the heuristics; `hint` guesses those that are dynamic."""
        return Sizes(hint(self.m), hint(self.n), hint(self.k), hint(self.batch))

    @property
    def flipped(self) -> bool:
        """Whether `out` is column-major. Then out^T = b^T a^T is what the kernel computes."""
        return contiguous_dim(self.out) == -2

    def inputs(self) -> tuple[Operand | None, ...]:
        """In the order in which a template names them."""
        return self.a, self.b, self.bias

    def size_args(self) -> tuple[SizeArg, ...]:
        """Sizes, then leading strides, then batch strides, then the strides of the bias."""
        a, b, out = self.a, self.b, self.out
        sizes = [
            SizeArg("M", self.m, sizes=((a.name, -2), (out.name, -2))),
            SizeArg("N", self.n, sizes=((b.name, -1), (out.name, -1))),
            SizeArg("K", self.k, sizes=((a.name, -1), (b.name, -2))),
        ]
        if self.batched:
            sizes.append(SizeArg("B", self.batch, sizes=tuple((x.name, 0) for x in (a, b, out))))
        leading = [
            SizeArg(f"ld_{suffix}", leading_stride(x), strides=((x.name, _other_dim(x)),))
            for suffix, x in (("a", a), ("b", b), ("out", out))
        ]
        batch = [
            SizeArg(f"batch_{suffix}", x.strides[0], strides=((x.name, 0),))
            for suffix, x in (("a", a), ("b", b), ("out", out))
            if self.batched
        ]
        return (*sizes, *leading, *batch, *self._bias_args())

    def _bias_args(self) -> tuple[SizeArg, ...]:
        if self.bias is None:
            return ()
        names = ["bias_row", "bias_col"]
        strides = broadcast_strides(self.bias, len(self.out.sizes))
        if self.batched:
            names = ["bias_batch", *names]
        return tuple(SizeArg(name, value) for name, value in zip(names, strides, strict=True))


def check_factors(a: Operand, b: Operand, out: Operand) -> None:
    """Raises UnsupportedProblemError for what is no product, or one of a mixed type."""
    rank = len(out.sizes)
    if rank not in (2, 3) or not len(a.sizes) == len(b.sizes) == rank:
        raise UnsupportedProblemError("a, b and out must all have 2 dimensions, or all 3")
    if a.dtype != b.dtype:
        raise UnsupportedProblemError(f"{a.dtype} times {b.dtype}")


def contiguous_dim(operand: Operand) -> Literal[-1, -2]:
    """Which dimension of the matrix has neighbours in memory. Raises UnsupportedProblemError.

    A dimension of size 1 counts as contiguous: its stride is never used.
    """
    dims: tuple[Literal[-1, -2], ...] = (-1, -2)
    for of_dims in (operand.strides, operand.sizes):
        for dim in dims:
            if is_number(of_dims[dim], 1):
                return dim
    raise UnsupportedProblemError(
        f"{operand.name}: neither rows nor columns are contiguous (strides {operand.strides})"
    )


def _other_dim(operand: Operand) -> int:
    return -3 - contiguous_dim(operand)


def leading_stride(operand: Operand) -> Expr:
    """Elements from one line of the matrix to the next."""
    return operand.strides[_other_dim(operand)]


def widest_access(operand: Operand) -> int:
    """Elements that a vector access of this matrix may have."""
    batch = operand.strides[:1] if len(operand.sizes) == 3 else ()
    return vector_width(operand, (leading_stride(operand), *batch))


def broadcast_strides(operand: Operand, rank: int) -> tuple[Expr, ...]:
    """The strides of an operand that is broadcast to `rank` dimensions."""
    own = zip(operand.sizes, operand.strides, strict=True)
    strides = tuple(0 if is_number(size, 1) else stride for size, stride in own)
    return (0,) * (rank - len(strides)) + strides


@dataclass(frozen=True, slots=True)
class Side:
    """One factor as the kernel sees it: lines of `outer` (rows of the result for the left factor,
    columns for the right one) by K."""

    operand: Operand
    k_fast: bool
    """Whether K is the contiguous dimension."""
    vector: int
    """Elements that may be loaded at once along the contiguous dimension."""
    ld: str
    batch_stride: str


@dataclass(frozen=True, slots=True)
class Canonical:
    """The problem with a row-major result: names of arguments, factors in order."""

    left: Side
    right: Side
    rows: str
    cols: str
    bias_row: str
    bias_col: str
    out_vector: int


def canonical(problem: GemmProblem) -> Canonical:
    """The problem, or its transpose if `out` is column-major."""
    a = _side(problem.a, "a", k_dim=-1)
    b = _side(problem.b, "b", k_dim=-2)
    form = Canonical(a, b, "M", "N", "bias_row", "bias_col", widest_access(problem.out))
    if not problem.flipped:
        return form
    return replace(
        form, left=b, right=a, rows="N", cols="M", bias_row="bias_col", bias_col="bias_row"
    )


def _side(operand: Operand, suffix: str, k_dim: int) -> Side:
    return Side(
        operand,
        k_fast=contiguous_dim(operand) == k_dim,
        vector=widest_access(operand),
        ld=f"ld_{suffix}",
        batch_stride=f"batch_{suffix}",
    )
