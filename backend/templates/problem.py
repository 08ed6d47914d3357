"""A matrix product to compute: its operands and scalar arguments, which form the C signature of a
kernel, and properties that a kernel needs in advance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from backend.errors import UnsupportedProblemError
from backend.model.ops import ITEM_BYTES
from backend.templates.expressions import CPP_VALUE
from backend.templates.fusion import (
    Access,
    ElementPlace,
    Epilogue,
    FactorSource,
    Prologue,
    place_of_access,
    plain,
    statements,
)
from backend.templates.operand import (
    ACC,
    CPP_TYPE,
    LARGEST_SIZE,
    DType,
    Expr,
    Operand,
    SizeArg,
    is_number,
    vector_width,
)

Activation = Literal["none", "relu", "gelu", "gelu_tanh", "silu"]
ACTIVATIONS: tuple[Activation, ...] = ("none", "relu", "gelu", "gelu_tanh", "silu")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers, or guesses if the sizes are dynamic: `m` x `k` times `k` x `n`, `batch` times."""

    m: int
    n: int
    k: int
    batch: int = 1


@dataclass(frozen=True, slots=True)
class GemmProblem:
    """`out = epilogue(activation(alpha * scales * (a @ b + c @ d) + beta * bias))`, in `acc` until
    the store.

    `a` is (M, K) or (B, M, K), `b` (K, N) or (B, K, N), `out` (M, N) or (B, M, N); either dimension
    of a matrix may be the contiguous one. `bias` has up to `out`'s rank and broadcasts to it, by a
    missing dimension, by size 1 or by stride 0; with `beta` 0 it is not read. Each of `scales` is a
    factor of the elements, and broadcasts likewise. An `epilogue` has its own stores, and `out` is
    stored only if one of them has that name; `out` still determines the orientation of the result.
    Raises UnsupportedProblemError.
    """

    a: Operand
    b: Operand
    out: Operand
    bias: Operand | None = None
    activation: Activation = "none"
    alpha: float = 1.0
    beta: float = 1.0
    a_prologue: Prologue | None = None
    """How `a` is computed while loading. It is then not in memory, without valid strides."""
    b_prologue: Prologue | None = None
    epilogue: Epilogue | None = None
    scales: tuple[Operand, ...] = ()
    second: tuple[Operand, Operand] | None = None
    """c and d, with the sizes, the type and the layouts of a and b."""
    fast_sums: bool = False
    """Whether sums of fp8 may be only as exact as the matrix unit, instead of fp32."""

    def __post_init__(self) -> None:
        check_factors(self.a, self.b, self.out)
        if self.bias is not None and not 1 <= len(self.bias.sizes) <= len(self.out.sizes):
            raise UnsupportedProblemError(f"a bias of {len(self.bias.sizes)} dimensions")
        if any(len(scale.sizes) > len(self.out.sizes) for scale in self.scales):
            raise UnsupportedProblemError("a scale has more dimensions than the result")
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
        if self.acc != "float32" and self.scales:
            raise UnsupportedProblemError(f"scales of {self.acc}")
        if self.second is not None:
            self._check_second(self.second)
        if self.acc == "int32" and (self.alpha != 1 or self.bias is not None):
            raise UnsupportedProblemError("whole numbers are only multiplied and added up")

    def _check_second(self, second: tuple[Operand, Operand]) -> None:
        """Check that the loop can continue over `second`. Raises UnsupportedProblemError."""
        if self.batched or self.a_prologue or self.b_prologue:
            raise UnsupportedProblemError("a second product of factors that are not plain matrices")
        for first, other in zip((self.a, self.b), second, strict=True):
            if (first.dtype, first.sizes) != (other.dtype, other.sizes):
                raise UnsupportedProblemError(
                    f"{other.name} is not of {first.name}'s type and sizes"
                )
            if contiguous_dim(first) != contiguous_dim(other):
                raise UnsupportedProblemError(f"{other.name} lies otherwise than {first.name}")

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
        """Return numbers for the heuristics; `hint` guesses dynamic ones."""
        return Sizes(hint(self.m), hint(self.n), hint(self.k), hint(self.batch))

    @property
    def flipped(self) -> bool:
        """Whether `out` is column-major. The kernel then computes out^T = b^T a^T."""
        return contiguous_dim(self.out) == -2

    def inputs(self) -> tuple[Operand | None, ...]:
        """The inputs, in the template's order of names."""
        a = self.a if self.a_prologue is None else None
        b = self.b if self.b_prologue is None else None
        sources = (source.operand for source in self.sources())
        loads = map(self._operand, self._stored.loads)
        return (a, b, self.bias, *self.scales, *(self.second or ()), *loads, *sources)

    def sources(self) -> tuple[FactorSource, ...]:
        """The tensors from which the factors are computed."""
        prologues = (self.a_prologue, self.b_prologue)
        return tuple(source for p in prologues if p is not None for source in p.sources)

    def outputs(self) -> tuple[Operand, ...]:
        """The stored tensors, in the order of the signature."""
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

    def loads(self) -> tuple[ElementPlace, ...]:
        """The scales and the epilogue's loads, as the kernel sees them."""
        return tuple(place_of_access(access, self.flipped) for access in self._loaded)

    @property
    def _loaded(self) -> tuple[Access, ...]:
        scales = ((scale, broadcast_strides(scale, 3)) for scale in self.scales)
        return (
            *(Access(scale.name, scale.dtype, (s[0], s[1], s[2])) for scale, s in scales),
            *self._stored.loads,
        )

    def stores(self) -> tuple[ElementPlace, ...]:
        """The stores, as the kernel sees them."""
        steps = self._stored.steps
        return tuple(
            replace(self._place(store.to), value_type=CPP_VALUE[steps[store.step].dtype])
            for store in self._stored.stores
        )

    def _place(self, access: Access) -> ElementPlace:
        if access.name != self.out.name:
            return place_of_access(access, self.flipped)
        batch = "batch_out" if self.batched else "0"
        return ElementPlace(self.out.name, self.out.cpp_type, batch, "ld_out", "1", "VEC_C")

    def statements(self) -> list[str]:
        """Return C++ from the product of one element to the stores."""
        return statements(self.activation, self._stored, self.acc)

    def size_args(self) -> tuple[SizeArg, ...]:
        """Sizes, then leading strides, batch strides, the strides of the bias and of sources."""
        a, b, out = self.a, self.b, self.out
        sizes = [
            SizeArg("M", self.m, sizes=((a.name, -2), (out.name, -2))),
            SizeArg("N", self.n, sizes=((b.name, -1), (out.name, -1))),
            SizeArg("K", self.k, sizes=((a.name, -1), (b.name, -2)), most=LARGEST_SIZE),
        ]
        if self.batched:
            sizes.append(SizeArg("B", self.batch, sizes=tuple((x.name, 0) for x in (a, b, out))))
        prologues = (self.a_prologue, self.b_prologue, None)
        named = zip(("a", "b", "out"), (a, b, out), prologues, strict=True)
        stored = [(suffix, x) for suffix, x, prologue in named if prologue is None]
        stored += zip("cd", self.second or (), strict=False)
        leading = [
            SizeArg(f"ld_{suffix}", leading_stride(x), strides=((x.name, _other_dim(x)),))
            for suffix, x in stored
        ]
        batch = [
            SizeArg(f"batch_{suffix}", x.strides[0], strides=((x.name, 0),))
            for suffix, x in stored
            if self.batched
        ]
        of_sources = [arg for source in self.sources() for arg in source.size_args()]
        return (*sizes, *leading, *batch, *self._bias_args(), *self._epilogue_args(), *of_sources)

    def _epilogue_args(self) -> tuple[SizeArg, ...]:
        return tuple(
            SizeArg(access.stride(dim), access.strides[dim])
            for access in (*self._loaded, *(store.to for store in self._stored.stores))
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
    """Raise UnsupportedProblemError for factors of no product, or of mixed types."""
    rank = len(out.sizes)
    if rank not in (2, 3) or not len(a.sizes) == len(b.sizes) == rank:
        raise UnsupportedProblemError("a, b and out must all have 2 dimensions, or all 3")
    if a.dtype not in ACC:
        raise UnsupportedProblemError(f"no products of {a.dtype}")
    if a.dtype != b.dtype:
        raise UnsupportedProblemError(f"{a.dtype} times {b.dtype}")


def check_sums(acc: DType, out: Operand) -> None:
    """Raise UnsupportedProblemError if sums of type `acc` cannot be stored in `out`."""
    stored = ("float16", "bfloat16", "float32") if acc == "float32" else (acc,)
    if out.dtype not in stored:
        raise UnsupportedProblemError(f"sums of {acc} stored as {out.dtype}")


def contiguous_dim(operand: Operand) -> Literal[-1, -2]:
    """Return which dimension of the matrix is contiguous. Raises UnsupportedProblemError. A
    dimension of size 1 counts as contiguous: its stride is never used."""
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
    """Return the elements from one line of the matrix to the next."""
    return operand.strides[_other_dim(operand)]


def widest_access(operand: Operand) -> int:
    """Return the maximum elements of a vector access to this matrix."""
    batch = operand.strides[:1] if len(operand.sizes) == 3 else ()
    return vector_width(operand, (leading_stride(operand), *batch))


SCALES = ("scale_a", "scale_b")
"""The names of the scales of two factors."""


def input_order(problem: GemmProblem, names: Iterable[str]) -> list[int]:
    """Return the problem's inputs in the order of `names`, then absent or fused ones."""
    inputs = problem.inputs()
    places = {operand.name: at for at, operand in enumerate(inputs) if operand is not None}
    order = [places[name] for name in names if name in places]
    return [*order, *(at for at in range(len(inputs)) if at not in order)]


def broadcast_strides(operand: Operand, rank: int) -> tuple[Expr, ...]:
    """Return the strides of an operand that is broadcast to `rank` dimensions."""
    own = zip(operand.sizes, operand.strides, strict=True)
    strides = tuple(0 if is_number(size, 1) else stride for size, stride in own)
    return (0,) * (rank - len(strides)) + strides


@dataclass(frozen=True, slots=True)
class SecondFactor:
    """The factor of the second product: its parameter in C, and that of its leading stride."""

    name: str
    ld: str


@dataclass(frozen=True, slots=True)
class Side:
    """A factor as the kernel sees it: lines of `outer` (rows of the result for the left factor,
    columns for the right one) by K."""

    operand: Operand
    k_fast: bool
    """Whether K is the contiguous dimension."""
    vector: int
    """The elements that may be loaded at once along the contiguous dimension."""
    ld: str
    batch_stride: str
    prologue: Prologue | None = None
    second: SecondFactor | None = None


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
    """Return the problem, or its transpose if `out` is column-major."""
    a = _side(problem.a, "a", -1, problem.a_prologue)
    b = _side(problem.b, "b", -2, problem.b_prologue)
    if problem.second is not None:
        c, d = problem.second
        a = replace(a, vector=min(a.vector, widest_access(c)), second=SecondFactor(c.name, "ld_c"))
        b = replace(b, vector=min(b.vector, widest_access(d)), second=SecondFactor(d.name, "ld_d"))
    form = Canonical(a, b, "M", "N", "bias_row", "bias_col", widest_access(problem.out))
    if not problem.flipped:
        return form
    return replace(
        form, left=b, right=a, rows="N", cols="M", bias_row="bias_col", bias_col="bias_row"
    )


def _side(operand: Operand, suffix: str, k_dim: int, prologue: Prologue | None) -> Side:
    if prologue is None:
        k_fast, vector = contiguous_dim(operand) == k_dim, widest_access(operand)
    else:
        k_fast, vector = prologue.k_fast, prologue.vector(operand.item_bytes)
    return Side(operand, k_fast, vector, f"ld_{suffix}", f"batch_{suffix}", prologue)


@dataclass(frozen=True, slots=True)
class GroupedProblem(GemmProblem):
    """A product whose batch are the groups: `a` and `out` are the same for each, and the rows of a
    group end at its number in `ends`, and begin at the previous group's end. K is not split."""

    ends: Operand | None = None

    def inputs(self) -> tuple[Operand | None, ...]:
        """The inputs; `ends` takes the position of a bias."""
        a, b, _, *rest = GemmProblem.inputs(self)
        return a, b, self.ends, *rest

    def sizes(self, hint: Callable[[Expr], int] = int) -> Sizes:
        """The sizes, with the rows of all groups counted together."""
        return Sizes(hint(self.m), hint(self.n), hint(self.k))


def grouped_problem(
    a: Operand, b: Operand, out: Operand, ends: Operand, activation: Activation = "none"
) -> GroupedProblem:
    """Build `out` (M, N) of `a` (M, K) and `b` (G, K, N), whose groups end at the rows `ends` (G).

    Raises UnsupportedProblemError for groups along K or along the columns, and for a result that is
    not row-major.
    """
    if (len(a.sizes), len(b.sizes), len(out.sizes)) != (2, 3, 2):
        raise UnsupportedProblemError("groups of other than rows")
    if ends.dtype != "int32" or len(ends.sizes) != 1 or ends.strides[0] != 1:
        raise UnsupportedProblemError(f"{ends.name}: no dense int32 numbers")
    if contiguous_dim(a) != -1:
        raise UnsupportedProblemError(f"{a.name}: groups of rows that lie side by side")
    groups = b.sizes[0]

    def of_each(operand: Operand) -> Operand:
        return replace(operand, sizes=(groups, *operand.sizes), strides=(0, *operand.strides))

    problem = GroupedProblem(of_each(a), b, of_each(out), activation=activation, ends=ends)
    if problem.flipped:
        raise UnsupportedProblemError("groups of rows of a column-major result")
    return problem
