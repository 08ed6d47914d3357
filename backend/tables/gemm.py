"""A product as a BLAS library is asked for it, column by column, and the problem of torch, row by
row, that led to it."""

from __future__ import annotations

from dataclasses import dataclass

from backend.errors import brief
from backend.model.problem import Problem, Shape


class NotAProblem(Exception):
    """The line asks for something that Inductor's tuning has no op for, or tells too little. The
    text is the reason, the same for all lines that share it."""


FP8 = "an fp8 or int8 product with scales"
NOT_ITS_FORM = "not in the form of its table"
_LARGEST = 1 << 40
"""Of a size or a step: beyond it no line of a real program goes."""


@dataclass(frozen=True, slots=True)
class Gemm:
    """op(A) · op(B), `m` by `n`, over `k`; matrices lie column by column, `lda` and `ldb` elements
    from one column to the next, `stride_a` and `stride_b` from one of the `batch` to the next.
    None is what the line does not tell. `trans_a`: A lies as k by m; `trans_b`: B as n by k.

    `dtype` is torch's name of the operands' and the result's type, `bias` a vector of m added to
    each column, `precision` torch's of float32 products.
    """

    trans_a: bool
    trans_b: bool
    m: int
    n: int
    k: int
    dtype: str
    lda: int | None = None
    ldb: int | None = None
    batch: int | None = None
    stride_a: int | None = None
    stride_b: int | None = None
    bias: bool = False
    precision: str | None = None


def problem_of_gemm(gemm: Gemm) -> Problem:
    """The op of torch whose call becomes this one; raises NotAProblem.

    What lies column by column is the transpose of what lies row by row, and (A · B)ᵀ = Bᵀ · Aᵀ: the
    library's B is torch's first factor, n by k, its A the second one, k by m. Steps that are not
    told are those of matrices without gaps.
    """
    m, n, k = gemm.m, gemm.n, gemm.k
    batch = 1 if gemm.batch is None else gemm.batch
    if not all(0 < size <= _LARGEST for size in (m, n, k, batch)):
        raise NotAProblem("a size of 0, or beyond all bounds")
    a_rows, b_rows = (k if gemm.trans_a else m), (n if gemm.trans_b else k)
    lda, ldb = _step(gemm.lda, a_rows), _step(gemm.ldb, b_rows)
    first, second = (n, k), (k, m)
    first_steps = (1, ldb) if gemm.trans_b else (ldb, 1)
    second_steps = (1, lda) if gemm.trans_a else (lda, 1)
    if gemm.batch is None:
        if not gemm.bias:
            return _problem(gemm, "mm", (first, second), (first_steps, second_steps))
        return _problem(gemm, "addmm", ((m,), first, second), ((1,), first_steps, second_steps))
    if gemm.bias:
        raise NotAProblem("a bias on a batch of products")
    gaps = (lda, ldb) != (a_rows, b_rows)
    if gaps and (gemm.stride_a is None or gemm.stride_b is None):
        raise NotAProblem("a batch of matrices with gaps, whose distance is not told")
    between_a = lda * (m if gemm.trans_a else k) if gemm.stride_a is None else gemm.stride_a
    between_b = ldb * (k if gemm.trans_b else n) if gemm.stride_b is None else gemm.stride_b
    if max(between_a, between_b) > _LARGEST:
        raise NotAProblem("a size of 0, or beyond all bounds")
    shapes = (gemm.batch, *first), (gemm.batch, *second)
    steps = (between_b, *first_steps), (between_a, *second_steps)
    return _problem(gemm, "bmm", shapes, steps)


def _step(told: int | None, rows: int) -> int:
    if told is None:
        return rows
    if not rows <= told <= _LARGEST:
        raise NotAProblem("a leading dimension that its matrix cannot have")
    return told


def _problem(gemm: Gemm, op: str, shapes: tuple[Shape, ...], steps: tuple[Shape, ...]) -> Problem:
    dtypes = (gemm.dtype,) * len(shapes)
    return Problem(op, shapes, steps, dtypes, precision=gemm.precision)


def unknown(what: str, name: str) -> NotAProblem:
    """`what` is none that is known: the op, the type."""
    return NotAProblem(f"{what} {brief(name, 60)}, which is not known")
