"""Checks of a choice's result: its error against the bound of rounding, else against ATen's result.

A choice is *wrong*, and not measured, if no rounding explains its result: by Cauchy and Schwarz the
terms of a dot product are bounded by the lengths of row and column, and each rounding by the type
of the factors (`Truth`). A result that is not wrong may still be *beyond* the errors of float32
sums, element by element (`Exact`): missing terms, sums in a narrower type.
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
from backend.inductor.benchmark.tensors import epsilon_of, wide_dtype
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
    """The true values of the rows `rows`, and the allowed error of each."""

    values: Tensor
    allowed: Tensor
    rows: slice
    partial: Tensor | None = None
    """The additional error of PyTorch's own kernel, which rounds partial sums."""

    def check(self, result: Tensor) -> None:
        """Raise WrongResult if the result has a larger error."""
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
    """The specification of every choice: the op, its precision, and properties that its inputs
    lack: a convolution's options, the sizes of the result, the pointwise function applied last,
    and alpha and beta of a sum, None if unknown."""

    op: str
    precision: str
    given: Options = ()
    sizes: tuple[int, ...] = ()
    pointwise: str = "none"
    scales: tuple[float, float] | None = (1.0, 1.0)

    @property
    def result(self) -> torch.dtype | None:
        """The recorded type of the result."""
        words = dict(self.given).get("out_dtype") or dict(self.given).get("output_dtype")
        dtype = getattr(torch, str(words[0]), None) if words else None
        return dtype if isinstance(dtype, torch.dtype) else None

    @property
    def adds_up(self) -> bool:
        """Whether the library adds its result to an input, so that results change."""
        return dict(self.given).get("binary_post_op") == ("sum",)

    @property
    def activation(self) -> str:
        """The activation of the op; `linear_binary`'s function is not one."""
        return "none" if self.op == "linear_binary" else self.pointwise


def true_product(spec: OpSpec, inputs: Sequence[Tensor]) -> Truth:
    """Return the true result of these inputs. Raises NoReference, and whatever torch raises."""
    if spec.op in CONVOLUTIONS and spec.given:
        return _true_convolution(spec, inputs)
    if spec.op.startswith("qlinear"):
        return _true_quantized(spec, inputs)
    activation = activation_of(spec.activation)
    sums = sums_of(spec.op, inputs, spec.pointwise, spec.scales)
    wide, rows = wide_dtype(inputs[0]), ALL
    if (whole := sums.whole) is not None and inputs[0].device.type == "cpu":
        rows = slice(
            None, None, step(whole.first.a.shape, whole.columns, true_results.MOST_OPERATIONS)
        )
    with torch.no_grad(), exact_sums():
        parts = [_values_and_terms(part, rows, wide) for part in sums.parts]
        values, terms = (sums.joined(list(part)) for part in zip(*parts, strict=True))
    dtype = spec.result or sums.parts[0].dtype
    if activation is not None:
        terms = activation.off(values, terms)
        values = activation.function(values)
    coarse = max(part.coarse for part in sums.parts)
    return _truth(values, terms, rows, dtype, spec.precision, coarse)


def _true_quantized(spec: OpSpec, inputs: Sequence[Tensor]) -> Truth:
    """Return the true quantized values; a value in the middle may be rounded to either side."""
    dtype, given = spec.result, dict(spec.given)
    if dtype is None:
        raise NoReference(f"the result type is unknown for {spec.op}")
    values, terms = true_results.quantized_values(spec.op, inputs, given)
    if dtype.is_floating_point:
        return _truth(values, terms, ALL, dtype, "highest")
    scale, zero = (float(given[f"output_{name}"][0]) for name in ("scale", "zero_point"))
    kind = torch.iinfo(dtype)
    allowed = 0.5 + 1e-3 + LOW[torch.float32] * terms / scale
    return Truth((values / scale + zero).clamp(kind.min, kind.max), allowed, ALL)


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


def _true_convolution(spec: OpSpec, inputs: Sequence[Tensor]) -> Truth:
    """Return the true values of a convolution, for which libraries use TF32 in any precision."""
    conv = true_results.convolution_of(spec.op, spec.given, spec.sizes)
    with torch.no_grad():
        values, terms = true_results.convolution_values(conv, inputs, spec.given)
    precision = "high" if inputs[0].is_cuda else "highest"
    truth = _truth(values, terms, ALL, inputs[0].dtype, precision)
    partial = _partial_sums(replace(conv, sizes=tuple(values.shape)), inputs)
    if partial is None:
        return truth
    return replace(truth, allowed=truth.allowed + partial, partial=partial)


