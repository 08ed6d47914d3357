"""Do two arms compute the same? Bit by bit, or but for what rounding explains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backend.counted import counted
from backend.worker.trial.inputs import TensorInput
from backend.worker.trial.program import Program

WALK = 4.0
"""Standard deviations of a walk of roundings that are allowed."""
_COARSE = {"high": 2.0**-10, "medium": 2.0**-7}
"""Of float32 products on a GPU of that precision."""


class WrongResult(Exception):
    """An arm computes something else; one line says what."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The largest one, over the largest value there; 0: the same bits."""

    error: float
    allowed: float


def allowed_error(program: Program) -> float:
    """What roundings explain, relative to the largest value: one a node of the coarsest type that
    there is, as a random walk, and one of float32 a number that is summed up."""
    tensors = [given for given in program.inputs if isinstance(given, TensorInput)]
    symbols = program.head.symbols
    kinds = {t.dtype for t in tensors if t.dtype.is_floating_point}
    kinds |= {c.dtype for c in program.constants if c.dtype.is_floating_point}
    coarsest = max((torch.finfo(kind).eps for kind in kinds), default=2.0**-23)
    if any(storage.device.type != "cpu" for storage in program.storages):
        coarsest = max(coarsest, _COARSE.get(program.head.precision, 0.0))
    longest = max((int(n(symbols)) for t in tensors for n in t.sizes), default=1)
    steps = len(program.forward.body)
    return WALK * (coarsest * math.sqrt(steps) + 2.0**-23 * math.sqrt(max(longest, 1)))


def difference(first: Sequence[Any], other: Sequence[Any], allowed: float) -> Difference:
    """Raises WrongResult where they are not of a kind, or not finite at other places."""
    if len(first) != len(other):
        raise WrongResult(f"wrong result: {counted(len(other), 'output')}, not {len(first)}")
    worst = 0.0
    for at, (expected, given) in enumerate(zip(first, other, strict=True)):
        if isinstance(expected, Tensor) and isinstance(given, Tensor):
            worst = max(worst, _difference(at, expected, given))
        elif isinstance(expected, Tensor) or isinstance(given, Tensor) or expected != given:
            raise WrongResult(f"wrong result: output {at} is of another kind")
    return Difference(worst, allowed)


def _difference(at: int, expected: Tensor, given: Tensor) -> float:
    if expected.shape != given.shape or expected.dtype != given.dtype:
        raise WrongResult(f"wrong result: output {at} has another shape or type")
    if not expected.numel() or torch.equal(expected, given):
        return 0.0
    if expected.is_complex():
        expected, given = torch.view_as_real(expected), torch.view_as_real(given)
    wide = torch.float64 if expected.device.type == "cpu" else torch.float32
    a, b = expected.to(wide), given.to(wide)
    finite = a.isfinite()
    if not bool((finite == b.isfinite()).all()):
        raise WrongResult(f"wrong result: output {at} is not finite at other places")
    odd = ~finite
    if not bool(((a[odd] == b[odd]) | (a[odd].isnan() & b[odd].isnan())).all()):
        raise WrongResult(f"wrong result: output {at} is not finite in another way")
    a, b = a[finite], b[finite]
    if not a.numel():
        return 0.0
    largest = float(a.abs().max())
    off = float((a - b).abs().max())
    return off / largest if largest else (math.inf if off else 0.0)
