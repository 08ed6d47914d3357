"""Convolutions by a template of ours: from the nodes and the options of ATen's to a problem, and
what its results are checked against.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backend.inductor.benchmark import tensors
from backend.inductor.benchmark.tensors import Reference, Tile, activated, wide_dtype
from backend.inductor.hip import operands
from backend.inductor.hip.fusion import OUT
from backend.inductor.hip.operands import operand_of
from backend.inductor.hip.template import HipTemplate
from backend.inductor.torch.graph import Node
from backend.model.options import Options, convolution_of_values, numbers
from backend.templates.convolution import ConvProblem, convolution_problem
from backend.templates.problem import Activation
from backend.templates.rendering import render_conv, render_direct


def factors(kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """The options of ATen's choice, which its inputs do not tell; None where one is no number."""
    given = convolution_of_values(kwargs)
    return None if given is None else {"given": given}


def keywords(given: Options) -> dict[str, Any]:
    """Those of `torch.convolution` but for the bias."""
    values: dict[str, Any] = {name: list(numbers) for name, numbers in given}
    return values | {"transposed": False, "groups": values["groups"][0]}


@contextlib.contextmanager
def without_library() -> Iterator[None]:
    """cuDNN takes TF32 for float32 factors; torch's own convolution computes what it is given."""
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
        """Some images, and where filters see the same channels some of the filters."""
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
        """By Cauchy and Schwarz the terms of a sum are bound by the lengths of the filter and of
        what it sees of the image."""
        wide = wide_dtype(inputs[0])
        images, filters = tile[:2]
        x, weight, *bias = inputs[0][images], *(tensor[filters] for tensor in inputs[1:])
        x, weight, *bias = (tensor.to(wide) for tensor in (x, weight, *bias))
        options = keywords(self.given)
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
    renders = staticmethod(render_conv)
    joined = False

    def __init__(
        self, input_nodes: Sequence[Node], layout: Any, *, given: Options, **options: Any
    ) -> None:
        super().__init__(input_nodes, layout, **options)
        self.given = given

    def problem(self, nodes: Mapping[str, Node] | None = None) -> ConvProblem:
        """Raises UnsupportedProblemError."""
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
        options = ", ".join(f"{name}={value!r}" for name, value in keywords(self.given).items())
        return f"torch.convolution({x}, {weight}, {bias[0] if bias else None}, {options})"

    def aten_cpp(self, out: str, inputs: Sequence[str], device: str) -> list[str]:
        x, weight, *bias = inputs
        given = numbers(self.given)
        lists = {name: given[name] for name in ("stride", "padding", "dilation", "output_padding")}
        stride, padding, dilation, output = ((name, len(n)) for name, n in lists.items())
        name = f"aoti_torch_{device}_convolution"
        arguments = (*stride, *padding, *dilation, 0, *output, given["groups"][0])
        return [
            *operands.optional("bias", bias[0] if bias else None),
            *(operands.numbers(name, n) for name, n in lists.items()),
            *operands.copied(out, name, x, weight, "bias", *arguments),
        ]


class ROCmDirectConvTemplate(ROCmConvTemplate):
    """Groups of few channels, from an image in LDS; configs are `DirectConfig`."""

    template = "direct"
    renders = staticmethod(render_direct)
    joined = True
