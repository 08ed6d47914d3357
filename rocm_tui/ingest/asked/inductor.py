"""Inductor's tunings of plain products as questions to the tables of the BLAS libraries, which the
choice of ATen among them calls: a product by its sizes, steps and types."""

from __future__ import annotations

from collections.abc import Sequence

from backend.model.problem import Problem, Shape
from backend.tables.model import Fields
from rocm_tui.ingest.asked.ask import Answer, Ask, Said

TUNER = "inductor"
_OPS = frozenset({"mm", "addmm", "bmm"})
_FACTORS = 2
"""The last operands, which are multiplied; what is added to the product has no say."""


def key_of(problem: Problem) -> Fields | None:
    """What tells such a product from another; None for what is none, or not told whole."""
    shapes = problem.shapes[-_FACTORS:]
    strides = problem.strides[-_FACTORS:]
    dtypes = problem.dtypes[-_FACTORS:]
    told = len(shapes) == len(strides) == len(dtypes) == _FACTORS
    if problem.op not in _OPS or not told or len(set(dtypes)) != 1:
        return None
    dtype = dtypes[0]
    if dtype == "torch.float32":
        dtype = f"{dtype} {problem.precision or 'highest'}"
    steps = [_steps(shape, stride) for shape, stride in zip(shapes, strides, strict=True)]
    return (("shapes", _text(shapes)), ("strides", _text(steps)), ("dtype", dtype))


def said(problem: Problem, way: str) -> Said | None:
    """One tuning; `way` is the choice that it took. What ran on a CPU asks no such table."""
    key = key_of(problem)
    if key is None or (problem.device or "").startswith("cpu"):
        return None
    return Said(Ask(TUNER, problem.op, key), Answer.UNTOLD, way)


def _steps(shape: Shape, strides: Shape) -> Shape:
    """A step along a single row leads nowhere: libraries differ in what they call it."""
    return tuple(1 if size == 1 else step for size, step in zip(shape, strides, strict=False))


def _text(shapes: Sequence[Shape]) -> str:
    return ", ".join("x".join(map(str, shape)) for shape in shapes)
