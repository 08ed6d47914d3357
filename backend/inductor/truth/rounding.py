"""How far a result may be off, element by element, by what sums in float32 lose.

What is not wrong may still be *beyond* that: terms that were left out, sums in a narrower type.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import EllipsisType

import torch
from torch import Tensor

from backend.inductor.truth import convolution, problem, wrong
from backend.inductor.truth.activation import activation_of
from backend.inductor.truth.problem import ALL, Sum, Sums, rows_of, sums_of
from backend.inductor.truth.wrong import Asked, Truth, exact_sums

_GPU_OPERATIONS = 4e11
"""Of the product in float64 on a GPU: a third of a second where that type is slowest."""

_CHUNK = 1 << 22
"""Elements that are compared at once: in 32 MiB, three times."""

_FEW = 16
"""Roundings beside those of the terms: partial sums that are added up, a scale."""

_FP8_SUMS = (2.0**-13, 256)
"""Hopper's sums of fp8 have 14 bits ("DeepSeek-V3 Technical Report", 2024, 3.3.2), of as many terms
at most before they are added up in float32."""


@dataclass(frozen=True, slots=True)
class Distance:
    """Of `compared` elements `beyond` are further off than rounding explains, the worst one by
    `excess` times what is allowed."""

    compared: int
    beyond: int
    excess: float


@dataclass(frozen=True, slots=True)
class Exact:
    """The elements `part` of the result in float64, and how far `off` each sum may be.

    A sum of `k` products in any order is off by at most `gamma(k) |a| |b|`, element by element
    (Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed. 2002, 3.1 and 3.5, equations
    3.5 and 3.13). Then the value is rounded to the type of the result (theorem 2.2).
    """

    values: Tensor
    off: Tensor
    part: tuple[slice | EllipsisType, ...] = (ALL,)
    lost: float = 0.0
    """By how much of the sizes of their terms the sums are off."""
    activation: str = "none"
    """That was applied already."""
    partial: Tensor | None = None
    """How much further off PyTorch's own kernel may be, since it rounds partial sums."""

    def of_library(self) -> Exact | None:
        """What holds for PyTorch's own kernel; None where a result of zeros would be as good for
        most elements, so that nothing can be said."""
        if self.partial is None:
            return self
        # Sums that are off themselves are rounded, so that `off` counts again, and so it does for
        # the sums in float32 that `partial` was computed from.
        off = 3 * self.off + self.partial
        sizes = self.values.abs()
        if 2 * int((sizes > off).sum()) < int((sizes > 0).sum()):
            return None
        return replace(self, off=off, partial=None)

    def distance(self, result: Tensor) -> Distance:
        """Of a result that has the right shape; a NaN is beyond."""
        seen, compared = result[self.part], self.values.numel()
        if not compared:
            return Distance(0, 0, 0.0)
        longest = max(range(seen.dim()), key=seen.shape.__getitem__)
        size = max(1, seen.shape[longest] * _CHUNK // compared)
        parts = (tensor.split(size, longest) for tensor in (seen, self.values, self.off))
        within, worst = 0, 0.0
        for part in zip(*parts, strict=True):
            excess = _excess(*part)
            most = float(excess.max())
            within += int((excess <= 1).sum())
            worst = math.inf if math.isnan(most) else max(worst, most)
        return Distance(compared, compared - within, worst)

    def activated(self, name: str, dtype: torch.dtype) -> Exact:
        """Of the function with this name, applied to the result, which may have been stored as
        `dtype` before. Raises NoReference."""
        activation = activation_of(name)
        if activation is None or name == self.activation:
            return self
        before = self.off + unit_of(dtype) * (self.values.abs() + self.off)
        off = activation.off(self.values, before)
        return replace(self, values=activation.function(self.values), off=off, activation=name)

    def narrow(self, dtype: torch.dtype) -> Exact:
        """Where a library may round partial sums to `dtype`, as its setting allows."""
        if not self.lost or not dtype.is_floating_point:
            return self
        return replace(self, off=self.off * (1 + unit_of(dtype) / self.lost))


def _excess(seen: Tensor, values: Tensor, off: Tensor) -> Tensor:
    """The errors as multiples of what is allowed."""
    error = (seen.to(torch.float64) - values).abs_()
    if not seen.is_floating_point():
        return error.div_(off)
    kind = torch.finfo(seen.dtype)
    allowed = values.abs().add_(off).mul_(kind.eps / 2).add_(off)
    # Below the normal numbers steps are of one size, or are left out.
    return error.div_(allowed.add_(max(kind.tiny * kind.eps, torch.finfo(torch.float32).tiny)))


def gamma(terms: int, unit: float) -> float:
    """Higham's, of so many roundings of at most `unit`; infinite where they may be anything."""
    lost = terms * unit
    return lost / (1 - lost) if lost < 1 else math.inf


def unit_of(dtype: torch.dtype) -> float:
    """What rounding to a type loses at most, relative to the number."""
    return torch.finfo(dtype).eps / 2 if dtype.is_floating_point else 0.0


def exact_product(asked: Asked, inputs: Sequence[Tensor], truth: Truth) -> Exact | None:
    """What comes of these inputs; None where no bound is known. `truth` is of the same inputs.
    Raises NoReference, and whatever torch raises."""
    if 0 in truth.values.shape:
        return None
    if asked.op in convolution.OPS and asked.given:
        return _exact_convolution(asked, inputs, truth)
    sums = sums_of(asked.op, inputs, asked.pointwise)
    one, rows = sums.whole, ALL
    if one is not None:
        most = problem.MOST_OPERATIONS if inputs[0].device.type == "cpu" else _GPU_OPERATIONS
        rows = slice(None, None, wrong.step(one.first.a.shape, one.columns, most))
    lost = [_lost(part.first.a, asked.precision, part.terms, part.coarse) for part in sums.parts]
    if not all(part < 1 for part in lost):
        return None  # then nothing is too far off
    with torch.no_grad(), exact_sums():
        known = truth.values if _known(asked, sums, truth, rows) else None
        parts = [
            _values_and_off(part, rows, part_lost, known)
            for part, part_lost in zip(sums.parts, lost, strict=True)
        ]
        values, off = (sums.joined(list(part)) for part in zip(*parts, strict=True))
    dtype = sums.parts[0].dtype
    if not dtype.is_floating_point:
        return Exact(values, torch.full_like(values, 0.5), (..., rows, ALL))
    exact = Exact(values, off, (..., rows, ALL), max(lost))
    return exact.activated(asked.activation, dtype)


def _known(asked: Asked, sums: Sums, truth: Truth, rows: slice) -> bool:
    """Whether the truth has the values already."""
    wide, alone = truth.values.dtype == torch.float64, asked.activation == "none"
    one = sums.whole
    return wide and alone and one is not None and len(one.products) == 1 and truth.rows == rows


def _values_and_off(
    part: Sum, rows: slice, lost: float, known: Tensor | None
) -> tuple[Tensor, Tensor]:
    """These rows in float64, unless they are `known`, and how far off they may be."""
    a = part.first.a[..., rows, :]
    off = torch.zeros((*a.shape[:-1], part.columns), dtype=torch.float64, device=a.device)
    more = sum((rows_of(added, rows).to(torch.float64) for added in part.added), off.new_zeros(()))
    unit, summands = unit_of(part.dtype), len(part.products) + len(part.added)
    stored = unit * (part.stages - 1 + summands - 1)
    values = off.clone() if known is None else known
    if known is not None and stored:
        off += (known - more).abs_().mul_(stored)
    for columns in _columns(part):
        for product in part.products:
            left, right = product.factors(torch.float32, rows, columns)
            off[..., columns] += (left.abs() @ right.abs()).to(torch.float64).mul_(lost)
            if known is None:
                left, right = product.factors(torch.float64, rows, columns)
                found = left @ right
                values[..., columns] += found
                off[..., columns] += found.abs_().mul_(stored)
    for added in part.added:
        off += lost * rows_of(added, rows).to(torch.float64).abs()
    for added in part.added[:-1]:  # a library may store the sum with it before it adds the last
        off += unit * rows_of(added, rows).to(torch.float64).abs()
    return values if known is not None else values.add_(more), off.mul_(1 + stored)


def _columns(part: Sum) -> Iterator[slice]:
    """As many at once as there is memory for."""
    width = max(1, problem.MOST_ELEMENTS // max(1, math.prod(part.first.b.shape[:-1])))
    for first in range(0, part.columns, width):
        yield slice(first, first + width)


def _exact_convolution(asked: Asked, inputs: Sequence[Tensor], truth: Truth) -> Exact | None:
    one, other, *bias = inputs
    conv = convolution.convolution_of(asked.op, asked.given, asked.sizes)
    terms, values = conv.terms(one, other), truth.values
    if one.is_cuda:
        if not conv.direct(other) or 2.0 * terms * values.numel() > _GPU_OPERATIONS:
            return None
        values = conv.of(one.to(torch.float64), other.to(torch.float64))
        values = values + convolution.along_channels(bias[0], values) if bias else values
    lost = _lost(one, "high" if one.is_cuda else "highest", terms)
    if not lost < 1:
        return None
    sizes = (tensor.to(torch.float32).abs() for tensor in (one, other))
    off = conv.of(*sizes).to(torch.float64).mul_(lost)
    if bias:
        added = convolution.along_channels(bias[0], values).to(torch.float64)
        stored = unit_of(one.dtype)
        off = (off + lost * added.abs() + stored * (values - added).abs()) * (1 + stored)
    partial = None if truth.partial is None else truth.partial * (1 + 2 * unit_of(one.dtype))
    return Exact(values, off, (ALL,), lost, partial=partial)


def _lost(factor: Tensor, precision: str, terms: int, coarse: float = 0.0) -> float:
    """What a sum of `terms` products loses at most, relative to that of their sizes, which is one
    of float32 itself. A sum of float64 is compared with one that is as far off. Matrix units cut
    off where others round (Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor
    cores", 2021)."""
    terms += _FEW
    lost = gamma(terms, 2.0**-24)
    if factor.dtype == torch.float64:
        return 2 * gamma(terms, 2.0**-53) * (1 + lost)
    factors = wrong.COARSE.get(precision, 0.0) if factor.dtype == torch.float32 else coarse
    sums = gamma(terms, 2.0**-23) if factor.is_cuda else lost
    if _few_bits(factor):
        unit, most = _FP8_SUMS
        sums += gamma(min(terms, most + _FEW), unit)
    return (sums + factors) * (1 + lost)


def _few_bits(factor: Tensor) -> bool:
    if not factor.is_cuda or factor.dtype.itemsize > 1 or torch.version.hip is not None:
        return False
    hopper = bool(torch.cuda.get_device_capability(factor.device)[0] == 9)
    return factor.is_floating_point() and hopper