def _partial_sums(conv: true_results.Convolution, inputs: Sequence[Tensor]) -> Tensor | None:
    """Return the additional error of PyTorch's own kernel, which rounds partial sums to the type of
    the inputs, without the last rounding. None if no such kernel runs. Raises NoReference."""
    factor = inputs[0]
    if factor.is_cuda or factor.dtype not in (torch.float16, torch.bfloat16):
        return None
    if onednn_takes(factor.dtype) and not conv.large_output_padding:
        return None
    with torch.no_grad():
        sums = conv.partial_sums(*inputs[:2])
    if sums is None:
        return None
    sizes, counts = sums
    kind = torch.finfo(factor.dtype)
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
    """Build the truth; `values` are in a wider type than `dtype`, in which choices compute."""
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
    """A context with full float32 products on a GPU, whatever the op's own precision is."""

    def __enter__(self) -> None:
        self._was = torch.get_float32_matmul_precision()
        if self._was != "highest":
            torch.set_float32_matmul_precision("highest")

    def __exit__(self, *_: object) -> None:
        if self._was != "highest":
            torch.set_float32_matmul_precision(self._was)


_GPU_OPERATIONS = 4e11
"""Operations of the float64 product on a GPU: a third of a second for the slowest type."""

_CHUNK = 1 << 22
"""Elements that are compared at once: 32 MiB, three times."""

_FEW = 16
"""Roundings beside those of the terms: adding partial sums, a scale."""

_FP8_SUMS = (2.0**-13, 256)
"""Hopper's fp8 sums have 14 bits ("DeepSeek-V3 Technical Report", 2024, 3.3.2), with at most as
many terms before they are added in float32."""


@dataclass(frozen=True, slots=True)
class Distance:
    """Of `compared` elements, `beyond` have a larger error than rounding explains, the worst by
    `excess` times the tolerance."""

    compared: int
    beyond: int
    excess: float


@dataclass(frozen=True, slots=True)
class Exact:
    """The elements `part` of the result in float64, and the error bound `off` of each sum.

    A sum of `k` products in any order has an error of at most `gamma(k) |a| |b|`, element by
    element (Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed. 2002, 3.1 and 3.5,
    equations 3.5 and 3.13). Then the value is rounded to the type of the result (theorem 2.2).
    """

    values: Tensor
    off: Tensor
    part: tuple[slice | EllipsisType, ...] = (ALL,)
    lost: float = 0.0
    """The additional error of sums, relative to the magnitude of their terms."""
    activation: str = "none"
    """The activation that was applied already."""
    partial: Tensor | None = None
    """The additional error of PyTorch's own kernel, which rounds partial sums."""

    def of_library(self) -> Exact | None:
        """Return the bound for PyTorch's own kernel; None if a result of zeros would satisfy it for
        most elements, so that it proves nothing."""
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
        """Return the error of a result of the right shape; a NaN is beyond."""
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
        """Return the bound after the function with this name, applied to the result, which may have
        been stored as `dtype` before. Raises NoReference."""
        activation = activation_of(name)
        if activation is None or activation == activation_of(self.activation):
            return self
        before = self.off + unit_of(dtype) * (self.values.abs() + self.off)
        off = activation.off(self.values, before)
        return replace(self, values=activation.function(self.values), off=off, activation=name)

    def narrow(self, dtype: torch.dtype) -> Exact:
        """Return the bound if a library's setting lets it round partial sums to `dtype`."""
        if not self.lost or not dtype.is_floating_point:
            return self
        return replace(self, off=self.off * (1 + unit_of(dtype) / self.lost))


def _excess(seen: Tensor, values: Tensor, off: Tensor) -> Tensor:
    """Return the errors as multiples of the tolerance."""
    error = (seen.to(torch.float64) - values).abs_()
    if not seen.is_floating_point():
        return error.div_(off)
    kind = torch.finfo(seen.dtype)
    allowed = values.abs().add_(off).mul_(kind.eps / 2).add_(off)
    # Subnormal numbers have equal steps, or are flushed to zero.
    return error.div_(allowed.add_(max(kind.tiny * kind.eps, torch.finfo(torch.float32).tiny)))


