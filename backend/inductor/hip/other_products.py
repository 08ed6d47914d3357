"""Products other than one of two plain matrices: convolutions, grouped products, and products with
an 8-bit weight. From nodes and options to a problem, and its reference result.

An 8-bit weight is widened while loading, which is exact, and each column is scaled in the store: `x
@ weight.T * scale`, as in ATen's `_weight_int8pack_mm`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backend.errors import UnsupportedProblemError
from backend.inductor.benchmark import tensors
from backend.inductor.benchmark.tensors import (
    GemmReference,
    Reference,
    Tile,
    activated,
    wide_dtype,
)
from backend.inductor.hip import operands
from backend.inductor.hip.fusion import OUT
from backend.inductor.hip.operands import operand_of
from backend.inductor.hip.template import HipTemplate
from backend.inductor.torch.graph import Node
from backend.model.options import Options, convolution_numbers, convolution_of_values
from backend.templates.convolution import ConvProblem, convolution_problem
from backend.templates.expressions import ChainBuilder
from backend.templates.fusion import FactorSource, Prologue
from backend.templates.operand import Operand
from backend.templates.problem import Activation, GemmProblem, GroupedProblem, grouped_problem


def convolution_factors(kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the options of ATen's choice, which its inputs lack; None if one is not a number."""
    values = convolution_of_values(kwargs)
    return None if values is None else {"given": values}


def convolution_keywords(given: Options) -> dict[str, Any]:
    """Return the keywords of `torch.convolution` without the bias."""
    values: dict[str, Any] = {name: list(numbers) for name, numbers in given}
    return values | {"transposed": False, "groups": values["groups"][0]}


@contextlib.contextmanager
def without_library() -> Iterator[None]:
    """A context without cuDNN, which uses TF32 for float32 factors, unlike torch's convolution."""
    enabled = torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = False
    try:
        yield
    finally:
        torch.backends.cudnn.enabled = enabled


