"""What tells tunings apart beside op, sizes and types: device, layout of the operands, rank and
source; and which of these differ among rows that stand side by side. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from backend.model.kernel import TRITON
from backend.model.ops import OPS, product_of
from backend.model.problem import Problem, Shape
from rocm_tui.session.model import Row

_CONVOLUTION = "convolution"


def layout_of(problem: Problem) -> str:
    """How the two factors of a product lie in memory: `NT`, N by rows and T by columns; `NT+` where
    rows, columns or batches do not lie close together. `NHWC` or `NCHW` of a convolution's input.

    Empty where no source tells the strides, or where they say nothing.
    """
    if problem.op.lstrip("_") == _CONVOLUTION:
        return _image(problem)
    if len(problem.strides) != len(problem.shapes):
        return ""
    a, b, turned = _factors(problem.op)
    if not 0 <= max(a, b) < len(problem.shapes):
        return ""
    first = _operand(problem.shapes[a], problem.strides[a])
    second = _operand(problem.shapes[b], problem.strides[b])
    if first is None or second is None:
        return ""
    (left, left_close), (right, right_close) = first, second
    if turned:
        right = "T" if right == "N" else "N"
    return left + right + ("" if left_close and right_close else "+")


@lru_cache(64)
def _factors(name: str) -> tuple[int, int, bool]:
    """Where the two factors of an op stand, -1 for one without; and whether the second is given as
    (N, K), and multiplied as (K, N)."""
    op = product_of(name)
    return (-1, -1, False) if op is None or op.packed else (op.place("a"), op.place("b"), op.weight)


def _operand(shape: Shape, strides: Shape) -> tuple[str, bool] | None:
    """By rows or by columns, and whether its elements lie close together."""
    if len(shape) < 2 or len(strides) != len(shape):
        return None
    by_rows = shape[-1] == 1 or strides[-1] == 1
    if not by_rows and not (shape[-2] == 1 or strides[-2] == 1):
        return None
    if len(shape) == 2:  # as below, for most of them
        along, across = (1, 0) if by_rows else (0, 1)
        closed = shape[along] == 1 or strides[along] == 1
        closed = closed and (shape[across] == 1 or strides[across] == shape[along])
        return ("N" if by_rows else "T"), closed
    order = [*range(len(shape) - 2), -2, -1] if by_rows else [*range(len(shape) - 2), -1, -2]
    step, close = 1, True
    for at in reversed(order):
        close = close and (shape[at] == 1 or strides[at] == step)
        step *= shape[at]
    return ("N" if by_rows else "T"), close


def _image(problem: Problem) -> str:
    place = OPS[_CONVOLUTION].place("a")
    if place >= len(problem.strides) or len(problem.strides[place]) != 4:
        return ""
    shape, strides = problem.shapes[place], problem.strides[place]
    if len(shape) != 4 or shape[1] == 1 or shape[2] * shape[3] == 1:
        return ""  # the same bytes either way
    return "NHWC" if strides[1] == 1 else "NCHW" if strides[3] == 1 else ""


def rank_of(row: Row) -> str:
    return "" if row.tuning.rank is None else str(row.tuning.rank)


def source_of(row: Row) -> str:
    """The session that tuned it, else the file that tells of it, of Triton's the whole cache."""
    source = row.tuning.session or next(iter(row.tuning.sources), "")
    return source.rsplit("/", 2)[0] if row.tuning.op == TRITON else source


def _layout(row: Row) -> str:
    return layout_of(row.tuning) if row.tuning.strides else ""


def differing(rows: Sequence[Row], layout: Callable[[Row], str] = _layout) -> tuple[str, ...]:
    """Those of device, layout, rank and source of which more than one is known among the rows.
    `layout` may remember what is known of rows that have strides."""
    told = {
        "device": _several(row.device for row in rows),
        "layout": _several(layout(row) for row in rows if row.tuning.strides),
        "rank": _several(rank_of(row) for row in rows if row.tuning.rank is not None),
        "source": _several(map(source_of, rows)),
    }
    return tuple([name for name, several in told.items() if several])


def _several(texts: Iterable[str]) -> bool:
    """Whether more than one is among them; an empty one tells nothing."""
    first = ""
    for text in texts:
        if text != first and text:
            if first:
                return True
            first = text
    return False
