"""The pointwise functions that kernels can compute, and their text in C++ and in Triton.

Names are those of Inductor's `ops`. A function has a form for each kind of number that it takes:
`float` is fp32, `double` fp64, `int` any integer type, `bool`. What has no form here, or none in
the language that is asked for, is not fused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["float", "double", "int", "bool"]
Language = Literal["cpp", "triton"]

CPP_VALUE: dict[str, str] = {
    "float32": "float",
    "float64": "double",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "bool": "bool",
}
"""What a value is computed in -> its type in C++. Floats that are narrower are computed in fp32."""

TRITON_VALUE: dict[str, str] = {name: f"tl.{name}" for name in CPP_VALUE} | {"bool": "tl.int1"}
NARROW: dict[str, str] = {
    "float16": "rt::half",
    "bfloat16": "rt::bf16",
    "float8_e4m3fn": "rt::e4m3fn",
    "float8_e4m3fnuz": "rt::e4m3fnuz",
    "float8_e5m2": "rt::e5m2",
    "float8_e5m2fnuz": "rt::e5m2fnuz",
}
"""Types in memory alone, and their names in C++."""
TRITON_NARROW = ("float16", "bfloat16")
"""Those that our kernels in Triton read and write."""


def computed(dtype: str) -> str:
    """What a tensor's elements are computed in."""
    return "float32" if dtype in NARROW else dtype


def kind_of(dtype: str) -> Kind:
    """The kind of a value. Raises KeyError for what is no value's dtype."""
    floats: dict[str, Kind] = {"float32": "float", "float64": "double", "bool": "bool"}
    return floats[dtype] if dtype in floats else _INTEGERS[dtype]


_INTEGERS: dict[str, Kind] = {name: "int" for name in CPP_VALUE if "int" in name}
_ORDER = ("bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64")


def promoted(first: str, second: str) -> str:
    """The dtype of two operands together, as in torch."""
    if {first, second} == {"uint8", "int8"}:
        return "int16"
    return max(first, second, key=_ORDER.index)


@dataclass(frozen=True, slots=True)
class Form:
    """`arity` arguments are put into the text by their numbers. `triton` is empty where Triton has
    no short text for it. `result` is the dtype; empty if it is that of the arguments."""

    arity: int
    cpp: str
    triton: str = ""
    result: str = ""


def _both(text: str) -> tuple[str, str]:
    return text, text


_FLOATS: dict[str, Form] = {
    "add": Form(2, *_both("{0} + {1}")),
    "sub": Form(2, *_both("{0} - {1}")),
    "mul": Form(2, *_both("{0} * {1}")),
    "truediv": Form(2, "rt::divide({0}, {1})", "{0} / {1}"),
    "neg": Form(1, *_both("-{0}")),
    "square": Form(1, *_both("{0} * {0}")),
    "reciprocal": Form(1, "rt::divide(1, {0})", "1.0 / {0}"),
    # NaN is not below 0, so it stays, which tl.maximum does not promise.
    "relu": Form(1, "{0} < 0 ? 0 : {0}", "tl.where({0} < 0, 0.0, {0})"),
    "abs": Form(1, "rt::abs({0})", "tl.abs({0})"),
    "sign": Form(1, "rt::sign({0})"),
    "maximum": Form(
        2, "rt::maximum({0}, {1})", "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)"
    ),
    "minimum": Form(
        2, "rt::minimum({0}, {1})", "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)"
    ),
    "isnan": Form(1, *_both("{0} != {0}"), result="bool"),
    "isinf": Form(1, "rt::is_inf({0})", 'tl.abs({0}) == float("inf")', "bool"),
}
"""Of fp32 and of fp64."""

