"""Sizes in a captured graph's text: numbers, symbols, sums and products, and nothing else."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Container, Mapping
from typing import Any

MOST_TERMS = 200

Expression = Callable[[Mapping[str, Any]], Any]
"""A size, once it is said what the symbols are: numbers, or sizes that stay open."""

_KNOWN: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


class Refused(Exception):
    """A text is no captured graph of ours; one line says why, and where."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason if line is None else f"line {line}: {reason}")


def expression(node: ast.expr, symbols: Container[str]) -> Expression:
    """Raises Refused for anything else."""
    if sum(1 for _ in ast.walk(node)) > 5 * MOST_TERMS:
        raise Refused("a size is too long", node.lineno)
    return _read(node, symbols)


def _read(node: ast.expr, symbols: Container[str]) -> Expression:
    match node:
        case ast.Constant(value=int(number)) if type(number) is int and abs(number) < 1 << 62:
            return lambda _: number
        case ast.Name(id=name) if name in symbols:
            return lambda values: values[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _read(operand, symbols)
            return lambda values: -inner(values)
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))):
            if 0 <= power <= 4:
                base = _read(left, symbols)
                return lambda values: base(values) ** power
        case ast.BinOp(left=left, op=kind, right=right) if type(kind) in _KNOWN:
            apply, first, second = _KNOWN[type(kind)], _read(left, symbols), _read(right, symbols)
            return lambda values: apply(first(values), second(values))
    raise Refused("a size of numbers and symbols is expected", getattr(node, "lineno", None))
