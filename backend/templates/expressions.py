"""Pointwise expressions that a kernel computes for each element, as steps; the functions that they
may call; and their text in C++ and in Triton.

A chain of steps is independent of torch, targets and languages. It is hashable, since it is part of
a kernel's source and so of the binary. Values are computed as in Inductor: types narrower than fp32
are computed in fp32, and rounded only where the expression says so.

Names of functions are those of Inductor's `ops`. A function has a form for each kind of argument:
`float` is fp32, `double` fp64, `int` any integer type, `bool`. An expression without a form here,
or without one in the requested language, is not fused.
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
"""The C++ type in which a value is computed. Narrower floats are computed in fp32."""

TRITON_VALUE: dict[str, str] = {name: f"tl.{name}" for name in CPP_VALUE} | {"bool": "tl.int1"}
NARROW: dict[str, str] = {
    "float16": "rt::half",
    "bfloat16": "rt::bf16",
    "float8_e4m3fn": "rt::e4m3fn",
    "float8_e4m3fnuz": "rt::e4m3fnuz",
    "float8_e5m2": "rt::e5m2",
    "float8_e5m2fnuz": "rt::e5m2fnuz",
}
"""The C++ names of types that exist only in memory."""
TRITON_NARROW = ("float16", "bfloat16")
"""The narrow types that our Triton kernels read and write."""


def computed(dtype: str) -> str:
    """Return the type in which a tensor's elements are computed."""
    return "float32" if dtype in NARROW else dtype


def kind_of(dtype: str) -> Kind:
    """Return the kind of a value. Raises KeyError for another dtype."""
    floats: dict[str, Kind] = {"float32": "float", "float64": "double", "bool": "bool"}
    return floats[dtype] if dtype in floats else _INTEGERS[dtype]


_INTEGERS: dict[str, Kind] = {name: "int" for name in CPP_VALUE if "int" in name}
_ORDER = ("bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64")


def promoted(first: str, second: str) -> str:
    """Return the common dtype of two operands, as in torch."""
    if {first, second} == {"uint8", "int8"}:
        return "int16"
    return max(first, second, key=_ORDER.index)


@dataclass(frozen=True, slots=True)
class FunctionForm:
    """A function's texts; `arity` arguments are inserted by number. `triton` is empty if Triton has
    no short text for it. `result` is the dtype; empty if it is that of the arguments."""

    arity: int
    cpp: str
    triton: str = ""
    result: str = ""


def _both(text: str) -> tuple[str, str]:
    return text, text


_FLOATS: dict[str, FunctionForm] = {
    "add": FunctionForm(2, *_both("{0} + {1}")),
    "sub": FunctionForm(2, *_both("{0} - {1}")),
    "mul": FunctionForm(2, *_both("{0} * {1}")),
    "truediv": FunctionForm(2, "rt::divide({0}, {1})", "{0} / {1}"),
    "neg": FunctionForm(1, *_both("-{0}")),
    "square": FunctionForm(1, *_both("{0} * {0}")),
    "reciprocal": FunctionForm(1, "rt::divide(1, {0})", "1.0 / {0}"),
    # NaN is not below 0, so it stays, which tl.maximum does not guarantee.
    "relu": FunctionForm(1, "{0} < 0 ? 0 : {0}", "tl.where({0} < 0, 0.0, {0})"),
    "abs": FunctionForm(1, "rt::abs({0})", "tl.abs({0})"),
    "sign": FunctionForm(1, "rt::sign({0})"),
    "maximum": FunctionForm(
        2, "rt::maximum({0}, {1})", "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)"
    ),
    "minimum": FunctionForm(
        2, "rt::minimum({0}, {1})", "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)"
    ),
    "isnan": FunctionForm(1, *_both("{0} != {0}"), result="bool"),
    "isinf": FunctionForm(1, "rt::is_inf({0})", 'tl.abs({0}) == float("inf")', "bool"),
}
"""Forms of fp32 and fp64."""

