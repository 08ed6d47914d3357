"""A convolution, or a part of its backward pass, as a program again, of what its key tells and what
it was given besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from backend.model.convolution import NAMES, RESULTS, Options, numbers
from backend.model.problem import Shape, TensorSpec

_SETTINGS = {"layout_optimization": False}
"""The inputs stay in the memory format of the key; what a program's other convolutions made of it
is not known."""

_BACKWARD = {
    "max_autotune_conv_bwd_weight_backends": "ATEN,TRITON",
    "max_autotune_conv_bwd_input_backends": "ATEN,TRITON",
}
"""Without Triton's choices Inductor tunes no backward pass."""


def settings_of(op: str, device: str) -> Mapping[str, object]:
    """Those of Inductor that a program with one of `convolution.OPS` is compiled with. On a CPU
    only Inductor's Triton, for which there is Triton's interpreter, has choices for a backward
    pass."""
    if op not in RESULTS:
        return _SETTINGS
    return _SETTINGS | _BACKWARD | ({"cpu_backend": "triton"} if device == "cpu" else {})


def specs_of(op: str, specs: Sequence[TensorSpec], given: Options) -> tuple[TensorSpec, ...]:
    """The inputs of the program: in the backward pass also what its result is the gradient of, of
    which nothing but the sizes and the memory format count."""
    if op not in RESULTS:
        return tuple(specs)
    one = specs[0]
    sizes = numbers(given)[RESULTS[op]]
    return (*specs, TensorSpec(one.device, one.dtype, sizes, _strides(sizes, one), 0))


def _strides(sizes: Shape, like: TensorSpec) -> Shape:
    """With the dimensions in the order in which they lie in `like`."""
    order = sorted(range(len(sizes)), key=lambda at: (like.strides[at], like.sizes[at], -at))
    strides, step = [0] * len(sizes), 1
    for at in order:
        strides[at] = step
        step *= sizes[at]
    return tuple(strides)


def function_of(op: str, given: Options) -> Any:
    """The convolution of an image, a weight and maybe a bias; or a part of its backward pass, of
    the key's tensors and what the result is the gradient of."""
    values: dict[str, Any] = {name: list(found) for name, found in given}
    values |= {"transposed": any(values["transposed"]), "groups": values["groups"][0]}
    options = [values[name] for name in NAMES]
    backward = torch.ops.aten.convolution_backward

    def function(x: Any, weight: Any, bias: Any = None) -> Any:
        return torch.convolution(x, weight, bias, *options)

    def of_weight(x: Any, grad: Any, weight: Any) -> Any:
        return backward(grad, x, weight, None, *options, [False, True, False])[1]

    def of_input(grad: Any, weight: Any, x: Any) -> Any:
        return backward(grad, x, weight, None, *options, [True, False, False])[0]

    if op == "convolution":
        return function
    return of_weight if op == "convolution_bwd_weight" else of_input
