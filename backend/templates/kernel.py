"""The object that a template sees as `kernel`: its signature, its sizes, and how to call it.

Sizes are integer expressions of sympy, printed as C++.

The C ABI: `int NAME(inputs, outputs, sizes and strides, runtime arguments, size_t* workspace_size,
uint8_t* workspace, hipStream_t stream)`; every number among them is an `int64_t`. It
returns 0 or HIP's error code. With `workspace_size` not null it only stores there the bytes of
workspace that the call would need.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import sympy
from sympy.printing.printer import Printer

from backend.counted import counted
from backend.templates.errors import RenderError
from backend.templates.problem import ArgInfo, Expr, Operand, SizeArg


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


ABI_TAIL = (
    ArgInfo("workspace_size", "size_t*"),
    ArgInfo("workspace", "uint8_t*"),
    ArgInfo("stream", "hipStream_t"),
)
"""The last three parameters of every entry."""


@dataclass(frozen=True, slots=True)
class CallArg:
    """One argument of a call, without the tail: what stands in its place in the signature.

    `value` is the operand of an input or output, the expression of a size, or the number that this
    choice has for a runtime argument.
    """

    kind: Literal["input", "output", "size", "runtime"]
    name: str
    ty: str
    value: Operand | Expr


class TemplateKernel:
    """A kernel while it is rendered. `def_kernel` must come first.

    `runtime_values` has one value for each of `runtime_args`; they are not part of the source.
    """

    def __init__(
        self,
        name: str,
        runtime_args: Sequence[ArgInfo] = (),
        runtime_values: Sequence[int] = (),
    ) -> None:
        if len(runtime_args) != len(runtime_values):
            raise RenderError(
                f"{len(runtime_args)} runtime arguments, {len(runtime_values)} values"
            )
        self.name = name
        self.runtime_args = tuple(runtime_args)
        self.runtime_values = tuple(runtime_values)
        self._args: list[CallArg] = []
        self._limits: list[tuple[Expr, int]] = []
        self._sizes: dict[tuple[str, int], str] = {}
        self._strides: dict[tuple[str, int], str] = {}

    def def_kernel(
        self,
        inputs: Sequence[Operand | None],
        outputs: Sequence[Operand],
        size_args: Sequence[SizeArg] = (),
        input_reorder: Sequence[int] | None = None,
    ) -> str:
        """The entry's signature, without its body.

        `input_reorder` is the order in which the caller passes the inputs: a template's
        [X, W, Bias] that is called with [Bias, X, W] has [2, 0, 1]. An absent input is None.
        """
        order = range(len(inputs)) if input_reorder is None else input_reorder
        if sorted(order) != list(range(len(inputs))):
            inputs_text = counted(len(inputs), "input")
            raise RenderError(f"input_reorder {list(order)} is no order of {inputs_text}")
        for index in order:
            if (operand := inputs[index]) is not None:
                self._add("input", operand.name, f"const {operand.cpp_type}*", operand)
        for operand in outputs:
            self._add("output", operand.name, f"{operand.cpp_type}*", operand)
        for size in size_args:
            self._add("size", size.name, "int64_t", size.value)
            if size.most is not None:
                self._limits.append((size.value, size.most))
            self._sizes.update(dict.fromkeys(size.sizes, size.name))
            self._strides.update(dict.fromkeys(size.strides, size.name))
        for arg, value in zip(self.runtime_args, self.runtime_values, strict=True):
            self._add("runtime", arg.name, arg.ty, value)
        parameters = ", ".join(f"{arg.ty} {arg.name}" for arg in self.parameters())
        return f"RT_EXPORT int {self.name}({parameters})"

    def _add(
        self,
        kind: Literal["input", "output", "size", "runtime"],
        name: str,
        ty: str,
        value: Operand | Expr,
    ) -> None:
        if any(name == arg.name for arg in self.parameters()):
            raise RenderError(f"two parameters named {name} in {self.name}")
        self._args.append(CallArg(kind, name, ty, value))

    def parameters(self) -> tuple[ArgInfo, ...]:
        """The whole signature, the tail included."""
        return (*(ArgInfo(arg.name, arg.ty) for arg in self._args), *ABI_TAIL)

    def call_args(self) -> tuple[CallArg, ...]:
        """The arguments of a call, in the order of the signature, without the tail."""
        return tuple(self._args)

    def limit(self, limits: Iterable[tuple[Expr, int]]) -> None:
        """Add to `limits`."""
        self._limits += limits

    def limits(self) -> tuple[tuple[Expr, int], ...]:
        """Sizes, and the largest value of each that the entry takes."""
        return tuple(self._limits)

    def arg_name(self, operand: Operand | None) -> str | None:
        """The parameter that holds this operand; None for an absent one."""
        names = {arg.name for arg in self._args if arg.kind in ("input", "output")}
        return operand.name if operand is not None and operand.name in names else None

    def check_not_null(self, operand: Operand | None) -> str:
        """A statement that refuses a null pointer for an operand that has elements."""
        name = self.arg_name(operand)
        if operand is None or name is None:
            return ""
        count = self.size(operand, 0, -1)
        return f"if ({name} == nullptr && {count} > 0) return hipErrorInvalidValue;"

    def size(
        self, operand: Operand | None, start: int, end: int | None = None, default: int = 0
    ) -> str:
        """C++ of a size, or of the product of the sizes from `start` to `end`, both included."""
        if operand is None:
            return str(default)
        rank = len(operand.sizes)
        first = _dim(start, rank)
        last = first if end is None else _dim(end, rank)
        dims = range(first, last + 1)
        if not dims:
            return str(default)
        text = " * ".join(
            self._bound(self._sizes, operand, dim, operand.sizes[dim]) for dim in dims
        )
        return text if len(dims) == 1 else f"({text})"

    def stride(self, operand: Operand | None, dim: int, default: int = 0) -> str:
        """C++ of a stride in elements."""
        if operand is None:
            return str(default)
        dim = _dim(dim, len(operand.strides))
        return self._bound(self._strides, operand, dim, operand.strides[dim])

    def _bound(
        self, names: dict[tuple[str, int], str], operand: Operand, dim: int, expr: Expr
    ) -> str:
        """By its argument where there is one: then one binary serves every value of it."""
        for key in ((operand.name, dim), (operand.name, dim - len(operand.sizes))):
            if key in names:
                return f"int64_t{{{names[key]}}}"
        return cexpr(self._rename(sympy.sympify(expr)))

    def _rename(self, expr: sympy.Expr) -> sympy.Expr:
        """The expression with the caller's symbols replaced by the size arguments."""
        sizes = [arg for arg in self._args if arg.kind == "size"]
        known = {arg.value: sympy.Symbol(arg.name) for arg in reversed(sizes)}
        renamed = expr.xreplace({k: v for k, v in known.items() if isinstance(k, sympy.Symbol)})
        unknown = renamed.free_symbols - {sympy.Symbol(arg.name) for arg in self._args}
        if unknown:
            raise RenderError(f"no argument of {self.name} tells {min(map(str, unknown))}")
        return renamed


def _dim(index: int, rank: int) -> int:
    dim = index + rank if index < 0 else index
    if not 0 <= dim < rank:
        raise RenderError(f"dimension {index} of a {rank}-dimensional operand")
    return dim
