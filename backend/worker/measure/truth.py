"""What a choice should compute: its result is compared with the product in a wider type.

How far off it may be is a matter of what is summed up: by Cauchy and Schwarz the terms of a dot
product are bound by the lengths of row and column, and each rounding by the type that the sum is
made in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from backend.counted import counted
from backend.inductor.benchmark.errors import WrongResult
from backend.inductor.hip.convolution import ConvReference
from backend.model.convolution import Options
from backend.model.ops import OPS

MOST_OPERATIONS = 4e9
"""Of the wider product; of a larger one only some rows are looked at on a CPU, for NaN all are."""

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


def _step(shape: Sequence[int], columns: int) -> int:
    """Every so many-th row is looked at."""
    return max(1, math.ceil(2.0 * math.prod(shape) * columns / MOST_OPERATIONS))


class _exact:
    """Full float32 products on a GPU, whatever the op's own precision is."""

    def __enter__(self) -> None:
        self._was = torch.get_float32_matmul_precision()
        if self._was != "highest":
            torch.set_float32_matmul_precision("highest")

    def __exit__(self, *_: object) -> None:
        if self._was != "highest":
            torch.set_float32_matmul_precision(self._was)
