"""The inputs key of the persistent autotune cache: the text of a list of tuples.

One tuple an input, as `AlgorithmSelectorCache.key_of` makes it:
`('cuda', 'torch.bfloat16', *sizes, *strides, offset)`; sizes and strides have equal length. Behind
the list may stand `_<hint>` (a hint override) and, from torch 2.15, `:benchmark_policy=eager`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from backend.errors import InputsKeyInvalid, brief
from backend.model.problem import TensorSpec

MAX_LENGTH = 65_536
"""Characters. A key of 64 inputs with 8 dimensions each has about 10,000."""

_TUPLE = re.compile(r"\('([\w.:-]{1,64})', '([\w.:-]{1,64})'((?:, -?\d{1,19})+)\)")
_SUFFIX = re.compile(r"(?:_-?\w+)?(?::[\w.,:=-]+)?")


@dataclass(frozen=True, slots=True)
class InputsKey:
    """An inputs key, split. `suffix` is the text behind the list, kept as it is."""

    specs: tuple[TensorSpec, ...]
    suffix: str = ""


def parse_inputs_key(text: str) -> InputsKey:
    """Split `text`; `format_inputs_key` gives the very same text back.

    Raises InputsKeyInvalid for any other text, in time linear in its length.
    """
    if len(text) > MAX_LENGTH or not text.startswith("["):
        raise _invalid(text)
    specs: list[TensorSpec] = []
    at = 1
    while match := _TUPLE.match(text, at):
        specs.append(_spec(text, match))
        at = match.end()
        if not text.startswith(", ", at):
            break
        at += 2
    if text[at : at + 1] != "]":
        raise _invalid(text)
    suffix = text[at + 1 :]
    if not _SUFFIX.fullmatch(suffix):
        raise _invalid(text)
    key = InputsKey(tuple(specs), suffix)
    if format_inputs_key(key) != text:  # 007, a last comma, digits of other scripts
        raise _invalid(text)
    return key


def format_inputs_key(key: InputsKey) -> str:
    """The text of `key`, as Inductor writes it."""
    return repr([_fields(spec) for spec in key.specs]) + key.suffix


def _fields(spec: TensorSpec) -> tuple[str | int, ...]:
    return (spec.device, spec.dtype, *spec.sizes, *spec.strides, spec.offset)


def _spec(text: str, match: re.Match[str]) -> TensorSpec:
    device, dtype, rest = match.groups()
    numbers = tuple(int(part) for part in rest[2:].split(", "))
    if len(numbers) % 2 == 0:
        raise _invalid(text)
    rank = len(numbers) // 2
    return TensorSpec(device, dtype, numbers[:rank], numbers[rank:-1], numbers[-1])


def _invalid(text: str) -> InputsKeyInvalid:
    return InputsKeyInvalid(f"not an inputs key of Inductor's autotune cache: {brief(text, 80)}")


def device_of(inputs: str) -> str | None:
    """The device of the first input, where the key tells it."""
    try:
        specs = parse_inputs_key(inputs).specs
    except InputsKeyInvalid:
        return None
    return specs[0].device if specs else None
