"""Inputs for one benchmark, and whether what came out is what ATen computes.

What no kernel may touch is NaN: the memory around each tensor and between its rows, and the output
before the run. So a read past an edge shows as a NaN in the result, an element that is not written
stays NaN, and a write past an edge leaves a number where a NaN was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from backend.inductor.rocm_errors import WrongResult

Activation = Literal["none", "relu", "gelu", "gelu_tanh", "silu"]

GUARD = 256
"""Elements of NaN before and after each tensor: more than a vector, and a multiple of it."""


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """A tensor to make: sizes, strides and the offset within its storage, in elements."""

    device: str
    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    def make(self) -> Tensor:
        """All NaN, its storage too."""
        extent = 1 + sum((n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True))
        if 0 in self.sizes:
            extent = 0
        storage = torch.full(
            (GUARD + self.offset + extent + GUARD,),
            math.nan,
            dtype=self.dtype,
            device=self.device,
        )
        return storage.as_strided(self.sizes, self.strides, GUARD + self.offset)

    def holding(self, values: Tensor) -> Tensor:
        """One with these values, which may have a 1 for the size of a broadcast dimension."""
        tensor = self.make()
        tensor.as_strided(values.shape, self.strides, tensor.storage_offset()).copy_(values)
        return tensor

    @property
    def distinct(self) -> list[int]:
        """The sizes, with a 1 for each dimension that repeats one value."""
        return [n if s else min(n, 1) for n, s in zip(self.sizes, self.strides, strict=True)]


def storage_of(tensor: Tensor) -> Tensor:
    """The whole memory of a tensor, flat."""
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.as_strided((count,), (1,), 0)


def make_inputs(plans: Sequence[TensorPlan], seed: int = 0) -> list[Tensor]:
    """Normal random numbers, the same each time; a broadcast dimension repeats one value."""
    generator = torch.Generator().manual_seed(seed)
    return [plan.holding(torch.randn(plan.distinct, generator=generator)) for plan in plans]


@dataclass(frozen=True, slots=True)
class GemmReference:
    """`activation(beta * bias + alpha * (A @ B))`, of inputs A, B and, where there is one, bias."""

    alpha: float = 1.0
    beta: float = 1.0
    activation: Activation = "none"
    order: tuple[int, ...] = (0, 1, 2)
    """Where A, B and bias stand among the inputs."""

    def expected(self, inputs: Sequence[Tensor]) -> Expected:
        """By ATen, in a wider dtype than the inputs."""
        wide = torch.float64 if inputs[0].device.type == "cpu" else torch.float32
        ordered = [inputs[index] for index in self.order if index < len(inputs)]
        a, b, *rest = (tensor.to(wide) for tensor in ordered)
        values = self.alpha * torch.matmul(a, b)
        terms = abs(self.alpha) * (a.norm(dim=-1, keepdim=True) * b.norm(dim=-2, keepdim=True))
        if rest:
            values = values + self.beta * rest[0]
            terms = terms + (self.beta * rest[0]).abs()
        return Expected(_activated(values, self.activation), terms)


@dataclass(frozen=True, slots=True)
class Expected:
    """The true values, and for each a bound of the terms that were summed up for it.

    By Cauchy and Schwarz a dot product's terms are bound by the lengths of row and column.
    """

    values: Tensor
    terms: Tensor

    def check(self, output: Tensor) -> None:
        """Raises WrongResult, with the largest error and its place."""
        unwritten = int(output.isnan().sum())
        if unwritten:
            at = output.isnan().nonzero()[0].tolist()
            raise WrongResult(
                f"wrong result: {unwritten} of {output.numel()} elements are NaN, "
                f"the first at {at}: not written, or read past an edge"
            )
        error = (output.to(self.values.dtype) - self.values).abs()
        rounding = 2 * torch.finfo(output.dtype).eps * self.values.abs()
        allowed = rounding + 8 * torch.finfo(torch.float32).eps * self.terms + 1e-30
        excess = error / allowed
        if output.numel() and not bool((excess <= 1).all()):
            worst = int(excess.argmax())
            place = [int(i) for i in torch.unravel_index(torch.tensor(worst), output.shape)]
            raise WrongResult(
                f"wrong result: max error {error.flatten()[worst].item():.3g} at {place}, where "
                f"{allowed.flatten()[worst].item():.3g} is allowed"
            )


def check_untouched(output: Tensor) -> None:
    """Raises WrongResult if memory outside of `output` was written. Overwrites `output`."""
    output.fill_(math.nan)
    written = int((~storage_of(output).isnan()).sum())
    if written:
        raise WrongResult(f"wrong result: {written} elements outside of the output were written")


def _activated(values: Tensor, activation: Activation) -> Tensor:
    functional = torch.nn.functional
    match activation:
        case "relu":
            return functional.relu(values)
        case "gelu":
            return functional.gelu(values)
        case "gelu_tanh":
            return functional.gelu(values, approximate="tanh")
        case "silu":
            return functional.silu(values)
    return values
