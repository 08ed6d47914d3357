"""A tuning problem: an op on inputs of given sizes, in a precision; and Inductor's keys for it.

The inputs key of the persistent autotune cache is the text of a list with one tuple per input,
written by `AlgorithmSelectorCache.key_of`: `('cuda', 'torch.bfloat16', *sizes, *strides, offset)`;
sizes and strides have equal length. The list may be followed by `_<hint>` (a hint override) and,
from torch 2.15, `:benchmark_policy=eager`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from backend.errors import InputsKeyInvalid, brief
from backend.model.options import Options, text_of_options

Shape = tuple[int, ...]
"""Sizes or strides of one operand; `()` is a 0-dim tensor."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input of an inputs key. `strides` has the length of `sizes`; all are in elements."""

    device: str
    dtype: str
    sizes: Shape
    strides: Shape
    offset: int


@dataclass(frozen=True, slots=True)
class TuningKey:
    """The three keys of Inductor's persistent autotune cache, as text, suffixes included."""

    op: str
    inputs: str
    precision: str

    @property
    def id(self) -> str:
        """Seven hex digits that name its tuning."""
        return _digest(self.op, self.inputs, self.precision)


@dataclass(frozen=True, slots=True)
class Problem:
    """An op on inputs, as far as its source describes it.

    `shapes`, `strides` and `dtypes` have one item per operand, or are empty if unknown. `dims` is
    (M, K, N) of an MM log, which prints it instead of shapes: the first two sizes of the last
    operand but one, and the last size of the last operand. `threads` is the thread count of the
    process, on which the hashes of C++ choices depend. `options` are further arguments of the op,
    if known; `call` is the text of a call of flex attention (`backend.wire.captured`).
    """

    op: str
    shapes: tuple[Shape, ...] = ()
    strides: tuple[Shape, ...] = ()
    dtypes: tuple[str, ...] = ()
    device: str | None = None
    precision: str | None = None
    inputs_key: str | None = None
    dims: Shape = field(default=(), kw_only=True)
    threads: int | None = field(default=None, kw_only=True)
    options: Options = field(default=(), kw_only=True)
    call: str = field(default="", kw_only=True)

    @property
    def id(self) -> str:
        """Seven hex digits that name its tuning: of a SHA-256 of op, inputs and precision. The
        inputs are their key if known, else shapes, strides and dtypes, else `dims`."""
        inputs = self.inputs_key
        if inputs is None:
            inputs = f"{self.shapes}{self.strides}{self.dtypes}"
            inputs += f"{self.dims}" if self.dims and not self.shapes else ""
        return _digest(self.op, inputs, self.precision or "")

    @property
    def options_text(self) -> str:
        """The arguments that a worker needs beside the key, as text; empty if unknown."""
        return self.call or text_of_options(self.options)

    @property
    def key(self) -> TuningKey | None:
        """The key in the persistent cache, if all three parts are known."""
        if self.inputs_key is None or self.precision is None:
            return None
        return TuningKey(self.op, self.inputs_key, self.precision)


def _digest(op: str, inputs: str, precision: str) -> str:
    text = f"{op}\n{inputs}\n{precision}"
    digest: str = _sha256()(text.encode("utf-8", "surrogatepass")).hexdigest()
    return digest[:7]


@cache
def _sha256() -> Callable[[bytes], Any]:
    import hashlib  # loads OpenSSL, for which the first screen does not wait

    return hashlib.sha256


MAX_KEY = 65_536
"""Characters; a key of 64 inputs with 8 dimensions each has about 10,000."""

_TUPLE = re.compile(r"\('([\w.:-]{1,64})', '([\w.:-]{1,64})'((?:, -?\d{1,19})+)\)")
_SUFFIX = re.compile(r"(?:_-?\w+)?(?::[\w.,:=-]+)?")


@dataclass(frozen=True, slots=True)
class InputsKey:
    """A parsed inputs key. `suffix` is the text behind the list, unchanged."""

    specs: tuple[TensorSpec, ...]
    suffix: str = ""


def parse_inputs_key(text: str) -> InputsKey:
    """Split `text`; `format_inputs_key` gives the very same text back. Raises InputsKeyInvalid for
    any other text, in time linear in its length."""
    if len(text) > MAX_KEY or not text.startswith("["):
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
    """Return the text of `key`, as Inductor writes it."""
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


def device_of_inputs_key(inputs: str) -> str | None:
    """Return the device of the first input, if the key has one."""
    try:
        specs = parse_inputs_key(inputs).specs
    except InputsKeyInvalid:
        return None
    return specs[0].device if specs else None
