"""Does a choice compute what it should? Without that its time is worth nothing.

Its result is compared with the product in a wider type, twice. A choice is *wrong*, and not
measured, where no rounding at all explains it: by Cauchy and Schwarz the terms of a dot product are
bound by the lengths of row and column, and each rounding by the type that the factors have. What is
not wrong may still be *beyond* what sums in float32 lose, element by element.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType

import torch
from torch import Tensor

from backend.counted import counted
from backend.inductor.benchmark.errors import WrongResult
from backend.inductor.hip.convolution import ConvReference, keywords
from backend.model.convolution import Options
from backend.model.ops import OPS

MOST_OPERATIONS = 4e9
"""Of the wider product; of a larger one only some rows are looked at on a CPU, for NaN all are."""

MOST_ELEMENTS = 1 << 25
"""Of the rows that are looked at, and of what is multiplied for them at once."""

_LOW = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7, torch.float32: 8 * 2.0**-23}
_COARSE = {"high": 2.0**-9, "medium": 2.0**-6}
"""A float32 product of that precision has factors of ten, or seven, bits."""


class NoReference(Exception):
    """What the result should be is not known; one line says why."""


@dataclass(frozen=True, slots=True)
class Truth:
    """The true values of the rows `rows`, and how far off each may be."""

    values: Tensor
    allowed: Tensor
    rows: slice

    def check(self, result: Tensor) -> None:
        """Raises WrongResult."""
        if result.shape[:-2] != self.values.shape[:-2] or result.shape[-1] != self.values.shape[-1]:
            raise WrongResult(f"wrong result: its shape is {tuple(result.shape)}")
        if result.is_floating_point() and (bad := int((~result.isfinite()).sum())):
            raise WrongResult(
                f"wrong result: {bad:,} of {counted(result.numel(), 'element')}, NaN or not written"
            )
        error = (result[..., self.rows, :].to(self.values.dtype) - self.values).abs()
        if not error.numel() or bool((error <= self.allowed).all()):
            return
        worst = int((error / self.allowed.clamp_min(1e-300)).argmax())
        raise WrongResult(
            f"wrong result: off by {float(error.flatten()[worst]):.3g}, where "
            f"{float(self.allowed.flatten()[worst]):.3g} is allowed"
        )


def true_product(op: str, inputs: Sequence[Tensor], precision: str, given: Options = ()) -> Truth:
    """What `op` makes of these inputs, a convolution with the options `given`. Raises NoReference,
    and whatever torch raises."""
    if op == "convolution" and given:
        return _true_convolution(inputs, given)
    if op == "grouped_mm":
        return _true_groups(inputs)
    products, bias, dtype = _operands(op, inputs)
    a, b = products[0].a, products[0].b
    wide = torch.float64 if a.device.type == "cpu" or not a.is_floating_point() else torch.float32
    step = _step(a.shape, b.shape[-1]) if a.device.type == "cpu" else 1
    rows = slice(None, None, step)
    with torch.no_grad(), _exact():
        values, terms = products[0].of(rows, wide)
        for product in products[1:]:
            more_values, more_terms = product.of(rows, wide)
            values, terms = values + more_values, terms + more_terms
    if bias is not None:
        added = _rows_of(bias, rows).to(wide)
        values, terms = values + added, terms + added.abs()
    return _truth(values, terms, rows, dtype, precision)


@dataclass(frozen=True, slots=True)
class _Product:
    """`(scale_a * a) @ (scale_b * b)`; a scale is one number, or one for each row of `a`, each
    column of `b`."""

    a: Tensor
    b: Tensor
    scale_a: Tensor | None = None
    scale_b: Tensor | None = None

    def of(self, rows: slice, wide: torch.dtype) -> tuple[Tensor, Tensor]:
        """These rows of the product, and what its terms are bound by."""
        a, b = self.a[..., rows, :].to(wide), self.b.to(wide)
        if self.scale_a is not None:
            a = a * _rows_of(self.scale_a, rows).to(wide)
        if self.scale_b is not None:
            b = b * self.scale_b.to(wide)
        return a @ b, a.norm(dim=-1, keepdim=True) * b.norm(dim=-2, keepdim=True)


def _rows_of(tensor: Tensor, rows: slice) -> Tensor:
    """These rows of what may have one for all."""
    return tensor[..., rows, :] if tensor.dim() > 1 and tensor.shape[-2] > 1 else tensor


def _true_groups(inputs: Sequence[Tensor]) -> Truth:
    """Rows of `a` by group, each with a `b` of its own; `ends` are where the groups of rows end."""
    a, b, *ends = inputs
    if not ends or a.dim() != 2 or b.dim() != 3 or int(ends[0][-1]) != a.shape[0]:
        raise NoReference("a grouped product is known where its groups are all the rows of a")
    wide = torch.float64 if a.device.type == "cpu" else torch.float32
    parts, first = [], 0
    with torch.no_grad(), _exact():
        for group, end in enumerate(ends[0].tolist()):
            parts.append(_Product(a, b[group]).of(slice(first, end), wide))
            first = end
        values, terms = (torch.cat(part) for part in zip(*parts, strict=True))
    return _truth(values, terms, slice(None), a.dtype, "highest")


def _true_convolution(inputs: Sequence[Tensor], given: Options) -> Truth:
    """Libraries take TF32 for float32, whatever the precision of products is."""
    if any(dict(given).get("transposed", ())):
        raise NoReference("no reference is known for a transposed convolution")
    everything = (slice(None),) * inputs[0].dim()
    with torch.no_grad():
        values, terms = ConvReference(given).part(inputs, everything)
    precision = "high" if inputs[0].is_cuda else "highest"
    return _truth(values, terms, slice(None), inputs[0].dtype, precision)


def _truth(values: Tensor, terms: Tensor, rows: slice, dtype: torch.dtype, precision: str) -> Truth:
    """`values` are in a wider type than `dtype`, in which choices compute."""
    wide = values.dtype
    if 0 in values.shape:
        return Truth(values, values, rows)
    if dtype.is_floating_point and not bool(values.abs().max() < 0.9 * torch.finfo(dtype).max):
        raise NoReference(f"the result is too large for {dtype}")
    if not dtype.is_floating_point:
        return Truth(values, torch.full_like(values, 0.5), rows)
    relative = _COARSE.get(precision, 0.0) if dtype == torch.float32 else 0.0
    relative = max(relative, _LOW.get(dtype, 8 * torch.finfo(wide).eps))
    if wide == torch.float32:
        relative = max(relative, 8 * 2.0**-23)
    rounding = 2 * torch.finfo(dtype).eps * values.abs()
    return Truth(values, rounding + relative * terms + 1e-30, rows)


def _operands(
    op: str, inputs: Sequence[Tensor]
) -> tuple[list[_Product], Tensor | None, torch.dtype]:
    """The products, what is added to their sum, and the type of the result."""
    row = OPS.get(op)
    if row is None or not row.buildable or not row.takes(len(inputs)):
        raise NoReference(f"no reference is known for {op} with {counted(len(inputs), 'input')}")
    given = dict(zip(row.inputs, inputs, strict=False))
    a, b, bias = given["a"], given["b"], given.get("bias")
    if row.packed:
        b = b.to_dense() if b.layout is not torch.strided else b
        if a.shape[-1] != b.shape[-1]:
            raise NoReference("its packed weight cannot be read")
    b = b.mT if row.weight else b
    if "scale_a" not in given:
        others = [_Product(given["c"], given["d"])] if "c" in given else []
        return [_Product(a, b), *others], bias, a.dtype
    scale_a, scale_b = given["scale_a"], given["scale_b"]
    known = ((), (1,), (1, 1))
    if not (
        tuple(scale_a.shape) in (*known, (a.shape[0], 1))
        and tuple(scale_b.shape) in (*known, (1, b.shape[-1]))
    ):
        raise NoReference("no reference is known for scales of blocks")
    dtype = torch.bfloat16 if bias is None else bias.dtype  # what is asked for, see worker.problem
    return [_Product(a, b, scale_a, scale_b)], bias, dtype


def _step(shape: Sequence[int], columns: int, most: float = MOST_OPERATIONS) -> int:
    """Every so many-th row is looked at."""
    elements = math.prod(shape[:-1]) * max(columns, shape[-1])
    operations = 2.0 * math.prod(shape) * columns
    return max(1, math.ceil(operations / most), math.ceil(elements / MOST_ELEMENTS))


class _exact:
    """Full float32 products on a GPU, whatever the op's own precision is."""

    def __enter__(self) -> None:
        self._was = torch.get_float32_matmul_precision()
        if self._was != "highest":
            torch.set_float32_matmul_precision("highest")

    def __exit__(self, *_: object) -> None:
        if self._was != "highest":
            torch.set_float32_matmul_precision(self._was)


