"""What a choice should compute, and whether it did.

The true values of a large result would take several times its memory: they are computed a tile at
a time, for every choice again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from backend.counted import counted, noun
from backend.inductor.benchmark import tensors
from backend.inductor.benchmark.errors import WrongResult
from backend.templates.problem import Activation

Tile = tuple[slice, ...]
"""A part of a result, dimension by dimension."""


class Reference(Protocol):
    """What a kernel computes, by ATen. Its tiles cover the result and need `CHUNK_BYTES` each."""

    def expected(self, inputs: Sequence[Tensor]) -> Expected:
        """What comes of these inputs, which are kept."""

    def tiles(self, inputs: Sequence[Tensor], sizes: Sequence[int]) -> Iterable[Tile]:
        """Of the result that has these sizes."""

    def part(self, inputs: Sequence[Tensor], tile: Tile) -> tuple[Tensor, Tensor]:
        """The true values of a tile in `wide_dtype`, and for each a bound of the terms that were
        summed up for it, both fresh."""


@runtime_checkable
class Drawing(Protocol):
    """A reference whose inputs are not any numbers."""

    def drawn(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Inputs of the same kind that make sense, of random ones."""


def wide_dtype(factor: Tensor) -> torch.dtype:
    """In which true values are computed; whole numbers are exact in it."""
    narrow = factor.dtype.is_floating_point and factor.dtype != torch.float64
    return torch.float32 if narrow and factor.is_cuda else torch.float64


@dataclass(frozen=True, slots=True)
class Expected:
    """The true result of inputs, computed a tile at a time when it is asked for. The first input is
    a factor, which tells the type that a kernel sums up in."""

    reference: Reference
    inputs: tuple[Tensor, ...]

    def check(self, output: Tensor) -> None:
        """Raises WrongResult, with the largest error and its place."""
        if not output.numel():
            return
        tiles = list(self.reference.tiles(self.inputs, output.shape))
        _check_written(output, tiles)
        worst = _Worst()
        for tile in tiles:
            values, terms = self.reference.part(self.inputs, tile)
            error = (output[tile].to(values.dtype) - values).abs_()
            allowed = values.abs_().mul_(2 * epsilon_of(output.dtype))
            allowed += terms.mul_(8 * epsilon_of_sums(self.inputs[0].dtype))
            worst = max(worst, _worst(error, allowed.add_(1e-30), tile), key=_excess)
        if not worst.excess <= 1:
            raise WrongResult(
                f"wrong result: max error {worst.error:.3g} at {worst.place}, where "
                f"{worst.allowed:.3g} is allowed"
            )


@dataclass(frozen=True, slots=True)
class GemmReference:
    """`activation(beta * bias + alpha * scale_a * scale_b * (a @ b + c @ d))`, of those inputs that
    there are."""

    alpha: float = 1.0
    beta: float = 1.0
    activation: Activation = "none"
    order: tuple[int, ...] = (0, 1, 2)
    """Where each of `names` stands among the inputs; of the last ones some may be missing."""
    names: tuple[str, ...] = ("a", "b", "bias")
    fast_sums: bool = False
    """Sums of fp8 may be those of the hardware, Hopper's of some 14 bits ("DeepSeek-V3 Technical
    Report", 3.3.2)."""

    def expected(self, inputs: Sequence[Tensor]) -> Expected:
        """What comes of these inputs, which are kept."""
        ordered = [inputs[index] for index in self.order if index < len(inputs)]
        return Expected(self, tuple(ordered))

    def tiles(self, inputs: Sequence[Tensor], sizes: Sequence[int]) -> Iterator[Tile]:
        *batches, rows, columns = sizes
        k, itemsize = inputs[0].shape[-1], wide_dtype(inputs[0]).itemsize
        for tile in tiles(math.prod(batches), rows, columns, k, itemsize):
            yield tile[-len(sizes) :]

    def part(self, inputs: Sequence[Tensor], tile: Tile) -> tuple[Tensor, Tensor]:
        """By Cauchy and Schwarz a dot product's terms are bound by the lengths of row and
        column."""
        *batch, rows, columns = tile
        wide = wide_dtype(inputs[0])
        parts = (x[batch[0]] if batch and x.dim() > 2 else x for x in inputs)
        given = dict(zip(self.names, parts, strict=False))
        values, terms = _product(given["a"], given["b"], rows, columns, wide)
        if "c" in given:
            second, more = _product(given["c"], given["d"], rows, columns, wide)
            values, terms = values.add_(second), terms.add_(more)
        values, terms = values.mul_(self.alpha), terms.mul_(abs(self.alpha))
        if self.fast_sums:
            terms.mul_(2.0**10)  # 2^-13 for 2^-23
        for name in ("scale_a", "scale_b"):
            if name in given:
                scale = _broadcast(given[name], rows, columns).to(wide)
                values, terms = values.mul_(scale), terms.mul_(scale.abs())
        if "bias" in given:
            added = _broadcast(given["bias"], rows, columns).to(wide) * self.beta
            values += added
            terms += added.abs_()
        return activated(values, self.activation), terms


