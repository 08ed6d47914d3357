"""Check the result of a choice: how far off it may be, by what rounding explains, else beside
ATen's.

A choice is *wrong*, and not measured, where no rounding at all explains its result: by Cauchy and
Schwarz the terms of a dot product are bound by the lengths of row and column, and each rounding by
the type that the factors have (`Truth`). What is not wrong may still be *beyond* what sums in
float32 lose, element by element (`Exact`): terms that were left out, sums in a narrower type.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import EllipsisType

import torch
from torch import Tensor

from backend.counted import counted, noun
from backend.inductor import true_results
from backend.inductor.benchmark.errors import WrongResult
from backend.inductor.benchmark.request import ROCmBenchmarkRequest
from backend.inductor.benchmark.tensors import epsilon_of
from backend.inductor.torch import choices as torch_choices
from backend.inductor.torch.choices import onednn_takes
from backend.inductor.torch.tuning import ChoiceCaller, is_extern
from backend.inductor.true_results import (
    ALL,
    JoinedSums,
    NoReference,
    Sum,
    activation_of,
    rows_of,
    sums_of,
)
from backend.model.options import CONVOLUTIONS, Options

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
class OpSpec:
    """What is asked of every choice: the op, its precision, and what its inputs do not tell: a
    convolution's options, the sizes of the result, what is done with it at last."""

    op: str
    precision: str
    given: Options = ()
    sizes: tuple[int, ...] = ()
    pointwise: str = "none"

    @property
    def result(self) -> torch.dtype | None:
        """The type of the result, where it was recorded."""
        words = dict(self.given).get("out_dtype") or dict(self.given).get("output_dtype")
        found = getattr(torch, str(words[0]), None) if words else None
        return found if isinstance(found, torch.dtype) else None

    @property
    def adds_up(self) -> bool:
        """Whether the library adds its result to an input, so that each call gives another."""
        return dict(self.given).get("binary_post_op") == ("sum",)

    @property
    def activation(self) -> str:
        """The activation of the op; what `linear_binary` does is none."""
        return "none" if self.op == "linear_binary" else self.pointwise


def true_product(asked: OpSpec, inputs: Sequence[Tensor]) -> Truth:
    """Return the true result of these inputs. Raises NoReference, and whatever torch raises."""
    if asked.op in CONVOLUTIONS and asked.given:
        return _true_convolution(asked, inputs)
    if asked.op.startswith("qlinear"):
        return _true_quantized(asked, inputs)
    activation = activation_of(asked.activation)
    sums = sums_of(asked.op, inputs, asked.pointwise)
    wide, rows = _wide(inputs[0]), ALL
    if (one := sums.whole) is not None and inputs[0].device.type == "cpu":
        rows = slice(None, None, step(one.first.a.shape, one.columns, true_results.MOST_OPERATIONS))
    with torch.no_grad(), exact_sums():
        parts = [_values_and_terms(part, rows, wide) for part in sums.parts]
        values, terms = (sums.joined(list(part)) for part in zip(*parts, strict=True))
    dtype = asked.result or sums.parts[0].dtype
    if activation is not None:
        terms = activation.off(values, terms)
        values = activation.function(values)
    coarse = max(part.coarse for part in sums.parts)
    return _truth(values, terms, rows, dtype, asked.precision, coarse)


def _true_quantized(asked: OpSpec, inputs: Sequence[Tensor]) -> Truth:
    """A result of whole numbers may be rounded to either side where it lies in the middle."""
    dtype, given = asked.result, dict(asked.given)
    if dtype is None:
        raise NoReference(f"nothing tells the type of the result of {asked.op}")
    values, terms = true_results.quantized_values(asked.op, inputs, given)
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
    """Return these rows, and the bound of their terms."""
    values = terms = torch.zeros((), dtype=wide, device=part.first.a.device)
    for product in part.products:
        a, b = product.factors(wide, rows)
        values = values + a @ b
        terms = terms + a.norm(dim=-1, keepdim=True) * b.norm(dim=-2, keepdim=True)
    for added in part.added:
        more = rows_of(added, rows).to(wide)
        values, terms = values + more, terms + more.abs()
    return values, terms