@dataclass(frozen=True, slots=True)
class ConvReference(Reference):
    """`activation(convolution(x, weight, bias))`."""

    given: Options
    activation: Activation = "none"

    def tiles(self, inputs: Sequence[Tensor], sizes: Sequence[int]) -> Iterator[Tile]:
        """Yield tiles of some images, and if filters see the same channels, some of the filters."""
        image, weight = (math.prod(tensor.shape[1:]) for tensor in inputs[:2])
        pixels, itemsize = math.prod(sizes[2:]), wide_dtype(inputs[0]).itemsize
        few = inputs[0].shape[1] == inputs[1].shape[1]
        n, c = sizes[:2]

        def needed() -> int:
            return int(itemsize * (n * (3 * image + 6 * c * pixels) + 2 * c * weight))

        while needed() > tensors.CHUNK_BYTES and (n > 1 or (few and c > 1)):
            n, c = (-(-n // 2), c) if n > 1 else (n, -(-c // 2))
        for first in range(0, sizes[0], n):
            for filter in range(0, sizes[1], c):
                rest = [slice(0, size) for size in sizes[2:]]
                yield slice(first, first + n), slice(filter, filter + c), *rest

    def part(self, inputs: Sequence[Tensor], tile: Tile) -> tuple[Tensor, Tensor]:
        """Return the values, and bounds by Cauchy and Schwarz: the terms of a sum are bounded by
        the lengths of the filter and of its window of the image."""
        wide = wide_dtype(inputs[0])
        images, filters = tile[:2]
        x, weight, *bias = inputs[0][images], *(tensor[filters] for tensor in inputs[1:])
        x, weight, *bias = (tensor.to(wide) for tensor in (x, weight, *bias))
        options = convolution_keywords(self.given)
        with without_library():
            values = torch.convolution(x, weight, bias[0] if bias else None, **options)
            ones = torch.ones_like(weight)
            seen = torch.convolution(x.square(), ones, None, **options).sqrt()
        a_filter = (-1, *[1] * (values.dim() - 2))
        terms = seen * weight.flatten(1).norm(dim=1).view(a_filter)
        if bias:
            terms = terms + bias[0].abs().view(a_filter)
        return activated(values, self.activation), terms


class ROCmConvTemplate(HipTemplate):
    """Implicit GEMM; configs are `GemmConfig`. `given` are the options of the convolution, whose
    input nodes are an image, a weight and maybe a bias."""

    template = "conv"
    joined = False

    def __init__(
        self, input_nodes: Sequence[Node], layout: Any, *, given: Options, **options: Any
    ) -> None:
        super().__init__(input_nodes, layout, **options)
        self.given = given

    def problem(self, nodes: Mapping[str, Node] | None = None) -> ConvProblem:
        """Return the problem. Raises UnsupportedProblemError."""
        nodes = self.named_nodes() if nodes is None else nodes
        operands = {name: operand_of(name, node) for name, node in nodes.items()}
        return convolution_problem(
            operands["a"],
            operands["b"],
            operand_of(OUT, self.output_node),
            operands.get("bias"),
            self.given,
            self.activation,
            self.joined,
        )

    def reference(self) -> ConvReference:
        return ConvReference(self.given, self.activation)

    def aten_text(self, inputs: Sequence[str]) -> str:
        x, weight, *bias = inputs
        options = ", ".join(
            f"{name}={value!r}" for name, value in convolution_keywords(self.given).items()
        )
        return f"torch.convolution({x}, {weight}, {bias[0] if bias else None}, {options})"

    def aten_cpp(self, out: str, inputs: Sequence[str], device: str) -> list[str]:
        x, weight, *bias = inputs
        given = convolution_numbers(self.given)
        lists = {name: given[name] for name in ("stride", "padding", "dilation", "output_padding")}
        stride, padding, dilation, output = ((name, len(n)) for name, n in lists.items())
        name = f"aoti_torch_{device}_convolution"
        arguments = (*stride, *padding, *dilation, 0, *output, given["groups"][0])
        return [
            *operands.optional("bias", bias[0] if bias else None),
            *(operands.cpp_array(name, n) for name, n in lists.items()),
            *operands.copied(out, name, x, weight, "bias", *arguments),
        ]


class ROCmDirectConvTemplate(ROCmConvTemplate):
    """Groups of few channels, from an image in LDS; configs are `DirectConfig`."""

    template = "direct"
    joined = True


@dataclass(frozen=True, slots=True)
class GroupedReference(Reference):
    """`activation(a[first:last] @ b[group])` of each group of rows."""

    activation: Activation = "none"

    def drawn(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the inputs with groups as even as possible, which cover all rows."""
        a, b, ends = inputs
        groups = torch.arange(1, len(ends) + 1, dtype=torch.int64)
        even = (groups * a.shape[0] // max(1, len(ends))).to(ends)
        return [a, b, ends.clone().copy_(even)]

    def tiles(self, inputs: Sequence[Tensor], sizes: Sequence[int]) -> Iterator[Tile]:
        """Yield tiles of some rows of one group."""
        a, b, ends = inputs
        itemsize = wide_dtype(a).itemsize
        left = tensors.CHUNK_BYTES - 2 * itemsize * b[0].numel()
        rows = max(1, left // (itemsize * (2 * a.shape[1] + 6 * sizes[1])))
        for first, last in _ranges(ends):
            for row in range(first, last, rows):
                yield slice(row, min(last, row + rows)), slice(0, sizes[1])

    def part(self, inputs: Sequence[Tensor], tile: Tile) -> tuple[Tensor, Tensor]:
        """Return the values, and bounds by Cauchy and Schwarz: the terms of a sum are bounded by
        the lengths of row and column."""
        a, b, ends = inputs
        wide, rows = wide_dtype(a), tile[0]
        group = next(at for at, (_, last) in enumerate(_ranges(ends)) if rows.start < last)
        left, right = a[rows].to(wide), b[group].to(wide)
        terms = left.norm(dim=-1, keepdim=True) * right.norm(dim=-2, keepdim=True)
        return activated(left @ right, self.activation), terms


def _ranges(ends: Tensor) -> list[tuple[int, int]]:
    numbers = [int(end) for end in ends.tolist()]
    return list(zip([0, *numbers], numbers, strict=False))


class ROCmGroupedTemplate(HipTemplate):
    """Tiles of groups of rows; configs are `GemmConfig`. The input nodes are the rows, a factor for
    each group, and the ends of the groups."""

    template = "grouped"

    def problem(self, nodes: Mapping[str, Node] | None = None) -> GroupedProblem:
        """Return the problem. Raises UnsupportedProblemError, and KeyError for an unknown dtype."""
        nodes = self.named_nodes() if nodes is None else nodes
        if len(nodes) != 3:
            raise UnsupportedProblemError("groups without ends")
        operands = {name: operand_of(name, node) for name, node in nodes.items()}
        return grouped_problem(
            operands["a"],
            operands["b"],
            operand_of(OUT, self.output_node),
            operands["ends"],
            self.activation,
        )

    def stored(self) -> Operand:
        """The result: all groups share it, each with some of its rows."""
        return operand_of(OUT, self.output_node)

    def reference(self) -> GroupedReference:
        return GroupedReference(self.activation)

    def aten_text(self, inputs: Sequence[str]) -> str:
        return f"torch.ops.aten._grouped_mm.default({', '.join(inputs)})"

    def aten_cpp(self, out: str, inputs: Sequence[str], device: str) -> list[str]:
        a, b, ends = inputs
        name = f"aoti_torch_{device}__grouped_mm"
        call = operands.copied(out, name, a, b, "ends", "nullptr", "nullptr")
        return [*operands.optional("ends", ends), *call]


_INT8_DEVIATION = 74.0
"""The standard deviation of random integers of 8 bits."""


@dataclass(frozen=True, slots=True)
class Int8WeightReference(Reference):
    """`x @ weight.T * scale`."""

    def drawn(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the inputs with scales that keep results near 1: fp16 would overflow."""
        x, weight, scale = inputs
        memory = tensors.storage_of(scale) / (_INT8_DEVIATION * math.sqrt(x.shape[1]))
        return [x, weight, memory.as_strided(scale.shape, scale.stride(), scale.storage_offset())]

    def tiles(self, inputs: Sequence[Tensor], sizes: Sequence[int]) -> Iterable[Tile]:
        return GemmReference().tiles(inputs, sizes)

    def part(self, inputs: Sequence[Tensor], tile: Tile) -> tuple[Tensor, Tensor]:
        x, weight, scale = inputs
        values, terms = GemmReference().part((x, weight.transpose(0, 1)), tile)
        scales = scale[tile[-1]].to(wide_dtype(x))
        return values.mul_(scales), terms.mul_(scales.abs())


INT8_OPERANDS = ("a", "weight", "scale_b")


class ROCmInt8WeightTemplate(HipTemplate):
    """Tiles through LDS, of x (M, K), the weight (N, K) and a scale for each of its rows; configs
    are `GemmConfig`."""

    template = "gemm"

    def __init__(self, input_nodes: Sequence[Node], layout: Any, **options: Any) -> None:
        super().__init__(input_nodes, layout, **(options | {"operands": INT8_OPERANDS}))

    def problem(self, nodes: Mapping[str, Node] | None = None) -> GemmProblem:
        """Return the problem. Raises UnsupportedProblemError."""
        nodes = self.named_nodes() if nodes is None else nodes
        x, weight, scale = (operand_of(name, nodes[name]) for name in INT8_OPERANDS)
        return scaled_int8(x, weight, scale, operand_of(OUT, self.output_node))

    def reference(self) -> Int8WeightReference:
        return Int8WeightReference()

    def aten_text(self, inputs: Sequence[str]) -> str:
        return f"torch._weight_int8pack_mm({', '.join(inputs)})"

    def aten_cpp(self, out: str, inputs: Sequence[str], device: str) -> list[str]:
        return operands.copied(out, f"aoti_torch_{device}__weight_int8pack_mm", *inputs)


class ROCmSkinnyInt8WeightTemplate(ROCmInt8WeightTemplate):
    """The same for few rows; configs are `SkinnyConfig`."""

    template = "skinny"


def scaled_int8(x: Operand, weight: Operand, scale: Operand, out: Operand) -> GemmProblem:
    """Build `out = x @ weight.T * scale`: `x` is (M, K), `weight` (N, K) of int8, `scale` (N,). The
    sums are scaled. Raises UnsupportedProblemError."""
    ranks = [len(operand.sizes) for operand in (x, weight, scale, out)]
    if weight.dtype != "int8" or ranks != [2, 2, 1, 2]:
        raise UnsupportedProblemError(f"a weight of {weight.dtype}, dimensions {ranks}")
    n, k = weight.sizes
    chain = ChainBuilder()
    wide = chain.cast(chain.load(weight.name, weight.dtype), "float32")
    stored = Operand(
        weight.name, weight.dtype, (1, n, k), (0, *weight.strides), weight.offset, weight.base_bytes
    )
    return GemmProblem(
        x,
        Operand("b", x.dtype, (k, n), (n, 1)),
        out,
        b_prologue=Prologue((FactorSource(stored),), chain.steps, wide.step),
        scales=(scale,),
    )
