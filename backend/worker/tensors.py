"""Tensors for an op that is built again: of given sizes and strides, always with equal values."""

from __future__ import annotations

from typing import Any

import torch

from backend.model.problem import TensorSpec
from backend.worker.rebuilt import NotRebuildable


def tensor_like(spec: TensorSpec) -> Any:
    """A tensor of that device, dtype, sizes, strides and offset, always with the same values.

    Frozen weights are part of the graph cache's key: equal ones find the same graph again.
    """
    return torch.as_strided(storage_of(spec), spec.sizes, spec.strides, spec.offset)


def storage_of(spec: TensorSpec) -> Any:
    """One dimension, as long as the view of `spec` reaches."""
    return _filled(spec, 17, -8, 8)


def scale_like(spec: TensorSpec) -> Any:
    """As `tensor_like`, of numbers above zero."""
    return torch.as_strided(_filled(spec, 7, 1, 64), spec.sizes, spec.strides, spec.offset)


def _filled(spec: TensorSpec, count: int, first: int, parts: int) -> Any:
    """`count` numbers from `first` on, again and again; that many `parts` of one where the type has
    fractions."""
    last = sum((size - 1) * stride for size, stride in zip(spec.sizes, spec.strides, strict=True))
    length = spec.offset + last + 1 if 0 not in spec.sizes else spec.offset
    if last < 0 or spec.offset < 0:
        raise NotRebuildable("its key has negative strides or offsets")
    dtype = dtype_of(spec.dtype)
    try:
        numbers = torch.arange(length, device=spec.device) % count + first
        return (numbers / parts).to(dtype) if dtype.is_floating_point else numbers.to(dtype)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise NotRebuildable(f"no {spec.dtype} tensor on {spec.device} here: {reason}") from error


def dtype_of(name: str) -> Any:
    dtype = getattr(torch, name.removeprefix("torch."), None)
    if not name.startswith("torch.") or not isinstance(dtype, torch.dtype):
        raise NotRebuildable(f"this torch has no dtype {name}")
    return dtype
