"""Options of an op beside the tensors of its key: a convolution's stride, a linear layer's
activation, the type of a result, which of its inputs are constants of the graph.

Inductor's key for a tuning names the tensors alone, so ops that differ in these share one key. A
session of `run` records them; the hash of ATen's choice has most of them. Those of a convolution
are also in a printed graph, the generated call and the source of a Triton kernel. No source has to
have all: what is missing is unknown.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Value = int | float | str
Options = tuple[tuple[str, tuple[Value, ...]], ...]
"""Values by name, sorted: a list of numbers or one, a flag as 0 or 1, a word."""

FROZEN = "frozen"
"""The places of the inputs that are constants of the graph."""

TMA = "tma"
"""Set where Inductor was asked for the kernels that let the GPU copy tiles by itself."""

_POST = ("post_op_name", "post_op_args", "post_op_algorithm")
_RESULT = ("output_scale", "output_zero_point", "output_dtype")
_SCALED = ("out_dtype", "use_fast_accum", "recipe_a", "recipe_b", "swizzle_a", "swizzle_b", TMA)

CONVOLUTION = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
"""In the order of `aten.convolution`, whose first three arguments are tensors."""

CONVOLUTION_TENSORS = 3

CONVOLUTION_RESULTS: Mapping[str, str] = {
    "convolution_bwd_weight": "w_shape",
    "convolution_bwd_input": "x_shape",
}
"""The ops of the backward pass, each with what ATen's choice calls the sizes of its result, which a
stride leaves open."""

CONVOLUTIONS = ("convolution", *CONVOLUTION_RESULTS)

TOLD: Mapping[str, tuple[str, ...]] = {
    "convolution": CONVOLUTION,
    **{op: (*CONVOLUTION, sizes) for op, sizes in CONVOLUTION_RESULTS.items()},
    "linear_unary": ("attr", "scalars", "algorithm", FROZEN),
    "linear_binary": ("attr", FROZEN),
    "qlinear_unary": (*_RESULT, *_POST, FROZEN),
    "qlinear_binary": (
        *_RESULT,
        *("other_scale", "other_zp", "binary_post_op", "binary_alpha"),
        *(f"unary_{name}" for name in ("post_op", "post_op_args", "post_op_algorithm")),
        FROZEN,
    ),
    "_weight_int8pack_mm": (FROZEN,),
    "_weight_int4pack_mm_for_cpu": (FROZEN,),
    "int_mm": (FROZEN,),
    "mm": (TMA,),
    "addmm": (TMA,),
    "scaled_mm": _SCALED,
    "scaled_grouped_mm": ("out_dtype", "use_fast_accum"),
    "grouped_mm": ("out_dtype",),
}
"""By op, the names of what is told of it: those of torch's own arguments."""

_NAMES = frozenset(name for names in TOLD.values() for name in names)
_WORDS = frozenset(
    name
    for name in _NAMES
    if name.endswith(("attr", "algorithm", "post_op_name", "dtype", "post_op"))
)
ATEN = {
    "convolution": "convolution",
    "convolution_bwd_weight": "call_aten_dw",
    "convolution_bwd_input": "call_aten_dx",
    "linear_unary": "_linear_pointwise",
    "linear_binary": "_linear_pointwise.binary",
    "qlinear_unary": "qlinear_pointwise",
    "qlinear_binary": "qlinear_pointwise.binary",
    "scaled_mm": "_scaled_mm",
    "scaled_grouped_mm": "_scaled_grouped_mm",
    "grouped_mm": "_grouped_mm",
}
"""What ATen's choice is called, whose hash has the options."""

_NUMBER = r"-?(?:\d{1,20}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?|inf|nan)"
_LIST = rf"[\[(](?:{_NUMBER},? ?){{0,16}}[\])]"
_WORD = r"[\w.]{0,40}"
_A_WORD = re.compile(_WORD)
_ONE = re.compile(_NUMBER)
_IN_HASH = re.compile(
    rf"-({'|'.join(sorted(_NAMES, key=len, reverse=True))})="
    rf"({_LIST}|{_NUMBER}|True|False|None|'{_WORD}'|torch\.\w{{1,30}})(?=-|$)"
)
_NUMBERS = re.compile(rf"(?:{_NUMBER}(?:x{_NUMBER}){{0,63}})?")
_IN_TEXT = re.compile(r"(\w{1,40})=([\w.+-]{0,2000})(?:,|$)")
_FLAGS = {"True": "1", "False": "0"}


