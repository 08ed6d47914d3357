"""Functions that are applied to a product, and what they make of its error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from backend.inductor.truth.problem import NoReference

_functional = torch.nn.functional

_STEPS = 16
"""Roundings to float32 of its formula, whose parts are as large as what it is applied to."""


@dataclass(frozen=True, slots=True)
class Activation:
    """`function`, whose slope is nowhere steeper than `slope`."""

    function: Callable[[Tensor], Tensor]
    slope: float = 1.0

    def off(self, values: Tensor, before: Tensor) -> Tensor:
        """How far off its results may be, where those it is applied to, `values`, are `before`."""
        return self.slope * before + _STEPS * 2.0**-24 * (values.abs() + 1)


_KNOWN: Mapping[str, Activation] = {
    "none": Activation(lambda values: values),
    "relu": Activation(_functional.relu),
    "sigmoid": Activation(torch.sigmoid, 0.25),
    "tanh": Activation(torch.tanh),
    "gelu": Activation(_functional.gelu, 1.13),
    "gelu_tanh": Activation(lambda values: _functional.gelu(values, approximate="tanh"), 1.13),
    "silu": Activation(_functional.silu, 1.1),
    "swish": Activation(_functional.silu, 1.1),
    "hardswish": Activation(_functional.hardswish, 1.5),
    "hardsigmoid": Activation(_functional.hardsigmoid, 0.17),
}
"""By our own names, and those of oneDNN."""


_WITH_NUMBERS: Mapping[str, Callable[..., Activation]] = {
    "leaky_relu": lambda slope: Activation(
        lambda values: _functional.leaky_relu(values, slope), max(1.0, abs(slope))
    ),
    "hardtanh": lambda least, most: Activation(lambda values: values.clamp(least, most)),
}
"""Whose names have numbers behind them: `leaky_relu(0.1)`."""


def activation_of(name: str) -> Activation | None:
    """None where nothing is applied. Raises NoReference."""
    found = _KNOWN.get(name) or _with_numbers(*name.rstrip(")").partition("(")[::2])
    if found is None:
        raise NoReference(f"no reference is known for {name or 'what is done'} with a product")
    return None if name == "none" else found


def _with_numbers(name: str, text: str) -> Activation | None:
    try:
        return _WITH_NUMBERS[name](*map(float, text.split(", ")))
    except (KeyError, TypeError, ValueError):
        return None
