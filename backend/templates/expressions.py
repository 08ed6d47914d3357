"""Pointwise expressions, which a kernel computes for each element, as steps; the functions that
they may call; and their text in C++ and in Triton.

A chain of steps knows nothing of torch, of a target or of a language. It is hashable: it is part of
a kernel's source, so a part of the binary. Values are computed as Inductor does: what is narrower
than fp32 is computed in fp32, and rounded only where the expression says so.

Names of functions are those of Inductor's `ops`. A function has a form for each kind of number that
it takes: `float` is fp32, `double` fp64, `int` any integer type, `bool`. What has no form here, or
none in the language that is asked for, is not fused.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from backend.errors import ExpressionError

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


STORED = (*CPP_VALUE, *NARROW)
"""The dtypes of tensors that a chain may read and write."""


@dataclass(frozen=True, slots=True)
class ChainStep:
    """One value. `args` are the numbers of earlier steps.

    `function` is one of `functions.FORMS`, or
    - `value`: what the kernel has computed
    - `load`: the element of the tensor `text` at the same place
    - `constant`: `text` is Python's for it
    - `cast`: to `dtype`
    - `narrow`: rounded to the narrow dtype `text`, and back
    - `where`: of a condition and two values
    """

    function: str
    dtype: str
    args: tuple[int, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class Value:
    """The number of a step in the chain that is being built, and its dtype."""

    step: int
    dtype: str


class ChainBuilder:
    """Writes steps down; the same step is computed once. Raises ExpressionError for what kernels
    cannot compute."""

    def __init__(self, steps: Iterable[ChainStep] = ()) -> None:
        self._steps: dict[ChainStep, int] = {step: number for number, step in enumerate(steps)}

    @property
    def steps(self) -> tuple[ChainStep, ...]:
        return tuple(self._steps)

    def add(self, step: ChainStep) -> Value:
        return Value(self._steps.setdefault(step, len(self._steps)), step.dtype)

    def extend(self, steps: Sequence[ChainStep], value: Value) -> tuple[Value, ...]:
        """Another chain after this one: `value` is what the kernel has computed for it."""
        values: list[Value] = []
        for step in steps:
            args = tuple(values[number].step for number in step.args)
            values.append(value if step.function == "value" else self.add(replace(step, args=args)))
        return tuple(values)

    def value(self, dtype: str = "float32") -> Value:
        """What the kernel has computed."""
        return self.add(ChainStep("value", dtype))

    def load(self, tensor: str, stored: str) -> Value:
        """The element of a tensor whose dtype is `stored`."""
        if stored not in STORED:
            raise ExpressionError(f"a tensor of {stored}")
        return self.add(ChainStep("load", computed(stored), text=tensor))

    def constant(self, value: float, dtype: str) -> Value:
        """A number. One of a narrow dtype is not rounded, as Inductor does not."""
        if computed(dtype) not in CPP_VALUE:
            raise ExpressionError(f"a constant of {dtype}")
        kind = kind_of(computed(dtype))
        plain = bool(value) if kind == "bool" else int(value) if kind == "int" else float(value)
        return self.add(ChainStep("constant", computed(dtype), text=repr(plain)))

    def cast(self, of: Value, dtype: str, rounded: bool = False) -> Value:
        """To what `dtype` is computed in; `rounded` to the dtype itself, as one to 8 bits is."""
        if computed(dtype) not in CPP_VALUE:
            raise ExpressionError(f"a cast to {dtype}")
        wide = of
        if of.dtype != computed(dtype):
            wide = self.add(ChainStep("cast", computed(dtype), (of.step,)))
        if dtype not in NARROW or not (rounded or dtype.startswith("float8")):
            return wide
        return self.add(ChainStep("narrow", wide.dtype, (wide.step,), dtype))

    def where(self, condition: Value, chosen: Value, other: Value) -> Value:
        dtype = promoted(chosen.dtype, other.dtype)
        values = (self.cast(condition, "bool"), self.cast(chosen, dtype), self.cast(other, dtype))
        return self.add(ChainStep("where", dtype, tuple(value.step for value in values)))

    def apply(self, function: str, *args: Value) -> Value:
        """A function of `functions.FORMS`, of operands that are first made alike."""
        dtype = args[0].dtype
        for arg in args[1:]:
            dtype = promoted(dtype, arg.dtype)
        form = FORMS[kind_of(dtype)].get(function)
        if form is None or form.arity != len(args):
            raise ExpressionError(f"no {function} of {len(args)} x {dtype}")
        numbers = tuple(self.cast(arg, dtype).step for arg in args)
        return self.add(ChainStep(function, form.result or dtype, numbers))


def used(steps: Sequence[ChainStep], results: Iterable[int]) -> frozenset[int]:
    """The numbers of the steps that the results are made of."""
    needed: set[int] = set()
    todo = list(results)
    while todo:
        number = todo.pop()
        if number not in needed:
            needed.add(number)
            todo += steps[number].args
    return frozenset(needed)


def defect(steps: Sequence[ChainStep], language: Language) -> str | None:
    """Why the steps cannot be written in a language; None if they can."""
    for step in steps:
        form = FORMS[_argument_kind(steps, step)].get(step.function) if step.args else None
        if form is not None and not getattr(form, language):
            return f"no {step.function} in {language}"
        if step.function == "narrow" and language == "triton" and step.text not in TRITON_NARROW:
            return f"no {step.text} in {language}"
    return None


def _argument_kind(steps: Sequence[ChainStep], step: ChainStep) -> Kind:
    return kind_of(steps[step.args[0]].dtype)


def in_cpp(
    steps: Sequence[ChainStep], names: Callable[[ChainStep], str], prefix: str = "t"
) -> list[str]:
    """Statements of C++, one for each step; the value of step 3 is `t3`. `names` is the text of a
    `value` and of a `load`, the latter already in the dtype it is computed in."""

    def text(step: ChainStep) -> str:
        args = [f"{prefix}{number}" for number in step.args]
        kind = CPP_VALUE[step.dtype]
        match step.function:
            case "value" | "load":
                return names(step)
            case "constant":
                return _cpp_constant(step)
            case "cast":
                return _cpp_cast(steps[step.args[0]].dtype, step.dtype, args[0])
            case "narrow":
                return f"rt::convert<{kind}>(rt::convert<{NARROW[step.text]}>({args[0]}))"
            case "where":
                return f"{args[0]} ? {args[1]} : {args[2]}"
        form = FORMS[_argument_kind(steps, step)][step.function]
        return f"static_cast<{kind}>({form.cpp.format(*args)})"

    return [
        f"const {CPP_VALUE[step.dtype]} {prefix}{number} = {text(step)};"
        for number, step in enumerate(steps)
    ]


def _cpp_constant(step: ChainStep) -> str:
    cpp_type = CPP_VALUE[step.dtype]
    if step.dtype == "bool":
        return step.text.lower()
    if kind_of(step.dtype) == "int":
        return f"static_cast<{cpp_type}>({step.text}ll)"
    value = float(step.text)
    if step.dtype == "float32":
        value = ctypes.c_float(value).value
    if math.isnan(value):
        return f"rt::not_a_number<{cpp_type}>()"
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}rt::infinity<{cpp_type}>()"
    return value.hex() + ("f" if step.dtype == "float32" else "")


def _cpp_cast(source: str, target: str, text: str) -> str:
    if target == "bool":
        return f"{text} != 0"
    if kind_of(source) in ("float", "double") and target in ("int8", "int16", "uint8"):
        # What C++ leaves undefined for a negative number and an unsigned type.
        return f"static_cast<{CPP_VALUE[target]}>(static_cast<int32_t>({text}))"
    return f"static_cast<{CPP_VALUE[target]}>({text})"


def in_triton(
    steps: Sequence[ChainStep], names: Callable[[ChainStep], str], prefix: str
) -> list[str]:
    """Statements of Triton, one for each step. Raises ExpressionError for what has no text."""
    if why := defect(steps, "triton"):
        raise ExpressionError(why)

    def text(step: ChainStep) -> str:
        args = [f"{prefix}{number}" for number in step.args]
        match step.function:
            case "value":
                return names(step)
            case "load":
                return f"{names(step)}.to({TRITON_VALUE[step.dtype]})"
            case "constant":
                return _triton_constant(step)
            case "cast":
                return _triton_cast(steps[step.args[0]].dtype, step.dtype, args[0])
            case "narrow":
                return f"{args[0]}.to(tl.{step.text}).to(tl.float32)"
            case "where":
                return f"tl.where({', '.join(args)})"
        return FORMS[_argument_kind(steps, step)][step.function].triton.format(*args)

    return [f"{prefix}{number} = {text(step)}" for number, step in enumerate(steps)]


def _triton_constant(step: ChainStep) -> str:
    value = step.text
    if step.dtype in ("float32", "float64") and value in ("nan", "inf", "-inf"):
        value = f'float("{value}")'
    return f"tl.full((1, 1), {value}, {TRITON_VALUE[step.dtype]})"


def _triton_cast(source: str, target: str, text: str) -> str:
    if target == "bool":
        return f"{text} != 0"
    if source == "bool" or target != "uint8":
        return f"{text}.to({TRITON_VALUE[target]})"
    return f"{text}.to(tl.int16).to(tl.uint8)"
