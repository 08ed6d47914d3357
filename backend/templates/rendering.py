"""From a problem and a config to C++: one entry, its call arguments and its workspace; and the
object that a template sees as `kernel`: its signature, its sizes, and its call.

Sizes are integer expressions of sympy, printed as C++.

The C ABI: `int NAME(inputs, outputs, sizes and strides, runtime arguments, size_t* workspace_size,
uint8_t* workspace, hipStream_t stream)`; every number is an `int64_t`. It returns 0 or HIP's error
code. If `workspace_size` is not null, it only stores there the workspace bytes that the call needs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jinja2
import sympy
from sympy.printing.printer import Printer

from backend.counted import counted
from backend.errors import ConfigError, RenderError
from backend.templates.config import UNITS, Config, DirectConfig, GemmConfig, SkinnyConfig
from backend.templates.convolution import ConvProblem, one_launch
from backend.templates.legality import config_defect, lds_bytes, takes_boxes
from backend.templates.operand import LARGEST_SIZE, ArgInfo, DType, Expr, Operand, SizeArg
from backend.templates.problem import GemmProblem, GroupedProblem, Sizes, canonical


def cexpr(expr: Expr) -> str:
    """Return C++ of an integer expression, in `int64_t`; division rounds down, as in Python.

    Inductor's own functions (`FloorDiv`, `ModularIndexing`, ...) are known by name. Raises
    RenderError for anything else.
    """
    return str(_IntegerPrinter().doprint(sympy.sympify(expr)))


def _modulo(over: str, under: str) -> str:
    """Return the modulo with the sign of the divisor; C++'s has that of the dividend."""
    return f"(({over} % {under} + {under}) % {under})"


def _floor_div(over: str, under: str) -> str:
    return f"(({over} - {_modulo(over, under)}) / {under})"


def _fold(comparison: str, texts: Iterable[str]) -> str:
    """Return the minimum or the maximum."""
    return functools.reduce(lambda a, b: f"({a} {comparison} {b} ? {a} : {b})", texts)


class _IntegerPrinter(Printer):  # type: ignore[misc]
    """A printer that puts every compound in parentheses: only compilers read the text."""

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
    """An argument of a call, without the tail. `value` is the operand of an input or output, the
    expression of a size, or this choice's number for a runtime argument."""

    kind: Literal["input", "output", "size", "runtime"]
    name: str
    ty: str
    value: Operand | Expr


class TemplateKernel:
    """A kernel while it is rendered. `def_kernel` must come first. `runtime_values` has one value
    for each of `runtime_args`; they are not part of the source."""

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
        """Return the entry's signature, without its body.

        `input_reorder` is the caller's order of inputs: a template's [X, W, Bias] that is called
        with [Bias, X, W] has [2, 0, 1]. An absent input is None.
        """
        order = range(len(inputs)) if input_reorder is None else input_reorder
        if sorted(order) != list(range(len(inputs))):
            inputs_text = counted(len(inputs), "input")
            raise RenderError(f"input_reorder {list(order)} is not an order of {inputs_text}")
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
        """The whole signature, including the tail."""
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
        """Return the parameter of this operand; None for an absent one."""
        names = {arg.name for arg in self._args if arg.kind in ("input", "output")}
        return operand.name if operand is not None and operand.name in names else None

    def check_not_null(self, operand: Operand | None) -> str:
        """Return a statement that refuses a null pointer for an operand that has elements."""
        name = self.arg_name(operand)
        if operand is None or name is None:
            return ""
        count = self.size(operand, 0, -1)
        return f"if ({name} == nullptr && {count} > 0) return hipErrorInvalidValue;"

    def size(
        self, operand: Operand | None, start: int, end: int | None = None, default: int = 0
    ) -> str:
        """Return C++ of a size, or of the product of the sizes `start` to `end`, inclusive."""
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
        """Return C++ of a stride in elements."""
        if operand is None:
            return str(default)
        dim = _dim(dim, len(operand.strides))
        return self._bound(self._strides, operand, dim, operand.strides[dim])

    def _bound(
        self, names: dict[tuple[str, int], str], operand: Operand, dim: int, expr: Expr
    ) -> str:
        """Return the argument's name if there is one, so that one binary serves every value."""
        for key in ((operand.name, dim), (operand.name, dim - len(operand.sizes))):
            if key in names:
                return f"int64_t{{{names[key]}}}"
        return cexpr(self._rename(sympy.sympify(expr)))

    def _rename(self, expr: sympy.Expr) -> sympy.Expr:
        """Return the expression with the caller's symbols replaced by the size arguments."""
        sizes = [arg for arg in self._args if arg.kind == "size"]
        arguments = {arg.value: sympy.Symbol(arg.name) for arg in reversed(sizes)}
        renamed = expr.xreplace({k: v for k, v in arguments.items() if isinstance(k, sympy.Symbol)})
        unknown = renamed.free_symbols - {sympy.Symbol(arg.name) for arg in self._args}
        if unknown:
            raise RenderError(
                f"no argument of {self.name} has the value of {min(map(str, unknown))}"
            )
        return renamed


