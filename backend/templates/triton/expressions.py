"""Sizes and pointwise subgraphs as text of Triton.

Sizes and strides are sympy expressions, and their text is read alike by Python and Triton. Triton
divides integers towards zero and Python downwards; the text means the same in both where the
operands are not negative, as sizes and strides of Inductor's buffers are.

The values of a subgraph are computed in fp32. `Cast` rounds to a dtype and goes on in fp32, as
Inductor does. Every operation passes NaN on like its namesake in torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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
    "int32": "i32",
}
"""torch's dtypes that kernels read and write -> the names in Triton's signatures."""


CASTS = ("float16", "bfloat16", "float32")
"""What a value may be rounded to on its way."""


class Pointwise:
    """A node of the graph; `a + b`, `a - b`, `a * b`, `a / b`, `-a` build more of it."""

    __slots__ = ()

    def __add__(self, other: Pointwise | float) -> Pointwise:
        return Apply("add", (self, _node(other)))

    def __sub__(self, other: Pointwise | float) -> Pointwise:
        return Apply("sub", (self, _node(other)))

    def __mul__(self, other: Pointwise | float) -> Pointwise:
        return Apply("mul", (self, _node(other)))

    def __truediv__(self, other: Pointwise | float) -> Pointwise:
        return Apply("div", (self, _node(other)))

    def __neg__(self) -> Pointwise:
        return Apply("neg", (self,))


@dataclass(frozen=True, slots=True)
class Value(Pointwise):
    """What the template computed, under the name that it gives to `modification`."""

    name: str = "acc"


@dataclass(frozen=True, slots=True)
class Load(Pointwise):
    """The element of another tensor at the output's place; its layout says how it broadcasts."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant(Pointwise):
    value: float


@dataclass(frozen=True, slots=True)
class Cast(Pointwise):
    """Rounded to a dtype of `CASTS`."""

    of: Pointwise
    dtype: str


@dataclass(frozen=True, slots=True)
class Apply(Pointwise):
    """A function of `FUNCTIONS`."""

    function: str
    args: tuple[Pointwise, ...]


ACC = Value()

FUNCTIONS: Mapping[str, tuple[int, str]] = {
    "add": (2, "{0} + {1}"),
    "sub": (2, "{0} - {1}"),
    "mul": (2, "{0} * {1}"),
    "div": (2, "{0} / {1}"),
    "neg": (1, "-{0}"),
    "exp": (1, "tl.exp({0})"),
    "sqrt": (1, "tl.sqrt({0})"),
    "sigmoid": (1, "1.0 / (1.0 + tl.exp(-{0}))"),
    # With the sign taken out the exponential cannot overflow.
    "tanh": (1, "tl.where({0} < 0, -1.0, 1.0) * (1.0 - 2.0 / (tl.exp(2.0 * tl.abs({0})) + 1.0))"),
    "silu": (1, "{0} / (1.0 + tl.exp(-{0}))"),
    "gelu": (1, "0.5 * {0} * (1.0 + tl.erf({0} * 0.7071067811865476))"),
    # NaN is not below 0, so it stays, which tl.maximum does not promise.
    "relu": (1, "tl.where({0} < 0, 0.0, {0})"),
    "maximum": (2, "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)"),
    "minimum": (2, "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)"),
}
"""Name -> how many arguments, and the text with their names put in."""


def apply(function: str, *args: Pointwise | float) -> Pointwise:
    """A function of `FUNCTIONS` applied. Raises ExpressionError if there is none such."""
    if function not in FUNCTIONS:
        raise ExpressionError(f"no pointwise function {function}; there are {', '.join(FUNCTIONS)}")
    wanted = FUNCTIONS[function][0]
    if len(args) != wanted:
        raise ExpressionError(f"{function} takes {wanted} arguments, not {len(args)}")
    nodes = tuple(_node(arg) for arg in args)
    if all(isinstance(node, Constant) for node in nodes):
        raise ExpressionError(f"{function} of constants alone: work it out before the kernel")
    return Apply(function, nodes)


def gelu_tanh(x: Pointwise) -> Pointwise:
    """`gelu(x, approximate="tanh")`."""
    inner = (x + x * x * x * 0.044715) * 0.7978845608028654
    return x * 0.5 * (apply("tanh", inner) + 1.0)


def cast(of: Pointwise, dtype: str) -> Pointwise:
    """Round to `dtype`. Raises ExpressionError for one that is not in `CASTS`."""
    if dtype not in CASTS:
        raise ExpressionError(f"no cast to {dtype}; there are {', '.join(CASTS)}")
    if isinstance(of, Constant):
        raise ExpressionError("a cast of a constant: round it before the kernel")
    return Cast(of, dtype)


def loads(graph: Pointwise) -> tuple[str, ...]:
    """The names of the tensors that the graph reads, in the order of first use."""
    return tuple(dict.fromkeys(node.name for node in _walk(graph) if isinstance(node, Load)))


def functions(graph: Pointwise) -> frozenset[str]:
    """The names of the functions that the graph applies."""
    return frozenset(node.function for node in _walk(graph) if isinstance(node, Apply))


def emit(
    graph: Pointwise,
    values: Mapping[str, str],
    load: Callable[[str], str],
    prefix: str,
    wide: str = "float32",
) -> tuple[list[str], str]:
    """Statements, and the name of the result. What is loaded is converted to `wide`.

    `values` gives the text of each `Value`, `load` of each operand; names of temporaries start with
    `prefix`. A node that occurs twice is computed once. Raises ExpressionError.
    """
    names: dict[int, str] = {}
    temporaries: dict[str, str] = {}
    for node in _walk(graph):
        if isinstance(node, Value) and node.name not in values:
            given = ", ".join(values) or "none"
            raise ExpressionError(f"the graph needs value {node.name}; the template gives {given}")
        text = _text(node, names, values, load, f".to(tl.{wide})")
        if isinstance(node, Value | Constant):
            names[id(node)] = text
        else:
            names[id(node)] = temporaries.setdefault(text, f"{prefix}{len(temporaries)}")
    lines = [f"{name} = {text}" for text, name in temporaries.items()]
    return lines, names[id(graph)]


def _text(
    node: Pointwise,
    names: Mapping[int, str],
    values: Mapping[str, str],
    load: Callable[[str], str],
    widen: str,
) -> str:
    match node:
        case Value(name):
            return values[name]
        case Load(name):
            return load(name) + widen
        case Constant(value):
            return _number(value)
        case Cast(of, dtype):
            return f"{names[id(of)]}.to(tl.{dtype}){widen}"
        case Apply(function, args):
            return FUNCTIONS[function][1].format(*(names[id(arg)] for arg in args))
    raise ExpressionError(f"{type(node).__name__} is no node of a pointwise graph")


def _walk(graph: Pointwise) -> Iterator[Pointwise]:
    """Every node after what it is made of; a shared one once."""
    seen: set[int] = set()
    todo: list[tuple[Pointwise, bool]] = [(graph, False)]
    while todo:
        node, ready = todo.pop()
        if ready:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            todo.append((node, True))
            todo += [(part, False) for part in reversed(_parts(node))]


def _parts(node: Pointwise) -> tuple[Pointwise, ...]:
    if isinstance(node, Apply):
        return node.args
    return (node.of,) if isinstance(node, Cast) else ()


def _node(value: Pointwise | float) -> Pointwise:
    return value if isinstance(value, Pointwise) else Constant(float(value))


def _number(value: float) -> str:
    if value in (float("inf"), float("-inf")) or value != value:
        return f'float("{value}")'
    return repr(value)
