"""Does a choice compute what it should? Without that its time is worth nothing.

A choice is *wrong*, and not measured, where no rounding at all explains its result: by Cauchy and
Schwarz the terms of a dot product are bound by the lengths of row and column, and each rounding by
the type that the factors have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from backend.counted import counted
from backend.inductor.benchmark.errors import WrongResult
from backend.inductor.torch.choices import onednn_takes
from backend.inductor.truth import convolution, problem, quantized
from backend.inductor.truth.activation import activation_of
from backend.inductor.truth.problem import (
    ALL,
    NoReference,
    Sum,
    rows_of,
    sums_of,
)
from backend.model.options import Options

LOW = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7, torch.float32: 8 * 2.0**-23}
COARSE = {"high": 2.0**-9, "medium": 2.0**-6}
"""A float32 product of that precision has factors of ten, or seven, bits."""


@dataclass(frozen=True, slots=True)
class Truth:
    """The true values of the rows `rows`, and how far off each may be."""

    values: Tensor
    allowed: Tensor
    rows: slice
    partial: Tensor | None = None
    """How far off PyTorch's own kernel may be, since it rounds partial sums."""

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


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of every choice: the op, its precision, and what its inputs do not tell: a
    convolution's options, the sizes of the result, what is done with it at last."""

    op: str
    precision: str
    given: Options = ()
    sizes: tuple[int, ...] = ()
    pointwise: str = "none"

    @property
    def result(self) -> torch.dtype | None:
        """The type of the result, where that was told."""
        words = dict(self.given).get("out_dtype") or dict(self.given).get("output_dtype")
        found = getattr(torch, str(words[0]), None) if words else None
        return found if isinstance(found, torch.dtype) else None

    @property
    def adds_up(self) -> bool:
        """Whether the library adds its result to an input, so that each call gives another."""
        return dict(self.given).get("binary_post_op") == ("sum",)

    @property
    def activation(self) -> str:
        """That of the op; what `linear_binary` does is no activation."""
        return "none" if self.op == "linear_binary" else self.pointwise


def true_product(asked: Asked, inputs: Sequence[Tensor]) -> Truth:
    """What comes of these inputs. Raises NoReference, and whatever torch raises."""
    if asked.op in convolution.OPS and asked.given:
        return _true_convolution(asked, inputs)
    if asked.op.startswith("qlinear"):
        return _true_quantized(asked, inputs)
    activation = activation_of(asked.activation)
    sums = sums_of(asked.op, inputs, asked.pointwise)
    wide, rows = _wide(inputs[0]), ALL
    if (one := sums.whole) is not None and inputs[0].device.type == "cpu":
        rows = slice(None, None, step(one.first.a.shape, one.columns, problem.MOST_OPERATIONS))
    with torch.no_grad(), exact_sums():
        parts = [_values_and_terms(part, rows, wide) for part in sums.parts]
        values, terms = (sums.joined(list(part)) for part in zip(*parts, strict=True))
    dtype = asked.result or sums.parts[0].dtype
    if activation is not None:
        terms = activation.off(values, terms)
        values = activation.function(values)
    coarse = max(part.coarse for part in sums.parts)
    return _truth(values, terms, rows, dtype, asked.precision, coarse)


def _true_quantized(asked: Asked, inputs: Sequence[Tensor]) -> Truth:
    """A result of whole numbers may be rounded to either side where it lies in the middle."""
    dtype, given = asked.result, dict(asked.given)
    if dtype is None:
        raise NoReference(f"nothing tells the type of the result of {asked.op}")
    values, terms = quantized.values_and_terms(asked.op, inputs, given)
    if dtype.is_floating_point:
        return _truth(values, terms, ALL, dtype, "highest")
    scale, zero = (float(given[f"output_{name}"][0]) for name in ("scale", "zero_point"))
    kind = torch.iinfo(dtype)
    allowed = 0.5 + 1e-3 + LOW[torch.float32] * terms / scale
    return Truth((values / scale + zero).clamp(kind.min, kind.max), allowed, ALL)


def _wide(factor: Tensor) -> torch.dtype:
    cpu = factor.device.type == "cpu" or not factor.is_floating_point()
    return torch.float64 if cpu else torch.float32