def _product(
    a: Tensor, b: Tensor, rows: slice, columns: slice, wide: torch.dtype
) -> tuple[Tensor, Tensor]:
    a, b = a[..., rows, :].to(wide), b[..., columns].to(wide)
    return torch.matmul(a, b), a.norm(dim=-1, keepdim=True) * b.norm(dim=-2, keepdim=True)


def _broadcast(tensor: Tensor, rows: slice, columns: slice) -> Tensor:
    """What belongs to a tile of a tensor that is broadcast to the result."""
    if tensor.dim() and tensor.shape[-1] > 1:
        tensor = tensor[..., columns]
    return tensor[..., rows, :] if tensor.dim() > 1 and tensor.shape[-2] > 1 else tensor


def tiles(batches: int, rows: int, columns: int, k: int, itemsize: int) -> Iterator[Tile]:
    """Batches, rows and columns of a product, as few as can be: for each one `CHUNK_BYTES` suffice,
    factors and results together."""
    b, m, n = batches, rows, columns

    def needed() -> int:
        return itemsize * b * (2 * k * (m + n) + 6 * m * n)

    while needed() > tensors.CHUNK_BYTES and (b, m, n) != (1, 1, 1):
        if b > 1:
            b = -(-b // 2)
        elif m >= n:
            m = -(-m // 2)
        else:
            n = -(-n // 2)
    for batch in range(0, batches, b):
        for column in range(0, columns, n):
            for row in range(0, rows, m):
                yield slice(batch, batch + b), slice(row, row + m), slice(column, column + n)


def _place(index: int, sizes: Sequence[int], tile: Tile) -> list[int]:
    """Of a tile's element in the whole."""
    at = torch.unravel_index(torch.tensor(index), tuple(sizes))
    return [(part.start or 0) + int(i) for part, i in zip(tile, at, strict=True)]


@dataclass(frozen=True, slots=True)
class _Worst:
    """The element that is further off than any other, as a multiple of what is allowed."""

    excess: float = -1.0
    error: float = 0.0
    allowed: float = 0.0
    place: Sequence[int] = ()


def _excess(worst: _Worst) -> float:
    return math.inf if math.isnan(worst.excess) else worst.excess


def _worst(error: Tensor, allowed: Tensor, tile: Tile) -> _Worst:
    excess = error / allowed
    at = int(excess.argmax())
    error_at, allowed_at = (float(values.flatten()[at]) for values in (error, allowed))
    return _Worst(float(excess.flatten()[at]), error_at, allowed_at, _place(at, error.shape, tile))


def _check_written(output: Tensor, tiles: Iterable[Tile]) -> None:
    unwritten, first = 0, list[int]()
    for tile in tiles:
        bad = output[tile].isnan()
        count = int(bad.sum())
        if count and not unwritten:
            first = _place(int(bad.flatten().int().argmax()), bad.shape, tile)
        unwritten += count
    if unwritten:
        raise WrongResult(
            f"wrong result: {unwritten:,} of {counted(output.numel(), 'element')} "
            f"{noun(unwritten, 'is', 'are')} NaN, "
            f"the first at {first}: not written, or read past an edge"
        )


def epsilon_of(dtype: torch.dtype) -> float:
    """The distance of 1 to the next number; none for whole numbers."""
    return torch.finfo(dtype).eps if dtype.is_floating_point else 0.0


def epsilon_of_sums(dtype: torch.dtype) -> float:
    """Of the type that a kernel sums up in, by that of the factors. Of fp64 the sums that are
    compared with are as far off again."""
    if dtype == torch.float64:
        return 2 * epsilon_of(dtype)
    return epsilon_of(torch.float32 if dtype.is_floating_point else dtype)


def check_untouched(output: Tensor) -> None:
    """Raises WrongResult if memory outside of `output` was written. Overwrites `output`."""
    nothing = tensors.unused(output.dtype)
    output.fill_(nothing)
    # torch counts what is true in 8 bytes an element.
    parts = tensors.storage_of(output).split(tensors.CHUNK_BYTES // 16)
    kept = (part.isnan() if math.isnan(nothing) else part == nothing for part in parts)
    written = sum(int((~part).sum()) for part in kept)
    if written:
        elements = counted(written, "element")
        were = noun(written, "was", "were")
        raise WrongResult(f"wrong result: {elements} outside of the output {were} written")


def activated(values: Tensor, activation: Activation) -> Tensor:
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