def _true_convolution(asked: OpSpec, inputs: Sequence[Tensor]) -> Truth:
    """Libraries take TF32 for float32, whatever the precision of products is."""
    conv = true_results.convolution_of(asked.op, asked.given, asked.sizes)
    with torch.no_grad():
        values, terms = true_results.convolution_values(conv, inputs, asked.given)
    precision = "high" if inputs[0].is_cuda else "highest"
    truth = _truth(values, terms, ALL, inputs[0].dtype, precision)
    partial = _partial_sums(replace(conv, sizes=tuple(values.shape)), inputs)
    if partial is None:
        return truth
    return replace(truth, allowed=truth.allowed + partial, partial=partial)


def _partial_sums(conv: true_results.Convolution, inputs: Sequence[Tensor]) -> Tensor | None:
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
    """Return the step between the rows that are checked."""
    elements = math.prod(shape[:-1]) * max(columns, shape[-1])
    flop = 2.0 * math.prod(shape) * columns
    return max(1, math.ceil(flop / most), math.ceil(elements / true_results.MOST_ELEMENTS))


class exact_sums:
    """Full float32 products on a GPU, whatever the op's own precision is."""

    def __enter__(self) -> None:
        self._was = torch.get_float32_matmul_precision()
        if self._was != "highest":
            torch.set_float32_matmul_precision("highest")

    def __exit__(self, *_: object) -> None:
        if self._was != "highest":
            torch.set_float32_matmul_precision(self._was)


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
    """The activation that was applied already."""
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
        """Return how far off a result of the right shape is; a NaN is beyond."""
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
    """Return the errors as multiples of what is allowed."""
    error = (seen.to(torch.float64) - values).abs_()
    if not seen.is_floating_point():
        return error.div_(off)
    kind = torch.finfo(seen.dtype)
    allowed = values.abs().add_(off).mul_(kind.eps / 2).add_(off)
    # Below the normal numbers steps are of one size, or are left out.
    return error.div_(allowed.add_(max(kind.tiny * kind.eps, torch.finfo(torch.float32).tiny)))


def gamma(terms: int, unit: float) -> float:
    """Return Higham's gamma of that many roundings of at most `unit`; infinite where unbounded."""
    lost = terms * unit
    return lost / (1 - lost) if lost < 1 else math.inf


def unit_of(dtype: torch.dtype) -> float:
    """Return what rounding to a type loses at most, relative to the number."""
    return torch.finfo(dtype).eps / 2 if dtype.is_floating_point else 0.0


def exact_product(asked: OpSpec, inputs: Sequence[Tensor], truth: Truth) -> Exact | None:
    """Return the exact result of the inputs; None where no bound is known. `truth` is of the same
    inputs.
    Raises NoReference, and whatever torch raises."""
    if 0 in truth.values.shape:
        return None
    if asked.op in CONVOLUTIONS and asked.given:
        return _exact_convolution(asked, inputs, truth)
    sums = sums_of(asked.op, inputs, asked.pointwise)
    one, rows = sums.whole, ALL
    if one is not None:
        most = true_results.MOST_OPERATIONS if inputs[0].device.type == "cpu" else _GPU_OPERATIONS
        rows = slice(None, None, step(one.first.a.shape, one.columns, most))
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


def _known(asked: OpSpec, sums: JoinedSums, truth: Truth, rows: slice) -> bool:
    """Whether the truth has the values already."""
    wide, alone = truth.values.dtype == torch.float64, asked.activation == "none"
    one = sums.whole
    return wide and alone and one is not None and len(one.products) == 1 and truth.rows == rows


