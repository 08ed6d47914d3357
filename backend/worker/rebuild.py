"""An op of the autotune cache as a program again, from its inputs key.

Torch's key says device, dtype, sizes, strides and offset of what reaches the kernel. Whether the
program made here leads Inductor to the very same key is for the caller to check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from backend.model.ops import OPS, Op
from backend.model.problem import TensorSpec


class NotRebuildable(Exception):
    """No program is known that leads to this op with these inputs; one line says why."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """Call `function(*arguments)` under torch.compile, with `freezing` set as it says."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    freezing: bool


def rebuild(op: str, specs: Sequence[TensorSpec]) -> Rebuilt:
    """The op `op` on inputs like `specs`. Raises NotRebuildable."""
    row = _KNOWN.get(op)
    if row is None:
        known = ", ".join(_KNOWN)
        raise NotRebuildable(f"{op} cannot be rebuilt from its inputs; these can: {known}")
    if row.function is None:
        return _linear(op, row, specs)
    if not row.takes(len(specs)):
        raise NotRebuildable(f"{op} takes {len(row.inputs)} inputs, its key has {len(specs)}")
    function = getattr(torch, row.function)
    return _plain(function, [_operand(op, i, spec) for i, spec in enumerate(specs)])


_KNOWN = {name: row for name, row in OPS.items() if row.buildable}


def _operand(op: str, position: int, spec: TensorSpec) -> TensorSpec:
    """What the program hands over; addmm spreads a bias of one dimension over the rows itself."""
    if op == "addmm" and position == 0 and spec.strides[:1] == (0,):
        return TensorSpec(spec.device, spec.dtype, spec.sizes[1:], spec.strides[1:], spec.offset)
    return spec


def _plain(function: Callable[..., Any], specs: Sequence[TensorSpec]) -> Rebuilt:
    """Inductor knows an offset only where the graph itself makes the view."""
    views = [(spec.sizes, spec.strides, spec.offset) if spec.offset else None for spec in specs]

    def program(*bases: Any) -> Any:
        inputs = [
            base if view is None else torch.as_strided(base, *view)
            for base, view in zip(bases, views, strict=True)
        ]
        return function(*inputs)

    arguments = (_storage(spec) if spec.offset else tensor_like(spec) for spec in specs)
    return Rebuilt(program, tuple(arguments), freezing=False)


def _linear(op: str, row: Op, specs: Sequence[TensorSpec]) -> Rebuilt:
    """Its weight is frozen into the graph and packed by MKL or oneDNN."""
    if not row.takes(len(specs)):
        raise NotRebuildable(f"{op} with {len(specs)} inputs is not known")
    given = dict(zip(row.inputs, specs, strict=False))
    weight, bias = given["b"], given.get("bias")
    if row.packed:
        rows, columns = weight.sizes
        weight = TensorSpec(weight.device, weight.dtype, (rows, columns), (columns, 1), 0)
    module = _Linear(tensor_like(weight), None if bias is None else tensor_like(bias))
    return Rebuilt(module.eval(), (tensor_like(given["a"]),), freezing=True)


class _Linear(torch.nn.Module):  # type: ignore[misc]
    """`torch.nn.Linear` with a weight of any strides."""

    def __init__(self, weight: Any, bias: Any) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight, requires_grad=False)
        self.bias = None if bias is None else torch.nn.Parameter(bias, requires_grad=False)

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.linear(x, self.weight, self.bias)


def tensor_like(spec: TensorSpec) -> Any:
    """A tensor of that device, dtype, sizes, strides and offset, always with the same values.

    Frozen weights are part of the graph cache's key: equal ones find the same graph again.
    """
    return torch.as_strided(_storage(spec), spec.sizes, spec.strides, spec.offset)


def _storage(spec: TensorSpec) -> Any:
    """One dimension, as long as the view of `spec` reaches."""
    last = sum((size - 1) * stride for size, stride in zip(spec.sizes, spec.strides, strict=True))
    length = spec.offset + last + 1 if 0 not in spec.sizes else spec.offset
    if last < 0 or spec.offset < 0:
        raise NotRebuildable("its key has negative strides or offsets")
    dtype = _dtype(spec.dtype)
    try:
        numbers = torch.arange(length, device=spec.device) % 17 - 8
        return (numbers / 8).to(dtype) if dtype.is_floating_point else numbers.to(dtype)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise NotRebuildable(f"no {spec.dtype} tensor on {spec.device} here: {reason}") from error


def _dtype(name: str) -> Any:
    dtype = getattr(torch, name.removeprefix("torch."), None)
    if not name.startswith("torch.") or not isinstance(dtype, torch.dtype):
        raise NotRebuildable(f"this torch has no dtype {name}")
    return dtype