def _values_and_terms(part: Sum, rows: slice, wide: torch.dtype) -> tuple[Tensor, Tensor]:
    """These rows, and what their terms are bound by."""
    values = terms = torch.zeros((), dtype=wide, device=part.first.a.device)
    for product in part.products:
        a, b = product.factors(wide, rows)
        values = values + a @ b
        terms = terms + a.norm(dim=-1, keepdim=True) * b.norm(dim=-2, keepdim=True)
    for added in part.added:
        more = rows_of(added, rows).to(wide)
        values, terms = values + more, terms + more.abs()
    return values, terms


def _true_convolution(asked: Asked, inputs: Sequence[Tensor]) -> Truth:
    """Libraries take TF32 for float32, whatever the precision of products is."""
    conv = convolution.convolution_of(asked.op, asked.given, asked.sizes)
    with torch.no_grad():
        values, terms = convolution.values_and_terms(conv, inputs, asked.given)
    precision = "high" if inputs[0].is_cuda else "highest"
    truth = _truth(values, terms, ALL, inputs[0].dtype, precision)
    partial = _partial_sums(replace(conv, sizes=tuple(values.shape)), inputs)
    if partial is None:
        return truth
    return replace(truth, allowed=truth.allowed + partial, partial=partial)


def _partial_sums(conv: convolution.Convolution, inputs: Sequence[Tensor]) -> Tensor | None:
    """How far off a result may be of PyTorch's own kernel, which rounds partial sums to the type of
    the inputs, without the last rounding. None where no such kernel runs. Raises NoReference."""
    one = inputs[0]
    if one.is_cuda or one.dtype not in (torch.float16, torch.bfloat16):
        return None
    if onednn_takes(one.dtype) and not conv.large_output_padding:
        return None
    with torch.no_grad():
        found = conv.partial_sums(*inputs[:2])
    if found is None:
        return None
    sizes, counts = found
    kind = torch.finfo(one.dtype)
    roundings = (counts - 1).clamp_min(0).to(torch.float64)
    lost = roundings * kind.eps / 2
    if not bool((lost < 1).all()):
        parts = counted(int(counts.max()), "partial sum")
        raise NoReference(f"PyTorch adds up {parts} in {kind.dtype} here, which may lose them all")
    return sizes * (lost / (1 - lost)) + roundings * kind.tiny * kind.eps


def _truth(
    values: Tensor,
    terms: Tensor,
    rows: slice,
    dtype: torch.dtype,
    precision: str,
    coarse: float = 0.0,
) -> Truth:
    """`values` are in a wider type than `dtype`, in which choices compute."""
    wide = values.dtype
    if 0 in values.shape:
        return Truth(values, values, rows)
    if dtype.is_floating_point and not bool(values.abs().max() < 0.9 * torch.finfo(dtype).max):
        raise NoReference(f"the result is too large for {dtype}")
    if not dtype.is_floating_point:
        return Truth(values, torch.full_like(values, 0.5), rows)
    relative = COARSE.get(precision, 0.0) if dtype == torch.float32 else coarse
    relative = max(relative, LOW.get(dtype, 8 * torch.finfo(wide).eps))
    if wide == torch.float32:
        relative = max(relative, 8 * 2.0**-23)
    rounding = 2 * torch.finfo(dtype).eps * values.abs()
    return Truth(values, rounding + relative * terms + 1e-30, rows)


def step(shape: Sequence[int], columns: int, most: float) -> int:
    """Every so many-th row is looked at."""
    elements = math.prod(shape[:-1]) * max(columns, shape[-1])
    operations = 2.0 * math.prod(shape) * columns
    return max(1, math.ceil(operations / most), math.ceil(elements / problem.MOST_ELEMENTS))


class exact_sums:
    """Full float32 products on a GPU, whatever the op's own precision is."""

    def __enter__(self) -> None:
        self._was = torch.get_float32_matmul_precision()
        if self._was != "highest":
            torch.set_float32_matmul_precision("highest")

    def __exit__(self, *_: object) -> None:
        if self._was != "highest":
            torch.set_float32_matmul_precision(self._was)
