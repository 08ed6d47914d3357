"""Convolutions, forward (transposed too) and backward: bilinear in two tensors each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from backend.inductor.benchmark.reference import wide_dtype
from backend.inductor.hip.convolution import ConvReference, without_library
from backend.inductor.truth.problem import NoReference
from backend.model.convolution import Options, numbers

OPS = ("convolution", "convolution_bwd_input", "convolution_bwd_weight")
"""Of an image and a weight; of what comes back and a weight; of an image and what comes back."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """The convolution `op` with the options `given`; `sizes` are those of its result."""

    op: str
    given: Mapping[str, tuple[int, ...]]
    sizes: tuple[int, ...] = ()

    @property
    def transposed(self) -> bool:
        return any(self.given["transposed"])

    def of(self, one: Tensor, other: Tensor) -> Tensor:
        """Of the op's two tensors, without a bias."""
        options = (
            *(list(self.given[name]) for name in ("stride", "padding", "dilation")),
            self.transposed,
            list(self.given["output_padding"]),
            self.given["groups"][0],
        )
        with torch.no_grad(), without_library():
            if self.op == "convolution":
                return torch.convolution(one, other, None, *options)
            backward = torch.ops.aten.convolution_backward
            unread = one.new_empty(self.sizes)
            if self.op == "convolution_bwd_input":
                return backward(one, unread, other, None, *options, [True, False, False])[0]
            return backward(other, one, unread, None, *options, [False, True, False])[1]

    def terms(self, one: Tensor, other: Tensor) -> int:
        """Products that are summed up for an element, at most."""
        if self.op == "convolution_bwd_weight":
            summed: list[int] = list((one if self.transposed else other).shape)
            return math.prod(summed[:1] + summed[2:])
        sizes: list[int] = list(other.shape)
        if self.transposed == (self.op == "convolution_bwd_input"):
            return math.prod(sizes[1:])
        return math.prod(sizes[:1] + sizes[2:]) // self.given["groups"][0]

    def direct(self, other: Tensor) -> bool:
        """Whether libraries on a GPU sum up the terms as they are: transforms (Winograd, FFT) work
        on neighbours, and are not bound by elements."""
        window = (self.sizes if self.op == "convolution_bwd_weight" else other.shape)[2:]
        alone = all(size == 1 for size in window)
        return alone or max(self.given["dilation"]) > 1 or max(self.given["stride"]) > 2


def convolution_of(op: str, given: Options, sizes: Sequence[int] = ()) -> Convolution:
    """Raises NoReference."""
    if not given:
        raise NoReference("nothing tells the stride and the padding of the convolution")
    if op != "convolution" and not sizes:
        raise NoReference("nothing tells the sizes of its result")
    return Convolution(op, numbers(given), tuple(sizes))


def values_and_terms(
    conv: Convolution, inputs: Sequence[Tensor], given: Options
) -> tuple[Tensor, Tensor]:
    """The true values and what their terms are bound by: by Cauchy and Schwarz, the lengths of what
    is summed up."""
    if conv.op == "convolution" and not conv.transposed:
        return ConvReference(given).part(inputs, (slice(None),) * inputs[0].dim())
    wide = wide_dtype(inputs[0])
    one, other, *bias = (tensor.to(wide) for tensor in inputs)
    values = conv.of(one, other)
    terms = conv.of(one.square(), torch.ones_like(other)).sqrt_()
    terms *= conv.of(torch.ones_like(one), other.square()).sqrt_()
    if bias:
        added = along_channels(bias[0], values)
        values, terms = values + added, terms + added.abs()
    return values, terms


def along_channels(bias: Tensor, result: Tensor) -> Tensor:
    return bias.view(-1, *[1] * (result.dim() - 2))
