"""What a convolution was given beside its tensors: stride, padding, dilation and the like.

Inductor's key for a tuning names the tensors alone, so convolutions that differ in these share one
key. A session of `run` records them; the hash of ATen's choice has them, as have a printed graph,
the generated call and the source of a Triton kernel. No source has to tell all: what is missing is
not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Options = tuple[tuple[str, tuple[int, ...]], ...]
"""Numbers by name, sorted: one for each spatial dimension, or one number; a flag is 0 or 1."""

NAMES = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
"""In the order of `aten.convolution`, whose first three arguments are tensors."""

TENSORS = 3
_IN_HASH = re.compile(rf"-({'|'.join(NAMES)})=(\([\d, ]{{1,80}}\)|\d{{1,9}}|True|False)(?=-|$)")
_NUMBER = re.compile(r"\d{1,9}")
_FLAGS = {"True": "1", "False": "0"}
_IN_KERNEL = {"STRIDE_": "stride", "PADDING_": "padding", "GROUPS": "groups"}
_IN_TEXT = re.compile(rf"({'|'.join(NAMES)})=(\d{{1,9}}(?:x\d{{1,9}}){{0,7}})(?:,|$)")


def options(values: Mapping[str, Iterable[int]]) -> Options:
    """Those of `values` that are known by name."""
    return tuple(sorted((name, tuple(values[name])) for name in values if name in NAMES))


def of_values(values: Mapping[str, Any]) -> Options | None:
    """Of the values that `torch.convolution` gets, by name; None where one is missing or no
    number."""
    found: dict[str, tuple[int, ...]] = {}
    for name in NAMES:
        given = values.get(name)
        numbers = given if isinstance(given, (tuple, list)) else (given,)
        if not all(isinstance(number, int) for number in numbers):
            return None
        found[name] = tuple(int(number) for number in numbers)
    return options(found)


def of_hash(choice: str) -> Options:
    """Of ATen's choice `convolution-bias=None-dilation=(1, 1)-...`; none of another."""
    if not choice.startswith("convolution-"):
        return ()
    return options({name: _numbers(text) for name, text in _IN_HASH.findall(choice[:2000])})


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


def agree(one: Options, other: Options) -> bool:
    """Whether both may be told of one convolution: what both know is the same."""
    known = dict(other)
    return all(_same(numbers, known.get(name, numbers)) for name, numbers in one)


def text_of(given: Options) -> str:
    """In one word: `dilation=1x1,groups=1,...`."""
    return ",".join(f"{name}={'x'.join(map(str, numbers))}" for name, numbers in given)


def of_text(text: str) -> Options:
    """The options that `text_of` wrote."""
    found = {name: map(int, word.split("x")) for name, word in _IN_TEXT.findall(text)}
    return options(found)


def _same(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """One number stands for every dimension."""
    if len(one) == len(other):
        return one == other
    return len({*one, *other}) == 1 and 1 in (len(one), len(other))


def _numbers(text: str) -> list[int]:
    text = text.strip()
    return [int(number) for number in _NUMBER.findall(_FLAGS.get(text, text))]
