"""Pointwise expressions, which a kernel computes for each element, as steps; and their text.

A chain of steps knows nothing of torch, of a target or of a language. It is hashable: it is part of
a kernel's source, so a part of the binary. Values are computed as Inductor does: what is narrower
than fp32 is computed in fp32, and rounded only where the expression says so.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from backend.templates.errors import ExpressionError
from backend.templates.functions import (
    CPP_VALUE,
    FORMS,
    NARROW,
    TRITON_NARROW,
    TRITON_VALUE,
    Kind,
    Language,
    computed,
    kind_of,
    promoted,
)

STORED = (*CPP_VALUE, *NARROW)
"""The dtypes of tensors that a chain may read and write."""


@dataclass(frozen=True, slots=True)
class Step:
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

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        self._steps: dict[Step, int] = {step: number for number, step in enumerate(steps)}

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(self._steps)

    def add(self, step: Step) -> Value:
        return Value(self._steps.setdefault(step, len(self._steps)), step.dtype)

    def extend(self, steps: Sequence[Step], value: Value) -> tuple[Value, ...]:
        """Another chain after this one: `value` is what the kernel has computed for it."""
        values: list[Value] = []
        for step in steps:
            args = tuple(values[number].step for number in step.args)
            values.append(value if step.function == "value" else self.add(replace(step, args=args)))
        return tuple(values)

    def value(self, dtype: str = "float32") -> Value:
        """What the kernel has computed."""
        return self.add(Step("value", dtype))

    def load(self, tensor: str, stored: str) -> Value:
        """The element of a tensor whose dtype is `stored`."""
        if stored not in STORED:
            raise ExpressionError(f"a tensor of {stored}")
        return self.add(Step("load", computed(stored), text=tensor))

    def constant(self, value: float, dtype: str) -> Value:
        """A number. One of a narrow dtype is not rounded, as Inductor does not."""
        if computed(dtype) not in CPP_VALUE:
            raise ExpressionError(f"a constant of {dtype}")
        kind = kind_of(computed(dtype))
        plain = bool(value) if kind == "bool" else int(value) if kind == "int" else float(value)
        return self.add(Step("constant", computed(dtype), text=repr(plain)))

    def cast(self, of: Value, dtype: str, rounded: bool = False) -> Value:
        """To what `dtype` is computed in; `rounded` to the dtype itself, as one to 8 bits is."""
        if computed(dtype) not in CPP_VALUE:
            raise ExpressionError(f"a cast to {dtype}")
        wide = of
        if of.dtype != computed(dtype):
            wide = self.add(Step("cast", computed(dtype), (of.step,)))
        if dtype not in NARROW or not (rounded or dtype.startswith("float8")):
            return wide
        return self.add(Step("narrow", wide.dtype, (wide.step,), dtype))

    def where(self, condition: Value, chosen: Value, other: Value) -> Value:
        dtype = promoted(chosen.dtype, other.dtype)
        values = (self.cast(condition, "bool"), self.cast(chosen, dtype), self.cast(other, dtype))
        return self.add(Step("where", dtype, tuple(value.step for value in values)))

    def apply(self, function: str, *args: Value) -> Value:
        """A function of `functions.FORMS`, of operands that are first made alike."""
        dtype = args[0].dtype
        for arg in args[1:]:
            dtype = promoted(dtype, arg.dtype)
        form = FORMS[kind_of(dtype)].get(function)
        if form is None or form.arity != len(args):
            raise ExpressionError(f"no {function} of {len(args)} x {dtype}")
        numbers = tuple(self.cast(arg, dtype).step for arg in args)
        return self.add(Step(function, form.result or dtype, numbers))


def used(steps: Sequence[Step], results: Iterable[int]) -> frozenset[int]:
    """The numbers of the steps that the results are made of."""
    needed: set[int] = set()
    todo = list(results)
    while todo:
        number = todo.pop()
        if number not in needed:
            needed.add(number)
            todo += steps[number].args
    return frozenset(needed)


def defect(steps: Sequence[Step], language: Language) -> str | None:
    """Why the steps cannot be written in a language; None if they can."""
    for step in steps:
        form = FORMS[_argument_kind(steps, step)].get(step.function) if step.args else None
        if form is not None and not getattr(form, language):
            return f"no {step.function} in {language}"
        if step.function == "narrow" and language == "triton" and step.text not in TRITON_NARROW:
            return f"no {step.text} in {language}"
    return None


def _argument_kind(steps: Sequence[Step], step: Step) -> Kind:
    return kind_of(steps[step.args[0]].dtype)


def in_cpp(steps: Sequence[Step], names: Callable[[Step], str], prefix: str = "t") -> list[str]:
    """Statements of C++, one for each step; the value of step 3 is `t3`. `names` is the text of a
    `value` and of a `load`, the latter already in the dtype it is computed in."""

    def text(step: Step) -> str:
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


def _cpp_constant(step: Step) -> str:
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


def in_triton(steps: Sequence[Step], names: Callable[[Step], str], prefix: str) -> list[str]:
    """Statements of Triton, one for each step. Raises ExpressionError for what has no text."""
    if why := defect(steps, "triton"):
        raise ExpressionError(why)

    def text(step: Step) -> str:
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


def _triton_constant(step: Step) -> str:
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