def gamma(terms: int, unit: float) -> float:
    """Return Higham's gamma of that many roundings of at most `unit`; infinite if unbounded."""
    lost = terms * unit
    return lost / (1 - lost) if lost < 1 else math.inf


def unit_of(dtype: torch.dtype) -> float:
    """Return the maximum relative error of rounding to a type."""
    return torch.finfo(dtype).eps / 2 if dtype.is_floating_point else 0.0


def exact_product(spec: OpSpec, inputs: Sequence[Tensor], truth: Truth) -> Exact | None:
    """Return the exact result of the inputs; None if no bound is known. `truth` is of the same
    inputs. Raises NoReference, and whatever torch raises."""
    if 0 in truth.values.shape:
        return None
    if spec.op in CONVOLUTIONS and spec.given:
        return _exact_convolution(spec, inputs, truth)
    sums = sums_of(spec.op, inputs, spec.pointwise, spec.scales)
    whole, rows = sums.whole, ALL
    if whole is not None:
        most = true_results.MOST_OPERATIONS if inputs[0].device.type == "cpu" else _GPU_OPERATIONS
        rows = slice(None, None, step(whole.first.a.shape, whole.columns, most))
    lost = [_lost(part.first.a, spec.precision, part.terms, part.coarse) for part in sums.parts]
    if not all(part < 1 for part in lost):
        return None  # then every error is within the bound
    with torch.no_grad(), exact_sums():
        given = truth.values if _known(spec, sums, truth, rows) else None
        parts = [
            _values_and_off(part, rows, part_lost, given)
            for part, part_lost in zip(sums.parts, lost, strict=True)
        ]
        values, off = (sums.joined(list(part)) for part in zip(*parts, strict=True))
    dtype = sums.parts[0].dtype
    if not dtype.is_floating_point:
        return Exact(values, torch.full_like(values, 0.5), (..., rows, ALL))
    exact = Exact(values, off, (..., rows, ALL), max(lost))
    return exact.activated(spec.activation, dtype)


def _known(spec: OpSpec, sums: JoinedSums, truth: Truth, rows: slice) -> bool:
    """Return whether the truth has the values already."""
    wide, alone = truth.values.dtype == torch.float64, spec.activation == "none"
    whole = sums.whole
    return wide and alone and whole is not None and len(whole.products) == 1 and truth.rows == rows


