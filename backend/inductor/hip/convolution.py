"""Convolutions by a template of ours: from the nodes and the options of ATen's to a problem, and
what its results are checked against.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backend.inductor.benchmark.tensors import Expected, activated, wide_dtype
from backend.inductor.hip.template import HipTemplate, operand_of
from backend.inductor.torch.graph import Node
from backend.model import convolution
from backend.model.convolution import Options
from backend.templates.convolution import ConvProblem, convolution_problem
from backend.templates.problem import Activation
from backend.templates.rendering import render_conv


def factors(kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """The options of ATen's choice, which its inputs do not tell; None where one is no number."""
    values: dict[str, tuple[int, ...]] = {}
    for name in convolution.NAMES:
        given = kwargs.get(name)
        numbers = given if isinstance(given, (tuple, list)) else (given,)
        if not all(isinstance(number, int) for number in numbers):
            return None
        values[name] = tuple(int(number) for number in numbers)
    return {"given": convolution.options(values)}


def keywords(given: Options) -> dict[str, Any]:
    """Those of `torch.convolution` but for the bias."""
    values: dict[str, Any] = {name: list(numbers) for name, numbers in given}
    return values | {"transposed": False, "groups": values["groups"][0]}


@dataclass(frozen=True, slots=True)
class ConvReference:
    """`activation(convolution(x, weight, bias))`."""

    given: Options
    activation: Activation = "none"

    def expected(self, inputs: Sequence[Tensor]) -> Expected:
        """By ATen, in a wider dtype. By Cauchy and Schwarz the terms of a sum are bound by the
        lengths of the filter and of what it sees of the image."""
        dtype, device = inputs[0].dtype, inputs[0].device
        wide = wide_dtype(dtype, device)
        x, weight, *bias = (tensor.to(wide) for tensor in inputs)
        options = keywords(self.given)
        values = torch.convolution(x, weight, bias[0] if bias else None, **options)
        ones = torch.ones_like(weight)
        seen = torch.convolution(x.square(), ones, None, **options).sqrt()
        terms = seen * weight.flatten(1).norm(dim=1).view(-1, 1, 1)
        if bias:
            terms = terms + bias[0].abs().view(-1, 1, 1)
        return Expected.of(activated(values, self.activation), terms, dtype)


class ROCmConvTemplate(HipTemplate):
    """Implicit GEMM; configs are `GemmConfig`. `given` are the options of the convolution, whose
    input nodes are an image, a weight and maybe a bias."""

    template = "conv"
    renders = staticmethod(render_conv)

    def __init__(
        self, input_nodes: Sequence[Node], layout: Any, *, given: Options, **options: Any
    ) -> None:
        super().__init__(input_nodes, layout, **options)
        self.given = given

    def problem(
        self, nodes: Mapping[str, Node] | None = None, activation: Activation | None = None
    ) -> ConvProblem:
        """Raises UnsupportedProblemError, and KeyError for a dtype that no template has."""
        nodes = self.named_nodes() if nodes is None else nodes
        operands = {name: operand_of(name, node) for name, node in nodes.items()}
        return convolution_problem(
            operands["a"],
            operands["b"],
            operand_of("out", self.output_node),
            operands.get("bias"),
            self.given,
            activation or self.activation,
        )

    def reference(self) -> ConvReference:  # type: ignore[override]
        return ConvReference(self.given, self.activation)

    def aten_text(self, inputs: Sequence[str]) -> str:
        x, weight, *bias = inputs
        options = ", ".join(f"{name}={value!r}" for name, value in keywords(self.given).items())
        return f"torch.convolution({x}, {weight}, {bias[0] if bias else None}, {options})"
