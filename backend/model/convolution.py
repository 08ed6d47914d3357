"""What a convolution was given beside its tensors: stride, padding, dilation and the like, and in
its backward pass the sizes of the result.

Inductor's key for a tuning names the tensors alone, so convolutions that differ in these share one
key. A session of `run` records them; the hash of ATen's choice has them, as have a printed graph,
the generated call and the source of a Triton kernel. No source has to tell all: what is missing is
not known.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from backend.model.options import TOLD, Options
from backend.model.options import of_hash as of_hash_of

__all__ = [
    "NAMES",
    "OPS",
    "RESULTS",
    "TENSORS",
    "Options",
    "numbers",
    "of_arguments",
    "of_constants",
    "of_hash",
    "of_values",
    "options",
]

NAMES = TOLD["convolution"]
"""In the order of `aten.convolution`, whose first three arguments are tensors."""

TENSORS = 3

RESULTS: Mapping[str, str] = {
    "convolution_bwd_weight": "w_shape",
    "convolution_bwd_input": "x_shape",
}
"""The ops of the backward pass, each with what ATen's choice calls the sizes of its result, which a
stride leaves open."""

OPS = ("convolution", *RESULTS)
_NUMBER = re.compile(r"\d{1,9}")
_FLAGS = {"True": "1", "False": "0"}
_IN_KERNEL = {"STRIDE_": "stride", "PADDING_": "padding", "GROUPS": "groups"}


def options(values: Mapping[str, Iterable[int]]) -> Options:
    """Those of `values` that are known by name."""
    known = (*NAMES, *RESULTS.values())
    return tuple(sorted((name, tuple(values[name])) for name in values if name in known))


def numbers(given: Options) -> dict[str, tuple[int, ...]]:
    """A convolution's options by name."""
    return {name: tuple(map(int, values)) for name, values in given}


def of_values(values: Mapping[str, Any], op: str = "convolution") -> Options | None:
    """Of the values that `torch.convolution`, or one of its backward pass, gets, by name; None
    where one is missing or no number."""
    found: dict[str, tuple[int, ...]] = {}
    for name in TOLD[op]:
        given = values.get(name)
        numbers = given if isinstance(given, (tuple, list)) else (given,)
        try:
            found[name] = tuple(map(operator.index, numbers))
        except TypeError:
            return None
    return options(found)


def of_hash(choice: str) -> Options:
    """Of ATen's choice `convolution-bias=None-dilation=(1, 1)-...`; none of another."""
    return of_hash_of("convolution", choice)


def of_arguments(arguments: Sequence[str]) -> Options:
    """Of a call's arguments as text: by place, as a printed graph has them, or by name."""
    named = (argument.partition("=") for argument in arguments)
    values = {name: _numbers(text) for name, sign, text in named if sign}
    placed = arguments[TENSORS : TENSORS + len(NAMES)]
    if len(placed) == len(NAMES) and not values:
        values = {name: _numbers(text) for name, text in zip(NAMES, placed, strict=True)}
    return options({name: numbers for name, numbers in values.items() if numbers})


def of_constants(constants: Mapping[str, str]) -> Options:
    """Of a Triton kernel, by the constants of its source: `STRIDE_H`, `PADDING_W`, `GROUPS`."""
    values: dict[str, list[int]] = {}
    for start, name in _IN_KERNEL.items():
        for axis in "DHW" if start.endswith("_") else ("",):
            values.setdefault(name, []).extend(_numbers(constants.get(start + axis, "")))
    return options({name: numbers for name, numbers in values.items() if numbers})


def _numbers(text: str) -> list[int]:
    text = text.strip()
    return [int(number) for number in _NUMBER.findall(_FLAGS.get(text, text))]