# Element by element.

_GPU_OPERATIONS = 4e11
"""Of the product in float64 on a GPU: a third of a second where that type is slowest."""

_CHUNK = 1 << 22
"""Elements that are compared at once: in 32 MiB, three times."""

_FEW = 16
"""Roundings beside those of the terms: partial sums that are added up, a scale."""


_KNOWN = frozenset({"a", "b", "copy", "bias"})
"""Inputs of an op that the product is made of."""


@dataclass(frozen=True, slots=True)
class Distance:
    """Of `compared` elements `beyond` are further off than rounding explains, the worst one by
    `excess` times what is allowed."""

    compared: int
    beyond: int
    excess: float


@dataclass(frozen=True, slots=True)
class Exact:
    """The elements `part` of the product in float64, and how far off each sum may be.

    A sum of `k` products in any order is off by at most `gamma(k) |a| |b|`, element by element
    (Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed. 2002, 3.1 and 3.5, equations
    3.5 and 3.13). Then each of `stored` values is rounded to the type of the result (theorem 2.2).
    """

    values: Tensor
    sums: Tensor
    part: tuple[slice | EllipsisType, ...]
    stored: int = 1

    def distance(self, result: Tensor) -> Distance:
        """Of a result without NaN that has the right shape."""
        seen, most = result[self.part], self.values.numel()
        if not most:
            return Distance(0, 0, 0.0)
        longest = max(range(seen.dim()), key=seen.shape.__getitem__)
        size = max(1, seen.shape[longest] * _CHUNK // most)
        parts = (tensor.split(size, longest) for tensor in (seen, self.values, self.sums))
        within, worst = 0, 0.0
        for part in zip(*parts, strict=True):
            excess = self._excess(*part)
            within, worst = within + int((excess <= 1).sum()), max(worst, float(excess.max()))
        return Distance(most, most - within, worst)

    def _excess(self, seen: Tensor, values: Tensor, sums: Tensor) -> Tensor:
        """The errors as multiples of what is allowed."""
        error = (seen.to(torch.float64) - values).abs_()
        if not seen.is_floating_point():
            return error.div_(sums)
        kind = torch.finfo(seen.dtype)
        allowed = values.abs().add_(sums).mul_(self.stored * kind.eps / 2).add_(sums)
        # Below the normal numbers steps are of one size, or are left out.
        return error.div_(allowed.add_(max(kind.tiny * kind.eps, torch.finfo(torch.float32).tiny)))


def gamma(terms: int, unit: float) -> float:
    """Higham's, of so many roundings of at most `unit`; infinite where they may be anything."""
    lost = terms * unit
    return lost / (1 - lost) if lost < 1 else math.inf


def exact_product(
    op: str, inputs: Sequence[Tensor], precision: str, truth: Truth, given: Options = ()
) -> Exact | None:
    """What `op` makes of these inputs, a convolution with the options `given`; None where no bound
    is known. `truth` is of the same inputs. Raises NoReference, and whatever torch raises."""
    if op == "convolution" and given:
        return _exact_convolution(inputs, truth, given)
    (product, *_), bias, _ = _operands(op, inputs)
    a, b = product.a, product.b
    values, rows = truth.values, truth.rows
    if 0 in values.shape or not a.shape[-1] or not _KNOWN.issuperset(OPS[op].inputs):
        return None
    again = values.dtype != torch.float64
    if again:
        rows = slice(None, None, _step(a.shape, b.shape[-1], _GPU_OPERATIONS))
        values = values[..., rows, :].to(torch.float64)
    if not a.is_floating_point():
        return Exact(values, torch.full_like(values, 0.5), (..., rows, slice(None)))
    left, sums = a[..., rows, :], torch.empty_like(values)
    size = left.abs().to(torch.float32)
    width = max(1, MOST_ELEMENTS // max(1, math.prod(b.shape[:-1])))
    with torch.no_grad(), _exact():
        for first in range(0, b.shape[-1], width):
            columns = slice(first, first + width)
            right = b[..., columns]
            sums[..., columns] = size @ right.abs().to(torch.float32)
            if again:
                values[..., columns] = left.to(torch.float64) @ right.to(torch.float64)
    if bias is not None:
        added = _rows_of(bias, rows).to(torch.float64)
        values = values + added if again else values
        sums += added.abs()
    sums *= _lost(a, precision, a.shape[-1])
    return Exact(values, sums, (..., rows, slice(None)), 1 if bias is None else 2)


def _exact_convolution(inputs: Sequence[Tensor], truth: Truth, given: Options) -> Exact | None:
    """On a CPU alone: what libraries do on a GPU (Winograd) is not bound by elements."""
    x, weight, *bias = inputs
    if x.device.type != "cpu" or not truth.values.numel():
        return None
    narrow = (x.abs().to(torch.float32), weight.abs().to(torch.float32))
    size = bias[0].abs().to(torch.float32) if bias else None
    with torch.no_grad():
        sums = torch.convolution(*narrow, size, **keywords(given)).to(torch.float64)
    sums *= _lost(x, "highest", weight[0].numel())
    return Exact(truth.values, sums, (slice(None),), 2 if bias else 1)


def _lost(factor: Tensor, precision: str, terms: int) -> float:
    """What a sum of `terms` products loses at most, relative to that of their sizes, which is one
    of float32 itself. A sum of float64 is compared with one that is as far off. Matrix units cut
    off where others round (Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor
    cores", 2021)."""
    terms += _FEW
    lost = gamma(terms, 2.0**-24)
    if factor.dtype == torch.float64:
        return 2 * gamma(terms, 2.0**-53) * (1 + lost)
    factors = _COARSE.get(precision, 0.0) if factor.dtype == torch.float32 else 0.0
    sums = gamma(terms, 2.0**-23) if factor.is_cuda else lost
    return (sums + factors) * (1 + lost)
