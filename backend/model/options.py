"""Options of an op beside its tensors: a convolution's stride, a linear layer's activation, the
type of a result, which of its inputs are constants of the graph.

Inductor's tuning key describes only the tensors, so ops with different options share a key. A
session of `run` records the options; the hash of ATen's choice has most of them. A convolution's
options are also in a printed graph, the generated call and the source of a Triton kernel. Any
source may lack some: a missing option is unknown.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Value = int | float | str
Options = tuple[tuple[str, tuple[Value, ...]], ...]
"""Values by name, sorted: a list of numbers or a single number, a flag as 0 or 1, a word."""

FROZEN = "frozen"
"""The option that lists the indices of inputs that are constants of the graph."""

TMA = "tma"
"""Set if Inductor offers kernels that use the GPU's tensor memory accelerator."""

_POST = ("post_op_name", "post_op_args", "post_op_algorithm")
_RESULT = ("output_scale", "output_zero_point", "output_dtype")
_SCALED = ("out_dtype", "use_fast_accum", "recipe_a", "recipe_b", "swizzle_a", "swizzle_b", TMA)

CONVOLUTION = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
"""The argument order of `aten.convolution` after its three tensors."""

CONVOLUTION_TENSORS = 3

CONVOLUTION_RESULTS: Mapping[str, str] = {
    "convolution_bwd_weight": "w_shape",
    "convolution_bwd_input": "x_shape",
}
"""The backward ops, and ATen's name for the result's sizes, which a stride leaves ambiguous."""

CONVOLUTIONS = ("convolution", *CONVOLUTION_RESULTS)

OPTION_NAMES: Mapping[str, tuple[str, ...]] = {
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
"""The recorded options of each op, named as torch's arguments."""

_NAMES = frozenset(name for names in OPTION_NAMES.values() for name in names)
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
"""The name of each op's ATen choice, whose hash has the options."""

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


def options_of_values(op: str, values: Mapping[str, Any]) -> Options:
    """Return the options of `op` among torch's values, if they are numbers, lists or words."""
    selected: dict[str, tuple[Value, ...]] = {}
    for name in OPTION_NAMES.get(op, ()):
        value = values.get(name)
        if value is None:
            continue
        if name in _WORDS:
            word = str(value).removeprefix("torch.")
            if _A_WORD.fullmatch(word):
                selected[name] = (word,)
            continue
        numbers = tuple(value) if isinstance(value, (tuple, list)) else (value,)
        if all(isinstance(number, (int, float)) for number in numbers):
            selected[name] = tuple(int(n) if isinstance(n, bool) else n for n in numbers)
    return options(selected)


def options(values: Mapping[str, Iterable[Value]]) -> Options:
    """Return the options sorted by name."""
    return tuple(sorted((name, tuple(members)) for name, members in values.items()))


def options_of_hash(op: str, choice: str) -> Options:
    """Return the options in the hash of ATen's choice, `convolution-bias=None-dilation=(1, 1)-...`;
    none for another choice."""
    if not choice.startswith(f"{ATEN.get(op, '')}-") or op not in ATEN:
        return ()
    values: dict[str, tuple[Value, ...]] = {}
    for name, text in _IN_HASH.findall(choice[:2000]):
        if name in OPTION_NAMES[op] and text != "None":
            values[name] = _values(name, text.strip("'").removeprefix("torch."))
    return options(values)


def text_of_options(options: Options) -> str:
    """Write options as one word: `dilation=1x1,groups=1,...`."""
    return ",".join(f"{name}={'x'.join(map(str, values))}" for name, values in options)


def options_of_text(text: str) -> Options:
    """Read the options that `text_of_options` wrote."""
    texts = {
        name: members for name, members in _IN_TEXT.findall(text[:4000]) if _readable(name, members)
    }
    return options({name: _values(name, members) for name, members in texts.items()})


def _readable(name: str, text: str) -> bool:
    form = _A_WORD if name in _WORDS else _NUMBERS
    return name in _NAMES and form.fullmatch(text) is not None


def options_agree(first: Options, second: Options) -> bool:
    """Return whether both can be options of the same op: no common name has different values."""
    values_of_second = dict(second)
    return all(_same(values, values_of_second.get(name, values)) for name, values in first)


def _same(first: tuple[Value, ...], second: tuple[Value, ...]) -> bool:
    """Return whether two values are equal; a single number applies to every dimension."""
    if len(first) == len(second):
        return first == second
    return len({*first, *second}) == 1 and 1 in (len(first), len(second))


def _values(name: str, text: str) -> tuple[Value, ...]:
    if name in _WORDS:
        return (text,)
    return tuple(map(_number, _ONE.findall(_FLAGS.get(text, text))))


def _number(text: str) -> int | float:
    return int(text) if text.lstrip("-").isdigit() else float(text)


# Options of convolutions

_INTEGER = re.compile(r"\d{1,9}")
_IN_KERNEL = {"STRIDE_": "stride", "PADDING_": "padding", "GROUPS": "groups"}


def convolution_numbers(options: Options) -> dict[str, tuple[int, ...]]:
    """Return a convolution's options by name."""
    return {name: tuple(map(int, values)) for name, values in options}


def convolution_of_values(values: Mapping[str, Any], op: str = "convolution") -> Options | None:
    """Return the options among the named arguments of `torch.convolution` or its backward pass;
    None if one is missing or not a number."""
    integers: dict[str, tuple[int, ...]] = {}
    for name in OPTION_NAMES[op]:
        value = values.get(name)
        try:
            members = value if isinstance(value, (tuple, list)) else (value,)
            integers[name] = tuple(map(operator.index, members))
        except TypeError:
            return None
    return options(integers)


def convolution_of_arguments(arguments: Sequence[str]) -> Options:
    """Return the options in a call's arguments as text: positional, or named."""
    named = (argument.partition("=") for argument in arguments)
    values = {name: text for name, sign, text in named if sign}
    placed = arguments[CONVOLUTION_TENSORS : CONVOLUTION_TENSORS + len(CONVOLUTION)]
    if len(placed) == len(CONVOLUTION) and not values:
        values = dict(zip(CONVOLUTION, placed, strict=True))
    names = (*CONVOLUTION, *CONVOLUTION_RESULTS.values())
    integers = {name: _integers(values[name]) for name in names if name in values}
    return options({name: members for name, members in integers.items() if members})


def convolution_of_constants(constants: Mapping[str, str]) -> Options:
    """Return the options of a Triton kernel, from constants such as `STRIDE_H` and `GROUPS`."""
    values: dict[str, list[int]] = {}
    for start, name in _IN_KERNEL.items():
        for axis in "DHW" if start.endswith("_") else ("",):
            values.setdefault(name, []).extend(_integers(constants.get(start + axis, "")))
    return options({name: members for name, members in values.items() if members})


def _integers(text: str) -> list[int]:
    text = text.strip()
    return [int(number) for number in _INTEGER.findall(_FLAGS.get(text, text))]
