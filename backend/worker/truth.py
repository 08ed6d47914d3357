"""Does a choice compute what it should? Without that its time is worth nothing.

Its result is compared with the product in a wider type. How far off it may be is a matter of what
is summed up: by Cauchy and Schwarz the terms of a dot product are bound by the lengths of row and
column, and each rounding by the type that the sum is made in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

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

    def fault(self, found: Tensor) -> str:
        """What is wrong with a result; nothing if it is right."""
        if found.shape[:-2] != self.values.shape[:-2] or found.shape[-1] != self.values.shape[-1]:
            return f"wrong result: its shape is {tuple(found.shape)}"
        if found.is_floating_point() and (bad := int((~found.isfinite()).sum())):
            return f"wrong result: {bad} of {found.numel()} elements are NaN or not written"
        error = (found[..., self.rows, :].to(self.values.dtype) - self.values).abs()
        if not error.numel() or bool((error <= self.allowed).all()):
            return ""
        worst = int((error / self.allowed.clamp_min(1e-300)).argmax())
        return (
            f"wrong result: off by {float(error.flatten()[worst]):.3g}, where "
            f"{float(self.allowed.flatten()[worst]):.3g} is allowed"
        )


def product(op: str, inputs: Sequence[Tensor], precision: str) -> Truth:
    """What `op` makes of these inputs. Raises NoReference, and whatever torch raises."""
    a, b, bias = _operands(op, inputs)
    dtype = a.dtype
    wide = torch.float64 if a.device.type == "cpu" or not a.is_floating_point() else torch.float32
    step = _step(a.shape, b.shape[-1]) if a.device.type == "cpu" else 1
    rows = slice(None, None, step)
    a, b = a[..., rows, :].to(wide), b.to(wide)
    with torch.no_grad(), _exact():
        values = a @ b
        terms = a.norm(dim=-1, keepdim=True) * b.norm(dim=-2, keepdim=True)
    if bias is not None:
        added = bias.to(wide)
        added = added[..., rows, :] if added.dim() > 1 and added.shape[-2] > 1 else added
        values, terms = values + added, terms + added.abs()
    if 0 in values.shape:
        return Truth(values, values, rows)
    if dtype.is_floating_point and not bool(values.abs().max() < 0.9 * torch.finfo(dtype).max):
        raise NoReference(f"the result is too large for {dtype}")
    if not dtype.is_floating_point:
        return Truth(values, torch.full_like(values, 0.5), rows)
    each = _COARSE.get(precision, 0.0) if dtype == torch.float32 else 0.0
    each = max(each, _LOW.get(dtype, 8 * torch.finfo(wide).eps))
    if wide == torch.float32:
        each = max(each, 8 * 2.0**-23)
    rounding = 2 * torch.finfo(dtype).eps * values.abs()
    return Truth(values, rounding + each * terms + 1e-30, rows)


def _operands(op: str, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor | None]:
    """A, B and what is added."""
    row = OPS.get(op)
    if row is None or not row.buildable or not row.takes(len(inputs)):
        raise NoReference(f"no reference is known for {op} with {len(inputs)} inputs")
    given = dict(zip(row.inputs, inputs, strict=False))
    a, b = given["a"], given["b"]
    if row.packed:
        b = b.to_dense() if b.layout is not torch.strided else b
        if a.shape[-1] != b.shape[-1]:
            raise NoReference("its packed weight cannot be read")
    return a, b.mT if row.weight else b, given.get("bias")


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