_FLOAT: dict[str, FunctionForm] = {
    "fma": FunctionForm(3, "rt::fma({0}, {1}, {2})", "tl.fma({0}, {1}, {2})"),
    "sqrt": FunctionForm(1, "rt::sqrt({0})", "tl.sqrt({0})"),
    "rsqrt": FunctionForm(1, "rt::rsqrt({0})", "1.0 / tl.sqrt({0})"),
    "exp": FunctionForm(1, "rt::exp({0})", "tl.exp({0})"),
    "exp2": FunctionForm(1, "rt::exp2({0})", "tl.exp2({0})"),
    "expm1": FunctionForm(1, "rt::expm1({0})"),
    "log": FunctionForm(1, "rt::log({0})", "tl.log({0})"),
    "log2": FunctionForm(1, "rt::log2({0})", "tl.log2({0})"),
    "log10": FunctionForm(1, "rt::log({0}) * 0.4342944819f", "tl.log({0}) * 0.4342944819"),
    "log1p": FunctionForm(1, "rt::log1p({0})"),
    "erf": FunctionForm(1, "rt::erf({0})", "tl.erf({0})"),
    # Without the sign the exponential cannot overflow.
    "tanh": FunctionForm(
        1,
        "rt::tanh({0})",
        "tl.where({0} < 0, -1.0, 1.0) * (1.0 - 2.0 / (tl.exp(2.0 * tl.abs({0})) + 1.0))",
    ),
    "sigmoid": FunctionForm(1, "rt::sigmoid({0})", "1.0 / (1.0 + tl.exp(-{0}))"),
    "silu": FunctionForm(1, "rt::silu({0})", "{0} / (1.0 + tl.exp(-{0}))"),
    "gelu": FunctionForm(
        1, "rt::gelu({0})", "0.5 * {0} * (1.0 + tl.erf({0} * 0.7071067811865476))"
    ),
    # x * sigmoid(2 y) is 0.5 * x * (1 + tanh(y)).
    "gelu_tanh": FunctionForm(
        1,
        "rt::gelu_tanh({0})",
        "{0} / (1.0 + tl.exp(-1.5957691216057308 * ({0} + 0.044715 * {0} * {0} * {0})))",
    ),
    "floor": FunctionForm(1, "rt::floor({0})", "tl.floor({0})"),
    "ceil": FunctionForm(1, "rt::ceil({0})", "tl.ceil({0})"),
    "trunc": FunctionForm(1, "rt::trunc({0})", "tl.where({0} < 0, tl.ceil({0}), tl.floor({0}))"),
    "round": FunctionForm(1, "rt::round_to_int({0})"),
    "signbit": FunctionForm(1, "rt::signbit({0})", result="bool"),
    "copysign": FunctionForm(2, "rt::copysign({0}, {1})"),
}

_INTEGER: dict[str, FunctionForm] = {
    # Through unsigned numbers, which wrap around like torch's tensors.
    "add": FunctionForm(2, "rt::wrapping_add({0}, {1})", "{0} + {1}"),
    "sub": FunctionForm(2, "rt::wrapping_sub({0}, {1})", "{0} - {1}"),
    "mul": FunctionForm(2, "rt::wrapping_mul({0}, {1})", "{0} * {1}"),
    "neg": FunctionForm(1, "rt::wrapping_neg({0})", "-{0}"),
    "abs": FunctionForm(1, "{0} < 0 ? rt::wrapping_neg({0}) : {0}", "tl.abs({0})"),
    "square": FunctionForm(1, "rt::wrapping_mul({0}, {0})", "{0} * {0}"),
    "relu": FunctionForm(1, "{0} < 0 ? 0 : {0}", "tl.where({0} < 0, 0, {0})"),
    "sign": FunctionForm(1, "({0} > 0) - ({0} < 0)"),
    "maximum": FunctionForm(2, "{0} < {1} ? {1} : {0}", "tl.maximum({0}, {1})"),
    "minimum": FunctionForm(2, "{0} < {1} ? {0} : {1}", "tl.minimum({0}, {1})"),
    "bitwise_and": FunctionForm(2, *_both("{0} & {1}")),
    "bitwise_or": FunctionForm(2, *_both("{0} | {1}")),
    "bitwise_xor": FunctionForm(2, *_both("{0} ^ {1}")),
    "bitwise_not": FunctionForm(1, *_both("~{0}")),
    "bitwise_left_shift": FunctionForm(2, "rt::shift_left({0}, {1})"),
    "bitwise_right_shift": FunctionForm(
        2,
        "rt::shift_right({0}, {1})",
        "tl.where(({1} < 0) | ({1} >= {0}.dtype.primitive_bitwidth), "
        "0 - ({0} < 0).to({0}.dtype), {0} >> {1})",
    ),
}

_BOOLEAN: dict[str, FunctionForm] = {
    "logical_and": FunctionForm(2, *_both("{0} & {1}")),
    "logical_or": FunctionForm(2, *_both("{0} | {1}")),
    "logical_xor": FunctionForm(2, *_both("{0} ^ {1}")),
    "logical_not": FunctionForm(1, "!{0}", "{0} == 0"),
    "maximum": FunctionForm(2, *_both("{0} | {1}")),
    "minimum": FunctionForm(2, *_both("{0} & {1}")),
}
for _name in ("and", "or", "xor", "not"):
    _BOOLEAN[f"bitwise_{_name}"] = _BOOLEAN[f"logical_{_name}"]