def of_values(op: str, values: Mapping[str, Any]) -> Options:
    """Those of torch's values that are told of `op`, but for what is no number, list or word."""
    found: dict[str, tuple[Value, ...]] = {}
    for name in TOLD.get(op, ()):
        given = values.get(name)
        if given is None:
            continue
        if name in _WORDS:
            word = str(given).removeprefix("torch.")
            if _A_WORD.fullmatch(word):
                found[name] = (word,)
            continue
        numbers = tuple(given) if isinstance(given, (tuple, list)) else (given,)
        if all(isinstance(number, (int, float)) for number in numbers):
            found[name] = tuple(int(n) if isinstance(n, bool) else n for n in numbers)
    return options(found)


def options(values: Mapping[str, Iterable[Value]]) -> Options:
    """Sorted by name."""
    return tuple(sorted((name, tuple(given)) for name, given in values.items()))


def of_hash(op: str, choice: str) -> Options:
    """Of ATen's choice, `convolution-bias=None-dilation=(1, 1)-...`; none of another."""
    if not choice.startswith(f"{ATEN.get(op, '')}-") or op not in ATEN:
        return ()
    found: dict[str, tuple[Value, ...]] = {}
    for name, text in _IN_HASH.findall(choice[:2000]):
        if name in TOLD[op] and text != "None":
            found[name] = _values(name, text.strip("'").removeprefix("torch."))
    return options(found)


def text_of(given: Options) -> str:
    """In one word: `dilation=1x1,groups=1,...`."""
    return ",".join(f"{name}={'x'.join(map(str, values))}" for name, values in given)


def of_text(text: str) -> Options:
    """The options that `text_of` wrote."""
    found = {name: told for name, told in _IN_TEXT.findall(text[:4000]) if _readable(name, told)}
    return options({name: _values(name, told) for name, told in found.items()})


def _readable(name: str, told: str) -> bool:
    form = _A_WORD if name in _WORDS else _NUMBERS
    return name in _NAMES and form.fullmatch(told) is not None


def agree(one: Options, other: Options) -> bool:
    """Whether both may be told of one op: what both know is the same."""
    known = dict(other)
    return all(_same(values, known.get(name, values)) for name, values in one)


def _same(one: tuple[Value, ...], other: tuple[Value, ...]) -> bool:
    """One number stands for every dimension."""
    if len(one) == len(other):
        return one == other
    return len({*one, *other}) == 1 and 1 in (len(one), len(other))


def _values(name: str, text: str) -> tuple[Value, ...]:
    if name in _WORDS:
        return (text,)
    return tuple(map(_number, _ONE.findall(_FLAGS.get(text, text))))


def _number(text: str) -> int | float:
    return int(text) if text.lstrip("-").isdigit() else float(text)


# Options of convolutions

_INTEGER = re.compile(r"\d{1,9}")
_IN_KERNEL = {"STRIDE_": "stride", "PADDING_": "padding", "GROUPS": "groups"}


def numbers(given: Options) -> dict[str, tuple[int, ...]]:
    """Return a convolution's options by name."""
    return {name: tuple(map(int, values)) for name, values in given}


def convolution_of_values(values: Mapping[str, Any], op: str = "convolution") -> Options | None:
    """Return the options among the named arguments of `torch.convolution`, or of one of its
    backward pass; None where one is missing or no number."""
    given: dict[str, tuple[int, ...]] = {}
    for name in TOLD[op]:
        value = values.get(name)
        try:
            members = value if isinstance(value, (tuple, list)) else (value,)
            given[name] = tuple(map(operator.index, members))
        except TypeError:
            return None
    return options(given)


def convolution_of_arguments(arguments: Sequence[str]) -> Options:
    """Return the options in a call's arguments as text: by place, as a printed graph has them, or
    by name."""
    named = (argument.partition("=") for argument in arguments)
    values = {name: text for name, sign, text in named if sign}
    placed = arguments[CONVOLUTION_TENSORS : CONVOLUTION_TENSORS + len(CONVOLUTION)]
    if len(placed) == len(CONVOLUTION) and not values:
        values = dict(zip(CONVOLUTION, placed, strict=True))
    names = (*CONVOLUTION, *CONVOLUTION_RESULTS.values())
    given = {name: _integers(values[name]) for name in names if name in values}
    return options({name: members for name, members in given.items() if members})


def convolution_of_constants(constants: Mapping[str, str]) -> Options:
    """Return the options of a Triton kernel, from the constants of its source: `STRIDE_H`,
    `PADDING_W`, `GROUPS`."""
    values: dict[str, list[int]] = {}
    for start, name in _IN_KERNEL.items():
        for axis in "DHW" if start.endswith("_") else ("",):
            values.setdefault(name, []).extend(_integers(constants.get(start + axis, "")))
    return options({name: members for name, members in values.items() if members})


def _integers(text: str) -> list[int]:
    text = text.strip()
    return [int(number) for number in _INTEGER.findall(_FLAGS.get(text, text))]
