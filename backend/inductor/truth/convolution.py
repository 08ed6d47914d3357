"""Convolutions, forward (transposed too) and backward: bilinear in two tensors each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
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

    @property
    def large_output_padding(self) -> bool:
        """Whether PyTorch keeps it from oneDNN, which has no such output padding."""
        padding, stride = self.given["output_padding"], self.given["stride"]
        size = max(len(padding), len(stride))
        pairs = zip(padding * (size // len(padding)), stride * (size // len(stride)), strict=True)
        return self.transposed and any(added >= step for added, step in pairs)

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

    def partial_sums(self, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor] | None:
        """The partial sums that PyTorch's own CPU kernels round to the type of the result: the sum
        of their absolute values, and their number, for each element. None where a kernel sums up
        all terms of an element at once.

        `slow_conv2d_backward` and `slow_conv_transpose2d` (and those of one and three dimensions,
        and with dilation) multiply matrices, and sum what these products give in the type of the
        result: for an image that comes back one product a position of the window (`col2im`), for a
        weight one an image.
        """
        if self.op == "convolution_bwd_weight":
            sizes = torch.zeros(self.sizes, dtype=torch.float32)
            for image, back in zip(one.split(1), other.split(1), strict=True):
                sizes += self.of(image.to(torch.float32), back.to(torch.float32)).abs_()
            return sizes, torch.full((), one.shape[0])
        if self.transposed != (self.op == "convolution"):
            return None
        sizes, counts = torch.zeros(self.sizes, dtype=torch.float32), torch.zeros(self.sizes[2:])
        groups, factors = self.given["groups"][0], one.to(torch.float32)
        factors = factors.unflatten(1, (groups, -1)).flatten(3)
        weight = other.to(torch.float32).unflatten(0, (groups, -1))
        both = (slice(None),) * 2  # images and channels
        for position, read, written in self._positions(one, other):
            found = torch.einsum("ngil,gio->ngol", factors, weight[(slice(None),) * 3 + position])
            found = found.flatten(1, 2).unflatten(2, one.shape[2:])
            sizes[both + written] += found[both + read].abs()
            counts[written] += 1
        return sizes, counts

    def _positions(
        self, one: Tensor, other: Tensor
    ) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...], tuple[slice, ...]]]:
        """Each position of the window, the part of `one` that it multiplies, and where in the
        result that goes."""
        rank = one.dim() - 2
        stride, padding, dilation = (
            self.given[name] * (1 if len(self.given[name]) == rank else rank)
            for name in ("stride", "padding", "dilation")
        )
        for position in itertools.product(*map(range, other.shape[2:])):
            read, written = [], []
            for at, step in enumerate(stride):
                offset = position[at] * dilation[at] - padding[at]
                first = max(0, -(offset // step))
                end = min(one.shape[at + 2], (self.sizes[at + 2] - 1 - offset) // step + 1)
                read.append(slice(first, end))
                written.append(slice(offset + first * step, offset + end * step, step))
            if all(part.start < part.stop for part in read):
                yield position, tuple(read), tuple(written)


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
