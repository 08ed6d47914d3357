"""A matrix product to be computed: its operands and scalar arguments, of which the C signature of a
kernel is made, and what a kernel must know of them in advance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from backend.model.ops import ITEM_BYTES
from backend.templates.epilogue import Access, Epilogue, Place, place, plain, statements
from backend.templates.errors import UnsupportedProblemError
from backend.templates.operand import (
    ACC,
    CPP_TYPE,
    LARGEST_SIZE,
    VECTOR_BYTES,
    ArgInfo,
    DType,
    Expr,
    Operand,
    SizeArg,
    is_number,
    vector_width,
)

__all__ = [
    "ACTIVATIONS",
    "LARGEST_SIZE",
    "VECTOR_BYTES",
    "Activation",
    "ArgInfo",
    "Canonical",
    "DType",
    "Expr",
    "GemmProblem",
    "Operand",
    "Side",
    "SizeArg",
    "Sizes",
    "broadcast_strides",
    "canonical",
    "check_factors",
    "check_sums",
    "contiguous_dim",
    "is_number",
    "leading_stride",
    "vector_width",
    "widest_access",
]

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
    """`out = epilogue(activation(alpha * a @ b + beta * bias))`, in `acc` until the store.

    `a` is (M, K) or (B, M, K), `b` (K, N) or (B, K, N), `out` (M, N) or (B, M, N); either dimension
    of a matrix may be the contiguous one. `bias` has up to `out`'s rank and broadcasts to it, by a
    missing dimension, by size 1 or by stride 0; with `beta` 0 it is not read. An `epilogue` stores
    what it says, and `out` only if a store of it has that name; `out` still tells which way the
    kernel writes. Raises UnsupportedProblemError.
    """

    a: Operand
    b: Operand
    out: Operand
    bias: Operand | None = None
    activation: Activation = "none"
    alpha: float = 1.0
    beta: float = 1.0
    epilogue: Epilogue | None = None

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
        check_sums(self.acc, self.out)
        if self.acc != "float32" and self.activation not in ("none", "relu"):
            raise UnsupportedProblemError(f"{self.activation} of {self.acc}")
        if self.acc == "int32" and (self.alpha != 1 or self.bias is not None):
            raise UnsupportedProblemError("whole numbers are only multiplied and added up")

    @property
    def acc(self) -> DType:
        """The type of sums, and of partial sums in the workspace."""
        return ACC[self.a.dtype]

    @property
    def acc_bytes(self) -> int:
        return ITEM_BYTES[self.acc]

    @property
    def acc_type(self) -> str:
        return CPP_TYPE[self.acc]

    @property
    def store_type(self) -> str:
        """C++ of what the store computes in."""
        return self.acc_type

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
        return self.a, self.b, self.bias, *map(self._operand, self._stored.loads)

    def outputs(self) -> tuple[Operand, ...]:
        """What is stored, in the order of the signature."""
        return tuple(self._operand(store.to) for store in self._stored.stores)

    def _operand(self, access: Access) -> Operand:
        if access.name == self.out.name:
            return self.out
        return Operand(
            access.name, access.dtype, self.out.sizes, access.strides[-len(self.out.sizes) :]
        )

    @property
    def _stored(self) -> Epilogue:
        strides = broadcast_strides(self.out, 3)
        out = Access(self.out.name, self.out.dtype, (strides[0], strides[1], strides[2]))
        return self.epilogue or plain(out, self.acc)

    def loads(self) -> tuple[Place, ...]:
        """What the epilogue reads, as the kernel sees it."""
        return tuple(place(access, self.flipped) for access in self._stored.loads)

    def stores(self) -> tuple[Place, ...]:
        """What is stored, as the kernel sees it."""
        return tuple(self._place(store.to) for store in self._stored.stores)

    def _place(self, access: Access) -> Place:
        if access.name != self.out.name:
            return place(access, self.flipped)
        batch = "batch_out" if self.batched else "0"
        return Place(self.out.name, self.out.cpp_type, batch, "ld_out", "1", "VEC_C")

    def statements(self) -> list[str]:
        """C++ from the product of one element to what is stored."""
        return statements(self.activation, self._stored, self.acc)

    def size_args(self) -> tuple[SizeArg, ...]:
        """Sizes, then leading strides, then batch strides, then the strides of the bias."""
        a, b, out = self.a, self.b, self.out
        sizes = [
            SizeArg("M", self.m, sizes=((a.name, -2), (out.name, -2))),
            SizeArg("N", self.n, sizes=((b.name, -1), (out.name, -1))),
            SizeArg("K", self.k, sizes=((a.name, -1), (b.name, -2)), most=LARGEST_SIZE),
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
        return (*sizes, *leading, *batch, *self._bias_args(), *self._epilogue_args())

    def _epilogue_args(self) -> tuple[SizeArg, ...]:
        return tuple(
            SizeArg(access.stride(dim), access.strides[dim])
            for access in self._stored.accesses
            for dim in range(3)
            if access.name != self.out.name and not access.stride(dim).isdigit()
        )

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
    if a.dtype not in ACC:
        raise UnsupportedProblemError(f"no products of {a.dtype}")
    if a.dtype != b.dtype:
        raise UnsupportedProblemError(f"{a.dtype} times {b.dtype}")


def check_sums(acc: DType, out: Operand) -> None:
    """Raises UnsupportedProblemError where sums of type `acc` are stored as what they are not."""
    stored = ("float16", "bfloat16", "float32") if acc == "float32" else (acc,)
    if out.dtype not in stored:
        raise UnsupportedProblemError(f"sums of {acc} stored as {out.dtype}")


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