_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_COMPARISONS = {
    name: FunctionForm(2, *_both(f"{{0}} {sign} {{1}}"), result="bool")
    for name, sign in _SIGNS.items()
}

FORMS: dict[Kind, dict[str, FunctionForm]] = {
    "float": _FLOATS | _FLOAT | _COMPARISONS,
    "double": _FLOATS | _COMPARISONS,
    "int": _INTEGER | _COMPARISONS,
    "bool": _BOOLEAN | _COMPARISONS,
}
"""Forms by kind of the arguments and name."""


STORED = (*CPP_VALUE, *NARROW)
"""The dtypes of tensors that a chain may read and write."""


@dataclass(frozen=True, slots=True)
class ChainStep:
    """One value. `args` are the numbers of earlier steps.

    `function` is one of `functions.FORMS`, or
    - `value`: the kernel's result
    - `load`: the element of the tensor `text` at the same position
    - `constant`: `text` is its Python text
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
    """A builder of steps; equal steps are computed once. Raises ExpressionError for expressions
    that kernels cannot compute."""

    def __init__(self, steps: Iterable[ChainStep] = ()) -> None:
        self._steps: dict[ChainStep, int] = {step: number for number, step in enumerate(steps)}

    @property
    def steps(self) -> tuple[ChainStep, ...]:
        return tuple(self._steps)

    def add(self, step: ChainStep) -> Value:
        return Value(self._steps.setdefault(step, len(self._steps)), step.dtype)

    def extend(self, steps: Sequence[ChainStep], value: Value) -> tuple[Value, ...]:
        """Append another chain: `value` is its kernel result."""
        values: list[Value] = []
        for step in steps:
            args = tuple(values[number].step for number in step.args)
            values.append(value if step.function == "value" else self.add(replace(step, args=args)))
        return tuple(values)

    def value(self, dtype: str = "float32") -> Value:
        """Return the kernel's result."""
        return self.add(ChainStep("value", dtype))

    def load(self, tensor: str, stored: str) -> Value:
        """Return the element of a tensor whose dtype is `stored`."""
        if stored not in STORED:
            raise ExpressionError(f"a tensor of {stored}")
        return self.add(ChainStep("load", computed(stored), text=tensor))

    def constant(self, value: float, dtype: str) -> Value:
        """Return a number. A narrow dtype is not rounded, as in Inductor."""
        if computed(dtype) not in CPP_VALUE:
            raise ExpressionError(f"a constant of {dtype}")
        kind = kind_of(computed(dtype))
        plain = bool(value) if kind == "bool" else int(value) if kind == "int" else float(value)
        return self.add(ChainStep("constant", computed(dtype), text=repr(plain)))

    def cast(self, of: Value, dtype: str, rounded: bool = False) -> Value:
        """Cast to the type in which `dtype` is computed; with `rounded` to the dtype itself."""
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
        """Apply a function of `functions.FORMS` to operands, promoted to one type."""
        dtype = args[0].dtype
        for arg in args[1:]:
            dtype = promoted(dtype, arg.dtype)
        form = FORMS[kind_of(dtype)].get(function)
        if form is None or form.arity != len(args):
            raise ExpressionError(f"no {function} of {len(args)} x {dtype}")
        numbers = tuple(self.cast(arg, dtype).step for arg in args)
        return self.add(ChainStep(function, form.result or dtype, numbers))


def used(steps: Sequence[ChainStep], results: Iterable[int]) -> frozenset[int]:
    """Return the numbers of the steps that the results depend on."""
    needed: set[int] = set()
    todo = list(results)
    while todo:
        number = todo.pop()
        if number not in needed:
            needed.add(number)
            todo += steps[number].args
    return frozenset(needed)


def defect(steps: Sequence[ChainStep], language: Language) -> str | None:
    """Return why the steps cannot be written in a language; None if they can."""
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
    """Return C++ statements, one for each step; the value of step 3 is `t3`. `names` returns the
    text of a `value` and of a `load`, the latter already in the dtype of the computation."""

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
        # C++ leaves this undefined for a negative number and an unsigned type.
        return f"static_cast<{CPP_VALUE[target]}>(static_cast<int32_t>({text}))"
    return f"static_cast<{CPP_VALUE[target]}>({text})"


def in_triton(
    steps: Sequence[ChainStep], names: Callable[[ChainStep], str], prefix: str
) -> list[str]:
    """Return Triton statements, one for each step. Raises ExpressionError if a step has no text."""
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