_FLOAT: dict[str, Form] = {
    "fma": Form(3, "rt::fma({0}, {1}, {2})", "tl.fma({0}, {1}, {2})"),
    "sqrt": Form(1, "rt::sqrt({0})", "tl.sqrt({0})"),
    "rsqrt": Form(1, "rt::rsqrt({0})", "1.0 / tl.sqrt({0})"),
    "exp": Form(1, "rt::exp({0})", "tl.exp({0})"),
    "exp2": Form(1, "rt::exp2({0})", "tl.exp2({0})"),
    "expm1": Form(1, "rt::expm1({0})"),
    "log": Form(1, "rt::log({0})", "tl.log({0})"),
    "log2": Form(1, "rt::log2({0})", "tl.log2({0})"),
    "log10": Form(1, "rt::log({0}) * 0.4342944819f", "tl.log({0}) * 0.4342944819"),
    "log1p": Form(1, "rt::log1p({0})"),
    "erf": Form(1, "rt::erf({0})", "tl.erf({0})"),
    # With the sign taken out the exponential cannot overflow.
    "tanh": Form(
        1,
        "rt::tanh({0})",
        "tl.where({0} < 0, -1.0, 1.0) * (1.0 - 2.0 / (tl.exp(2.0 * tl.abs({0})) + 1.0))",
    ),
    "sigmoid": Form(1, "rt::sigmoid({0})", "1.0 / (1.0 + tl.exp(-{0}))"),
    "silu": Form(1, "rt::silu({0})", "{0} / (1.0 + tl.exp(-{0}))"),
    "gelu": Form(1, "rt::gelu({0})", "0.5 * {0} * (1.0 + tl.erf({0} * 0.7071067811865476))"),
    # x * sigmoid(2 y) is 0.5 * x * (1 + tanh(y)).
    "gelu_tanh": Form(
        1,
        "rt::gelu_tanh({0})",
        "{0} / (1.0 + tl.exp(-1.5957691216057308 * ({0} + 0.044715 * {0} * {0} * {0})))",
    ),
    "floor": Form(1, "rt::floor({0})", "tl.floor({0})"),
    "ceil": Form(1, "rt::ceil({0})", "tl.ceil({0})"),
    "trunc": Form(1, "rt::trunc({0})", "tl.where({0} < 0, tl.ceil({0}), tl.floor({0}))"),
    "round": Form(1, "rt::round_to_int({0})"),
    "signbit": Form(1, "rt::signbit({0})", result="bool"),
    "copysign": Form(2, "rt::copysign({0}, {1})"),
}

_INTEGER: dict[str, Form] = {
    # By way of unsigned numbers: those wrap around, as the tensors of torch do.
    "add": Form(2, "rt::wrapping_add({0}, {1})", "{0} + {1}"),
    "sub": Form(2, "rt::wrapping_sub({0}, {1})", "{0} - {1}"),
    "mul": Form(2, "rt::wrapping_mul({0}, {1})", "{0} * {1}"),
    "neg": Form(1, "rt::wrapping_neg({0})", "-{0}"),
    "abs": Form(1, "{0} < 0 ? rt::wrapping_neg({0}) : {0}", "tl.abs({0})"),
    "square": Form(1, "rt::wrapping_mul({0}, {0})", "{0} * {0}"),
    "relu": Form(1, "{0} < 0 ? 0 : {0}", "tl.where({0} < 0, 0, {0})"),
    "sign": Form(1, "({0} > 0) - ({0} < 0)"),
    "maximum": Form(2, "{0} < {1} ? {1} : {0}", "tl.maximum({0}, {1})"),
    "minimum": Form(2, "{0} < {1} ? {0} : {1}", "tl.minimum({0}, {1})"),
    "bitwise_and": Form(2, *_both("{0} & {1}")),
    "bitwise_or": Form(2, *_both("{0} | {1}")),
    "bitwise_xor": Form(2, *_both("{0} ^ {1}")),
    "bitwise_not": Form(1, *_both("~{0}")),
    "bitwise_left_shift": Form(2, "rt::shift_left({0}, {1})"),
    "bitwise_right_shift": Form(
        2,
        "rt::shift_right({0}, {1})",
        "tl.where(({1} < 0) | ({1} >= {0}.dtype.primitive_bitwidth), "
        "0 - ({0} < 0).to({0}.dtype), {0} >> {1})",
    ),
}

_BOOLEAN: dict[str, Form] = {
    "logical_and": Form(2, *_both("{0} & {1}")),
    "logical_or": Form(2, *_both("{0} | {1}")),
    "logical_xor": Form(2, *_both("{0} ^ {1}")),
    "logical_not": Form(1, "!{0}", "{0} == 0"),
    "maximum": Form(2, *_both("{0} | {1}")),
    "minimum": Form(2, *_both("{0} & {1}")),
}
for _name in ("and", "or", "xor", "not"):
    _BOOLEAN[f"bitwise_{_name}"] = _BOOLEAN[f"logical_{_name}"]

_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_COMPARISONS = {
    name: Form(2, *_both(f"{{0}} {sign} {{1}}"), result="bool") for name, sign in _SIGNS.items()
}

FORMS: dict[Kind, dict[str, Form]] = {
    "float": _FLOATS | _FLOAT | _COMPARISONS,
    "double": _FLOATS | _COMPARISONS,
    "int": _INTEGER | _COMPARISONS,
    "bool": _BOOLEAN | _COMPARISONS,
}
"""Kind of the arguments -> name -> form."""