def _dim(index: int, rank: int) -> int:
    dim = index + rank if index < 0 else index
    if not 0 <= dim < rank:
        raise RenderError(f"dimension {index} of a {rank}-dimensional operand")
    return dim


RUNTIME_ARGS = (ArgInfo("split_k", "int64_t"),)
"""The runtime arguments of every template."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A source with the entry `name`. `args` are those of its signature, without the tail. Two
    configs that differ only in runtime arguments have the same source."""

    name: str
    source: str
    args: tuple[CallArg, ...]
    problem: GemmProblem
    config: Any

    def workspace_bytes(self, sizes: Sizes, split_k: int | None = None) -> int:
        """Return the value stored in `workspace_size`; `split_k` is the config's if None."""
        split = self.config.split_k if split_k is None else split_k
        return workspace_bytes(self.problem, self.config, sizes, split)


def workspace_bytes(problem: GemmProblem, config: Config, sizes: Sizes, split_k: int) -> int:
    """Return the bytes of partial sums: none without a split. The entry computes the same."""
    parts = split_parts(config, sizes, split_k)
    if parts == 1:
        return 0
    rows, cols = (sizes.n, sizes.m) if problem.flipped else (sizes.m, sizes.n)
    return problem.acc_bytes * parts * sizes.batch * rows * -(-cols // 8) * 8


def split_parts(config: Config, sizes: Sizes, split_k: int) -> int:
    """Return the actual number of parts of K: at most its number of tiles of `block_k`."""
    if isinstance(config, DirectConfig):
        return 1
    block_k = config.block_k if isinstance(config, GemmConfig) else SKINNY_SPLIT_UNIT
    return max(1, min(split_k, -(-sizes.k // block_k)))


SKINNY_SPLIT_UNIT = 256
"""The minimum K of a part of a skinny product."""


@functools.cache
def jinja_environment(folder: Path = Path(__file__).parent) -> jinja2.Environment:
    """Return the templates of a folder. An undefined name is an error, not an empty text."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def render(
    problem: GemmProblem,
    config: Config,
    name: str,
    kernel: TemplateKernel | None = None,
    input_reorder: Sequence[int] | None = None,
) -> Rendered:
    """Render the template that computes a problem by a config. `kernel` replaces the default one,
    for a caller with a more specific one. Raises ConfigError if the config does not fit."""
    if (defect := config_defect(config, problem)) is not None:
        raise ConfigError(f"{config.description}: {defect}")
    kernel = kernel or TemplateKernel(name, RUNTIME_ARGS, (config.split_k,))
    template = _template_of(problem, config)
    if not isinstance(config, SkinnyConfig) and template in _WHOLE:
        kernel.limit(one_launch(problem, config))
    source = (
        jinja_environment()
        .get_template(f"{template}.hip.jinja")
        .render(
            kernel=kernel,
            problem=problem,
            form=canonical(problem),
            config=config.binary,
            unit=UNITS.get(config.unit),
            lds_bytes=lds_bytes(config, problem),
            boxes=isinstance(config, GemmConfig) and takes_boxes(config, problem),
            input_reorder=input_reorder,
            skinny_split_unit=SKINNY_SPLIT_UNIT,
            largest_size=LARGEST_SIZE,
            wgmma_types=_WGMMA_TYPES,
            literal=functools.partial(literal, problem.acc),
        )
    )
    return Rendered(kernel.name, source, kernel.call_args(), problem, config)


_WHOLE = ("conv", "grouped", "direct")
"""Templates whose work must fit one launch."""


def _template_of(problem: GemmProblem, config: Config) -> str:
    if isinstance(config, DirectConfig):
        return "direct"
    if isinstance(config, SkinnyConfig):
        ring = config.stages > 1
        return "skinny_ring" if ring else "skinny" if config.unit == "fma" else "skinny_matrix"
    if isinstance(problem, ConvProblem | GroupedProblem):
        return "conv" if isinstance(problem, ConvProblem) else "grouped"
    if config.unit == "wgmma":
        return "boxes" if takes_boxes(config, problem) else "warpgroup"
    if config.pipelined:
        return "pipeline_f64" if problem.a.dtype == "float64" else "pipeline"
    return "gemm"


_WGMMA_TYPES = {
    "float16": "f32.f16.f16",
    "bfloat16": "f32.bf16.bf16",
    "int8": "s32.s8.s8",
    "float8_e4m3fn": "f32.e4m3.e4m3",
    "float8_e5m2": "f32.e5m2.e5m2",
}
"""PTX's names of wgmma's types of sums and factors."""


def literal(dtype: DType, value: float) -> str:
    """Return C++ of a factor with the same bits as `value` rounded to fp32, or to fp64."""
    return float(value).hex() + ("" if dtype == "float64" else "f")
