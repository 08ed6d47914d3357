"""Integer expressions of sympy as C++."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import sympy
from sympy.printing.printer import Printer

from backend.templates.errors import RenderError
from backend.templates.operand import Expr


def cexpr(expr: Expr) -> str:
    """C++ of an integer expression, in `int64_t`; division rounds down, as Python's does.

    Inductor's own functions (`FloorDiv`, `ModularIndexing`, ...) are known by name. Raises
    RenderError for what is no integer expression.
    """
    return str(_IntegerPrinter().doprint(sympy.sympify(expr)))


def _modulo(over: str, under: str) -> str:
    """With the sign of the divisor; C++'s has that of the dividend."""
    return f"(({over} % {under} + {under}) % {under})"


def _floor_div(over: str, under: str) -> str:
    return f"(({over} - {_modulo(over, under)}) / {under})"


def _fold(comparison: str, texts: Iterable[str]) -> str:
    """The least or the greatest of some."""
    return functools.reduce(lambda a, b: f"({a} {comparison} {b} ? {a} : {b})", texts)


class _IntegerPrinter(Printer):  # type: ignore[misc]
    """Every compound is in parentheses: the text is read by a compiler, not by people."""

    def emptyPrinter(self, expr: object) -> str:
        raise RenderError(f"no C++ for {type(expr).__name__} in a size: {expr}")

    def _print_Integer(self, expr: sympy.Integer) -> str:
        return f"int64_t{{{int(expr)}}}"

    def _print_Symbol(self, expr: sympy.Symbol) -> str:
        return f"int64_t{{{expr.name}}}"

    def _print_Add(self, expr: sympy.Add) -> str:
        return self._joined(" + ", expr)

    def _print_Mul(self, expr: sympy.Mul) -> str:
        over, under = expr.as_numer_denom()
        if under != 1:
            return _floor_div(self._print(over), self._print(under))
        return self._joined(" * ", expr)

    def _joined(self, operator: str, expr: sympy.Expr) -> str:
        return f"({operator.join(self._print(arg) for arg in expr.args)})"

    def _print_Pow(self, expr: sympy.Pow) -> str:
        base, exponent = expr.args
        if not isinstance(exponent, sympy.Integer) or exponent < 0:
            return self.emptyPrinter(expr)
        return f"({' * '.join([self._print(base)] * int(exponent))})"

    def _print_floor(self, expr: sympy.Expr) -> str:
        over, under = expr.args[0].as_numer_denom()
        return _floor_div(self._print(over), self._print(under))

    def _print_ceiling(self, expr: sympy.Expr) -> str:
        over, under = expr.args[0].as_numer_denom()
        return f"(-{_floor_div(f'(-{self._print(over)})', self._print(under))})"

    def _print_Mod(self, expr: sympy.Expr) -> str:
        return _modulo(*map(self._print, expr.args))

    def _print_FloorDiv(self, expr: sympy.Expr) -> str:
        return _floor_div(*map(self._print, expr.args))

    def _print_CeilDiv(self, expr: sympy.Expr) -> str:
        over, under = map(self._print, expr.args)
        return f"(-{_floor_div(f'(-{over})', under)})"

    def _print_ModularIndexing(self, expr: sympy.Expr) -> str:
        index, divisor, modulus = map(self._print, expr.args)
        return _modulo(_floor_div(index, divisor), modulus)

    def _print_Min(self, expr: sympy.Expr) -> str:
        return _fold("<", map(self._print, expr.args))

    def _print_Max(self, expr: sympy.Expr) -> str:
        return _fold(">", map(self._print, expr.args))

    def _print_Identity(self, expr: sympy.Expr) -> str:
        return str(self._print(expr.args[0]))

    _print_CleanDiv = _print_IntTrueDiv = _print_FloorDiv
    _print_PythonMod = _print_Mod