def _values_and_off(
    part: Sum, rows: slice, lost: float, given: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return these rows in float64, unless they are `given`, and their error bounds."""
    a = part.first.a[..., rows, :]
    off = torch.zeros((*a.shape[:-1], part.columns), dtype=torch.float64, device=a.device)
    more = sum((rows_of(added, rows).to(torch.float64) for added in part.added), off.new_zeros(()))
    unit, summands = unit_of(part.dtype), len(part.products) + len(part.added)
    stored = unit * (part.stages - 1 + summands - 1)
    values = off.clone() if given is None else given
    if given is not None and stored:
        off += (given - more).abs_().mul_(stored)
    for columns in _columns(part):
        for product in part.products:
            left, right = product.factors(torch.float32, rows, columns)
            off[..., columns] += (left.abs() @ right.abs()).to(torch.float64).mul_(lost)
            if given is None:
                left, right = product.factors(torch.float64, rows, columns)
                products = left @ right
                values[..., columns] += products
                off[..., columns] += products.abs_().mul_(stored)
    for added in part.added:
        off += lost * rows_of(added, rows).to(torch.float64).abs()
    for added in part.added[:-1]:  # a library may store the sum before it adds the last one
        off += unit * rows_of(added, rows).to(torch.float64).abs()
    return values if given is not None else values.add_(more), off.mul_(1 + stored)


def _columns(part: Sum) -> Iterator[slice]:
    """Yield slices of columns that fit into memory."""
    width = max(1, true_results.MOST_ELEMENTS // max(1, math.prod(part.first.b.shape[:-1])))
    for first in range(0, part.columns, width):
        yield slice(first, first + width)


def _exact_convolution(spec: OpSpec, inputs: Sequence[Tensor], truth: Truth) -> Exact | None:
    factor, other, *bias = inputs
    conv = true_results.convolution_of(spec.op, spec.given, spec.sizes)
    terms, values = conv.terms(factor, other), truth.values
    if factor.is_cuda:
        if not conv.direct(other) or 2.0 * terms * values.numel() > _GPU_OPERATIONS:
            return None
        values = conv.of(factor.to(torch.float64), other.to(torch.float64))
        values = values + true_results.along_channels(bias[0], values) if bias else values
    lost = _lost(factor, "high" if factor.is_cuda else "highest", terms)
    if not lost < 1:
        return None
    sizes = (tensor.to(torch.float32).abs() for tensor in (factor, other))
    off = conv.of(*sizes).to(torch.float64).mul_(lost)
    if bias:
        added = true_results.along_channels(bias[0], values).to(torch.float64)
        stored = unit_of(factor.dtype)
        off = (off + lost * added.abs() + stored * (values - added).abs()) * (1 + stored)
    partial = None if truth.partial is None else truth.partial * (1 + 2 * unit_of(factor.dtype))
    return Exact(values, off, (ALL,), lost, partial=partial)


def _lost(factor: Tensor, precision: str, terms: int, coarse: float = 0.0) -> float:
    """Return the relative error of a sum of `terms` products in float32 itself. A float64 sum is
    compared with another that has the same error. Matrix units truncate where others round (Fasi,
    Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021)."""
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
    """Return the specification for all `choices`, whose results have these `sizes`. `given` are a
    convolution's options, if known; ATen's choice has the rest."""
    extern = torch_choices.extern_options(op, list(choices))
    return OpSpec(
        op, precision, given or extern.given, tuple(sizes), extern.pointwise, extern.scales
    )


def bound_of(choice: ChoiceCaller, exact: Exact, dtype: torch.dtype) -> Exact | None:
    """Return the bound for the result of `choice`, which has this type; None if unknown. Our
    choices may have an activation that the op lacks."""
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
    """ATen's result for the inputs, and the bound of rounding, if known. A library may round more
    on purpose: ATen's own error is always allowed."""

    expected: Tensor
    exact: Exact | None = None
    most: float = 1.0

    def check(self, output: Tensor, choice: ChoiceCaller) -> None:
        """Raise WrongResult if the output has a larger error."""
        exact = None if self.exact is None else bound_of(choice, self.exact, output.dtype)
        if exact is None:
            _compare(output, self.expected)
            return
        distance = exact.distance(output)
        if distance.excess > self.most:
            worst = "far more than" if distance.excess > 1e6 else f"{distance.excess:.3g} times"
            raise WrongResult(
                f"wrong result: {distance.beyond:,} of {counted(distance.compared, 'element')} "
                f"{noun(distance.beyond, 'is', 'are')} further off than rounding explains, the "
                f"worst by {worst} what is allowed"
            )


def check_of(spec: OpSpec | None, inputs: Sequence[Tensor], expected: Tensor) -> ResultCheck:
    """Return the check of a result for which ATen gave `expected`, all that is known without
    `spec`."""
    if spec is None:
        return ResultCheck(expected)
    try:
        exact = exact_product(spec, inputs, true_product(spec, inputs))
    except (NoReference, RuntimeError, IndexError):  # out of memory, or unusual operands
        exact = None
    if exact is None:
        return ResultCheck(expected)
    library = exact.of_library()
    most = 1.0 if library is None else library.distance(expected).excess
    return ResultCheck(expected, exact, max(1.0, most))


def _compare(output: Tensor, expected: Tensor) -> None:
    """Compare without a bound: both are rounded sums, in different orders. Raises WrongResult."""
    wide = torch.float32 if output.is_cuda else torch.float64
    error = (output.to(wide) - expected.to(wide)).abs()
    worst = float(error.max()) if error.numel() else 0.0
    scale = float(expected.to(wide).abs().max()) if error.numel() else 0.0
    exact = not output.dtype.is_floating_point
    allowed = 0.0 if exact else 8 * epsilon_of(output.dtype) * scale + 1e-4 * scale
    if math.isnan(worst) or worst > allowed:
        raise WrongResult(f"wrong result: max error {worst:.3g}, where {allowed:.3g} is allowed")
