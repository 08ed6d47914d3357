"""Sizes as text of Triton, and the names of its types.

Sizes and strides are sympy expressions, and their text is read alike by Python and Triton. Triton
divides integers towards zero and Python downwards; the text means the same in both where the
operands are not negative, as sizes and strides of Inductor's buffers are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
from sympy.printing.printer import Printer

from backend.templates.errors import ExpressionError
from backend.templates.problem import Expr


def print_size(size: Expr, rename: Callable[[sympy.Symbol], str] = str) -> str:
    """Integer arithmetic in one line; `rename` names the symbols. Raises ExpressionError."""
    return str(_SizePrinter(rename).doprint(sympy.sympify(size)))


def symbols(size: Expr) -> tuple[sympy.Symbol, ...]:
    """The symbols of a size, by name."""
    return tuple(sorted(sympy.sympify(size).free_symbols, key=str))


def divides(divisor: int, size: Expr) -> bool:
    """Whether `size` is a multiple of `divisor` whatever its symbols are; False if unknown."""
    return bool(sympy.Mod(_integers(sympy.sympify(size)), divisor) == 0)


def ceildiv(size: Expr, divisor: int) -> sympy.Expr:
    """How many blocks of `divisor` cover `size`."""
    return sympy.floor((sympy.sympify(size) + divisor - 1) / sympy.Integer(divisor))


def _integers(size: sympy.Expr) -> sympy.Expr:
    """The same with symbols that sympy knows to be integers, so that it can divide them."""
    return size.subs({s: sympy.Dummy(s.name, integer=True) for s in symbols(size)})


class _SizePrinter(Printer):  # type: ignore[misc]
    """Only what is sure to be an integer is printed. Functions are found by class name, so that
    torch's own (`FloorDiv`, `ModularIndexing`, ...) need no import here."""

    def __init__(self, rename: Callable[[sympy.Symbol], str]) -> None:
        super().__init__()
        self._rename = rename

    def emptyPrinter(self, expr: Any) -> str:
        raise ExpressionError(f"{expr} ({type(expr).__name__}) has no integer form in Triton")

    def _paren(self, expr: sympy.Basic) -> str:
        text = str(self._print(expr))
        return text if text.isidentifier() or text.isdigit() else f"({text})"

    def _print_Symbol(self, expr: sympy.Symbol) -> str:
        return self._rename(expr)

    def _print_Integer(self, expr: sympy.Integer) -> str:
        return str(int(expr))

    def _print_Add(self, expr: sympy.Expr) -> str:
        return " + ".join(self._paren(term) for term in expr.args)

    def _print_Mul(self, expr: sympy.Expr) -> str:
        return " * ".join(self._paren(factor) for factor in expr.args)

    def _print_Pow(self, expr: sympy.Expr) -> str:
        base, power = expr.args
        if not (power.is_Integer and 0 < int(power) <= 8):
            return self.emptyPrinter(expr)
        return " * ".join([self._paren(base)] * int(power))

    def _floordiv(self, over: sympy.Basic, under: sympy.Basic) -> str:
        return f"{self._paren(over)} // {self._paren(under)}"

    def _print_FloorDiv(self, expr: sympy.Expr) -> str:
        return self._floordiv(*expr.args)

    _print_CleanDiv = _print_FloorDiv

    def _print_CeilDiv(self, expr: sympy.Expr) -> str:
        over, under = expr.args
        return self._floordiv(over + under - 1, under)

    def _print_floor(self, expr: sympy.Expr) -> str:
        over, under = sympy.fraction(sympy.together(expr.args[0]))
        return str(self._print(over)) if under == 1 else self._floordiv(over, under)

    def _print_ceiling(self, expr: sympy.Expr) -> str:
        over, under = sympy.fraction(sympy.together(expr.args[0]))
        return str(self._print(over)) if under == 1 else self._floordiv(over + under - 1, under)

    def _print_Mod(self, expr: sympy.Expr) -> str:
        return f"{self._paren(expr.args[0])} % {self._paren(expr.args[1])}"

    _print_PythonMod = _print_Mod

    def _print_ModularIndexing(self, expr: sympy.Expr) -> str:
        base, divisor, modulus = expr.args
        return f"({self._floordiv(base, divisor)}) % {self._paren(modulus)}"

    def _print_Identity(self, expr: sympy.Expr) -> str:
        return str(self._print(expr.args[0]))

    def _print_Min(self, expr: sympy.Expr) -> str:
        return self._nested("min", expr)

    def _print_Max(self, expr: sympy.Expr) -> str:
        return self._nested("max", expr)

    def _nested(self, name: str, expr: sympy.Expr) -> str:
        first, *rest = [str(self._print(arg)) for arg in sorted(expr.args, key=str)]
        for text in rest:
            first = f"{name}({first}, {text})"
        return first


DTYPES: dict[str, str] = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e4m3fnuz": "fp8e4b8",
    "float8_e5m2": "fp8e5",
    "float8_e5m2fnuz": "fp8e5b16",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "bool": "i1",
}
"""torch's dtypes that kernels read and write -> the names in Triton's signatures."""


CASTS = ("float16", "bfloat16", "float32")
"""What a value may be rounded to on its way."""
