"""Convolutions with drawn sizes, for the harness of `template_lab`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from hypothesis import strategies as st

from backend.model.options import Options, options
from backend.templates.config import DirectConfig, GemmConfig
from backend.templates.convolution import ConvProblem, convolution_problem
from backend.templates.operand import DType, Operand
from backend.templates.problem import Activation
from backend.templates.rendering import Rendered, render
from tests.support.template_lab import Kernel, Run, check_drawn, memory_for

N, H, W, P, Q, GAP = sympy.symbols("n h w p q gap", integer=True, positive=True)

Pair = tuple[int, int]


@dataclass(frozen=True)
class Class:
    """What a binary is compiled for: all but the number and the sizes of images. `image`, `weight`
    and `out` say of each whether its channels lie last."""

    dtype: DType
    channels: int
    filters: int
    kernel: Pair = (3, 3)
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    image: bool = True
    weight: bool = True
    out: bool = True
    bias: bool = False
    activation: Activation = "none"

    @property
    def options(self) -> Options:
        return options(
            {
                "stride": self.stride,
                "padding": self.padding,
                "dilation": self.dilation,
                "groups": (self.groups,),
            }
        )

    def places(self, size: int, at: int) -> int:
        """Of the result along one dimension."""
        seen = self.dilation[at] * (self.kernel[at] - 1) + 1
        return (size + 2 * self.padding[at] - seen) // self.stride[at] + 1

    def shapes(self) -> dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Sizes and strides of the operands; lines of the image have a gap behind them."""
        channels, filters = self.groups * self.channels, self.groups * self.filters
        image, weight, out = (
            (N, channels, H, W),
            (filters, self.channels, *self.kernel),
            (N, filters, P, Q),
        )
        made = {
            "X": (image, _strides(image, self.image, GAP)),
            "W": (weight, _strides(weight, self.weight)),
            "Y": (out, _strides(out, self.out)),
        }
        return made | ({"bias": ((filters,), (1,))} if self.bias else {})

    def problem(self, joined: bool = False) -> ConvProblem:
        made = {name: Operand(name, self.dtype, *shape) for name, shape in self.shapes().items()}
        inputs = made["X"], made["W"], made["Y"], made.get("bias")
        return convolution_problem(*inputs, self.options, self.activation, joined)


def _strides(sizes: tuple[Any, ...], channels_last: bool, gap: Any = 0) -> tuple[Any, ...]:
    """Those of (N, C, H, W); `gap` pixels are behind each line."""
    _, c, h, w = sizes
    w = w + gap
    return (c * h * w, 1, c * w, c) if channels_last else (c * h * w, h * w, w, 1)


@dataclass(frozen=True)
class Binary:
    problem_class: Class
    config: GemmConfig | DirectConfig

    def render(self) -> Rendered:
        joined = isinstance(self.config, DirectConfig)
        return render(self.problem_class.problem(joined), self.config, "rt_kernel")


@st.composite
def runs(draw: st.DrawFn, binary: Binary) -> Run:
    """A call on images of drawn sizes, the result of which may have no more than one place."""
    c = binary.problem_class
    least = [c.dilation[at] * (c.kernel[at] - 1) + 1 - 2 * c.padding[at] for at in (0, 1)]
    high, wide = (max(1, low) + draw(st.sampled_from([0, 1, 2, 5, 11])) for low in least)
    env = {N: draw(st.sampled_from([1, 2, 3])), H: high, W: wide}
    env |= {P: c.places(high, 0), Q: c.places(wide, 1), GAP: draw(st.sampled_from([0, 1]))}
    torch.manual_seed(draw(st.integers(0, 2**31)))
    tensors, memories = {}, {}
    for name, (sizes, strides) in c.shapes().items():
        shape, steps = _numbers(sizes, env), _numbers(strides, env)
        memories[name], tensors[name] = memory_for(getattr(torch, c.dtype), shape, steps)
        if name != "Y":
            tensors[name].copy_(torch.randn(shape))
    if c.bias:
        tensors["bias"] = tensors["bias"].view(-1, 1, 1)
    rendered = binary.render()
    values = {a.name: a.value for a in rendered.args if a.kind == "size"}
    numbers = {name: int(sympy.sympify(value).subs(env)) for name, value in values.items()}
    numbers["split_k"] = draw(st.sampled_from([1, 2, 3]))
    product = functools.partial(
        torch.nn.functional.conv2d,
        stride=c.stride,
        padding=c.padding,
        dilation=c.dilation,
        groups=c.groups,
    )
    return Run(tensors, numbers, memories["Y"], product=product)


def _numbers(values: tuple[Any, ...], env: Mapping[Any, int]) -> tuple[int, ...]:
    return tuple(int(sympy.sympify(value).subs(env)) for value in values)


def check(kernel: Kernel, binary: Binary, examples: int = 8, number: int = 0) -> None:
    """The kernel gives the right numbers for every drawn call. Raises AssertionError."""
    check_drawn(kernel, runs(binary), binary.config.description, examples=examples, number=number)
