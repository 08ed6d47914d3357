"""The math of kernels, and what is allowed between it and double."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "exp": torch.exp,
    "erf": torch.erf,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "log": torch.log,
    "log2": torch.log2,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "relu": torch.relu,
}
"""In the order of the `switch` in kernels/numbers.hip."""

_OF_SIZES = ("log", "log2", "sqrt", "rsqrt", "reciprocal")
ENDS = torch.tensor([float("inf"), float("nan"), 200.0, -200.0, 1e30, -1e30, 0.0])


def points(name: str) -> torch.Tensor:
    """Where a function is looked at, in fp32."""
    near = torch.linspace(-12, 12, 200_001)
    x = torch.cat([near, near * 1e-3, near * 1e-8, torch.linspace(-80, 80, 20_001)])
    if name in _OF_SIZES:
        return torch.cat([torch.exp2(x[x.abs() <= 80]), 1 + near * 1e-3])
    return x[x > -1] if name == "log1p" else x


def defect(name: str, x: torch.Tensor, got: torch.Tensor) -> str:
    """The worst value, where one is further from double's than a few roundings; else empty."""
    want = FUNCTIONS[name](x.double())
    error = (got.double() - want).abs()
    # The tail of gelu is 1 + erf(x), a difference of near equals: there it is absolute.
    scale = want.abs() if not name.startswith("gelu") else want.abs() + x.double().abs() * 0.25
    over = error - (1.2e-6 * scale + 1e-37)
    # Not `over > 0`, which no NaN is.
    return "" if (over <= 0).all() else f"{name}({x[over.argmax()]}) is {got[over.argmax()]}"


def end_defect(name: str, got: torch.Tensor) -> str:
    """The first of ENDS whose value is another than torch's; else empty."""
    want = FUNCTIONS[name](ENDS.double()).float()
    for at, mine, torchs in zip(ENDS.tolist(), got.tolist(), want.tolist(), strict=True):
        if mine != torchs and not (mine != mine and torchs != torchs):
            exact = name in EXACT_AT_ENDS
            if exact or not abs(mine - torchs) <= 1.2e-6 * abs(torchs) + 1e-37:
                return f"{name}({at}) is {mine}, not {torchs}"
    return ""


EXACT_AT_ENDS = ("exp", "erf", "tanh", "sigmoid", "silu", "gelu", "gelu_tanh", "relu")