def _values_and_off(
    part: Sum, rows: slice, lost: float, known: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return these rows in float64, unless they are `known`, and how far off they may be."""
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
    """Yield the columns, as many at once as there is memory for."""
    width = max(1, true_results.MOST_ELEMENTS // max(1, math.prod(part.first.b.shape[:-1])))
    for first in range(0, part.columns, width):
        yield slice(first, first + width)


def _exact_convolution(asked: OpSpec, inputs: Sequence[Tensor], truth: Truth) -> Exact | None:
    one, other, *bias = inputs
    conv = true_results.convolution_of(asked.op, asked.given, asked.sizes)
    terms, values = conv.terms(one, other), truth.values
    if one.is_cuda:
        if not conv.direct(other) or 2.0 * terms * values.numel() > _GPU_OPERATIONS:
            return None
        values = conv.of(one.to(torch.float64), other.to(torch.float64))
        values = values + true_results.along_channels(bias[0], values) if bias else values
    lost = _lost(one, "high" if one.is_cuda else "highest", terms)
    if not lost < 1:
        return None
    sizes = (tensor.to(torch.float32).abs() for tensor in (one, other))
    off = conv.of(*sizes).to(torch.float64).mul_(lost)
    if bias:
        added = true_results.along_channels(bias[0], values).to(torch.float64)
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
    factors = COARSE.get(precision, 0.0) if factor.dtype == torch.float32 else coarse
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


def op_spec_of(
    op: str,
    precision: str,
    choices: Iterable[ChoiceCaller],
    sizes: Sequence[int],
    given: Options = (),
) -> OpSpec:
    """Of all `choices`, whose results have these `sizes`. `given` are a convolution's options,
    where they are known; ATen's choice tells what else the inputs do not."""
    told = torch_choices.extern_options(op, list(choices))
    return OpSpec(op, precision, given or told.given, tuple(sizes), told.pointwise)


def bound_of(choice: ChoiceCaller, exact: Exact, dtype: torch.dtype) -> Exact | None:
    """What holds for the result of `choice`, which is of this type; None where that is not known.
    Ours may have an activation that the op has not."""
    request = torch_choices.request_of(choice)
    if not isinstance(request, ROCmBenchmarkRequest):
        if not is_extern(choice):
            return exact
        narrow = torch_choices.narrow_sums(exact.values.device, dtype)
        return (exact.narrow(dtype) if narrow else exact).of_library()
    if getattr(request.reference, "fast_sums", False):
        return None
    try:
        return exact.activated(getattr(request.reference, "activation", "none"), dtype)
    except NoReference:
        return None


@dataclass(frozen=True, slots=True)
class ResultCheck:
    """What ATen made of the inputs, and where it is known, the bound of what rounding explains. A
    library may round more than that on purpose: what ATen itself is off is no other's fault."""

    expected: Tensor
    exact: Exact | None = None
    most: float = 1.0

    def check(self, output: Tensor, choice: ChoiceCaller) -> None:
        """Raises WrongResult."""
        exact = None if self.exact is None else bound_of(choice, self.exact, output.dtype)
        if exact is None:
            _compare(output, self.expected)
            return
        found = exact.distance(output)
        if found.excess > self.most:
            worst = "far more than" if found.excess > 1e6 else f"{found.excess:.3g} times"
            raise WrongResult(
                f"wrong result: {found.beyond:,} of {counted(found.compared, 'element')} "
                f"{noun(found.beyond, 'is', 'are')} further off than rounding explains, the worst "
                f"by {worst} what is allowed"
            )


def check_of(asked: OpSpec | None, inputs: Sequence[Tensor], expected: Tensor) -> ResultCheck:
    """The check of what these inputs give, of which ATen made `expected`; without `asked` nothing
    is known but that."""
    if asked is None:
        return ResultCheck(expected)
    try:
        exact = exact_product(asked, inputs, true_product(asked, inputs))
    except (NoReference, RuntimeError, IndexError):  # no memory for it, or odd operands
        exact = None
    if exact is None:
        return ResultCheck(expected)
    library = exact.of_library()
    most = 1.0 if library is None else library.distance(expected).excess
    return ResultCheck(expected, exact, max(1.0, most))


def _compare(output: Tensor, expected: Tensor) -> None:
    """Where no bound is known: both are rounded sums, in orders of their own. Raises
    WrongResult."""
    wide = torch.float32 if output.is_cuda else torch.float64
    error = (output.to(wide) - expected.to(wide)).abs()
    worst = float(error.max()) if error.numel() else 0.0
    scale = float(expected.to(wide).abs().max()) if error.numel() else 0.0
    exact = not output.dtype.is_floating_point
    allowed = 0.0 if exact else 8 * epsilon_of(output.dtype) * scale + 1e-4 * scale
    if math.isnan(worst) or worst > allowed:
        raise WrongResult(f"wrong result: max error {worst:.3g}, where {allowed:.3g} is allowed")
