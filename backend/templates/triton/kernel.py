"""The hooks that a Triton template calls while it is rendered, and the arguments they add.

The arguments of a kernel are at its top, but are complete only after the rest is rendered: a
template leaves a mark there, which is replaced at the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import jinja2
import sympy
from sympy.printing.printer import Printer

from backend.counted import counted
from backend.errors import ExpressionError, HookError
from backend.templates.expressions import TRITON_VALUE, ChainStep, in_triton
from backend.templates.fusion import Access, Epilogue, FactorSource, Prologue
from backend.templates.operand import Expr, Operand

_MARK = re.compile(r"@@([A-Z][A-Z0-9_]*)@@")


def mark(name: str) -> str:
    """Return the placeholder of hook `name`. No Python source contains `@@`."""
    return f"@@{name}@@"


class PartialRender:
    """A rendered text and the hooks of its marks, each filled exactly once.

    Hooks are filled in the order of `hooks`, which need not be the order in the text. A hook's text
    is never searched for marks. Its lines after the first get the indentation of the mark. Raises
    HookError if marks and hooks do not match one to one.
    """

    def __init__(self, text: str, hooks: Mapping[str, Callable[[], str]]) -> None:
        pieces = _MARK.split(text)
        self._fixed = pieces[::2]
        self._names = pieces[1::2]
        self._hooks = dict(hooks)
        self._filled: dict[str, str] = {}
        for name in self._names:
            if name not in self._hooks:
                raise HookError(f"the template has a mark {mark(name)} that no hook fills")
            if self._names.count(name) > 1:
                raise HookError(f"the template has {mark(name)} more than once")
        for name in self._hooks:
            if name not in self._names:
                raise HookError(f"hook {name} has no mark in the template: its text would be lost")

    @property
    def open_hooks(self) -> tuple[str, ...]:
        """Hooks still to be filled, in the order in which `finalize_all` fills them."""
        return tuple(name for name in self._hooks if name not in self._filled)

    def finalize_hook(self, name: str) -> None:
        """Fill one hook now. Raises HookError if it is unknown or was filled before."""
        if name not in self._hooks:
            names = ", ".join(self._hooks) or "none"
            raise HookError(f"there is no hook {name}; hooks here: {names}")
        if name in self._filled:
            raise HookError(f"hook {name} was filled before; a hook is filled once")
        self._filled[name] = self._hooks[name]()

    def finalize_all(self) -> str:
        """Fill every hook that is still open and return the text."""
        for name in self.open_hooks:
            self.finalize_hook(name)
        return self.text()

    def text(self) -> str:
        """The finished text. Raises HookError while a hook is open."""
        if self.open_hooks:
            raise HookError(f"hooks not filled yet: {', '.join(self.open_hooks)}")
        out = self._fixed[0]
        for name, fixed in zip(self._names, self._fixed[1:], strict=True):
            out += _indented(self._filled[name], column=_indent_of(out)) + fixed
        return out


def _indent_of(text: str) -> str:
    line = text[text.rfind("\n") + 1 :]
    return line if not line.strip() else ""


def _indented(text: str, column: str) -> str:
    first, *rest = text.split("\n")
    return "\n".join([first, *(column + line if line else line for line in rest)])


ArgumentKind = Literal["input", "extra", "output", "size"]


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter of the kernel. `source` is the name of the operand that is passed, or for a size
    the symbol's. `triton_type` is as in Triton's signatures: `*fp16`, `i32`."""

    name: str
    kind: ArgumentKind
    source: str
    triton_type: str


class TritonTemplateKernel:
    """The state of one rendering: the names of the inputs, and the required sizes and extras.

    `inputs` are taken in order by `def_kernel`. `output` has the shape, and is stored unless the
    epilogue has other stores. `prologues` are of inputs by the name that `def_kernel` gives: such
    an input is computed, and its sources are passed. Loads of an epilogue or a prologue and
    symbolic sizes become arguments only when something uses them, so the signature is written last.
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[Operand],
        output: Operand,
        *,
        epilogue: Epilogue | None,
        prologues: Mapping[str, Prologue] = MappingProxyType({}),
        defines: Mapping[str, object] = MappingProxyType({}),
        index_dtype: Literal["int32", "int64"] = "int32",
    ) -> None:
        self.name = name
        self.output = output
        self._inputs = tuple(inputs)
        self._epilogue = epilogue
        self._prologues = prologues
        self._defines = dict(defines)
        self._index_dtype = index_dtype
        self._named: dict[str, Operand] = {}
        self._accesses: list[Argument] = []
        self._sizes: dict[sympy.Symbol, str] = {}
        self._hooks: dict[str, Callable[[], str]] = {}

    def render(self, template: jinja2.Template, **variables: Any) -> PartialRender:
        """Render the template; marks stay for the signature and the store. The signature is the
        last hook, because the others may add arguments."""
        text = template.render(**self.environment(), **variables)
        signature = self._hooks.pop("DEF_KERNEL", None)
        if signature is None:
            raise HookError(f"the template of {self.name} never calls def_kernel")
        return PartialRender(text, self._hooks | {"DEF_KERNEL": signature})

    def environment(self) -> dict[str, Callable[..., str]]:
        """The hooks by their names in templates."""
        return {
            "def_kernel": self.def_kernel,
            "size": self.size,
            "stride": self.stride,
            "make_load": self.make_load,
            "load_factor": self.load_factor,
            "store_output": self.store_output,
        }

    def def_kernel(self, *names: str) -> str:
        """Name the inputs, in order, and mark the place of the signature."""
        if len(names) != len(self._inputs):
            raise HookError(
                f"def_kernel names {counted(len(names), 'input')}; "
                f"{self.name} has {len(self._inputs)}"
            )
        self._named = dict(zip(names, self._inputs, strict=True))
        return self._later("DEF_KERNEL", self._signature)

    def size(self, name: str | None, index: int) -> str:
        """Return the size of an input, or of the output for None; a symbol becomes an argument. It
        is at most `LARGEST_SIZE`, so the grid is computed in 32 bits."""
        text = self.expression(self._dimension(name, "sizes", index))
        return f"tl.cast({text}, tl.int32)" if "tl.cast" in text else text

    def stride(self, name: str | None, index: int) -> str:
        """Return the stride of an input, or of the output for None, in elements."""
        return self.expression(self._dimension(name, "strides", index))

    def make_load(self, name: str, indices: Sequence[str], mask: str | None) -> str:
        """Return the text that loads an input at `indices`, or 0 where `mask` is false."""
        return self._load(name, self._tensor(name), indices, mask)

    def load_factor(
        self, name: str, indices: Sequence[str], line: str, k: str, mask: str | None, indent: int
    ) -> str:
        """Return statements that load or compute the factor `name` into its lower-case name, 0
        where `mask` is false. `line` and `k` are its positions."""
        to, prologue = name.lower(), self._prologues.get(name)
        if prologue is None:
            return f"{to} = {self.make_load(name, indices, mask)}"
        sources = {source.name: source for source in prologue.sources}

        def read(step: ChainStep) -> str:
            if step.function == "value":
                what, _, rest = step.text.partition(" ")
                return f"({line if what == 'line' else k} {rest}).to(tl.int32)"
            return self._source(sources[step.text], line, k, mask)

        lines = in_triton(prologue.steps, read, f"{to}_")
        value = f"{to}_{prologue.result}"
        value = f"tl.where({mask}, {value}, 0.0)" if mask else value
        lines.append(f"{to} = {value}.to(tl.{self._tensor(name).dtype})")
        return ("\n" + " " * indent).join(lines)

    def _source(self, source: FactorSource, line: str, k: str, mask: str | None) -> str:
        """Return the load of a factor's source at (batch, line, k)."""
        operand, name = source.operand, f"in_{source.name}"
        argument = Argument(name, "extra", source.name, _pointer(operand.dtype))
        if argument not in self._accesses:
            self._accesses.append(argument)
        places = [
            f"({at} % {period})" if period else at
            for at, period in zip((line, k), source.periods, strict=True)
        ]
        if source.group > 1:
            places[1] = f"({places[1]} // {source.group})"
        guard = f", mask={mask}, other=0" if mask else ""
        offset = self._offset(source.name, operand.strides, ("batch", *places))
        return f"tl.load({name} + ({offset}){guard})"

    def store_output(self, indices: Sequence[str], value: str, mask: str | None) -> str:
        """Mark where the output, or the epilogue's result for `value`, is stored."""

        def body() -> str:
            if self._epilogue is not None:
                return self._finish(self._epilogue, indices, value, mask)
            self._accesses.append(
                Argument("out", "output", self.output.name, _pointer(self.output.dtype))
            )
            dtype = self.output.dtype
            return self._store("out", dtype, _strides(self.output), indices, value, mask)

        return self._later("STORE_OUTPUT", body)

    def _finish(
        self, epilogue: Epilogue, indices: Sequence[str], value: str, mask: str | None
    ) -> str:
        loads = {access.name: access for access in epilogue.loads}

        def read(step: ChainStep) -> str:
            if step.function == "value":
                return value
            access, name = loads[step.text], f"in_{step.text}"
            self._accesses.append(Argument(name, "extra", access.name, _pointer(access.dtype)))
            return self._load(name, access, indices, mask)

        lines = in_triton(epilogue.steps, read, "fused_")
        for store in epilogue.stores:
            to = store.to
            name = "out" if to.name == self.output.name else f"out_{to.name}"
            self._accesses.append(Argument(name, "output", to.name, _pointer(to.dtype)))
            result = f"fused_{store.step}"
            lines.append(self._store(name, to.dtype, to.strides, indices, result, mask))
        return "\n".join(lines)

    def _store(
        self,
        pointer: str,
        dtype: str,
        strides: Sequence[Expr],
        indices: Sequence[str],
        value: str,
        mask: str | None,
    ) -> str:
        guard = f", mask={mask}" if mask else ""
        offset = self._offset(pointer, strides, indices)
        stored = TRITON_VALUE.get(dtype, f"tl.{dtype}")
        return f"tl.store({pointer} + ({offset}), {value}.to({stored}){guard})"

    def expression(self, size: Expr) -> str:
        """Return the text of a size; its symbols become arguments.

        Triton chooses an argument's width by its value. So if offsets take 64 bits, expressions of
        several arguments are computed in 64 bits.
        """
        for symbol in symbols(size):
            self._sizes.setdefault(symbol, f"ks{len(self._sizes)}")
        if self._index_dtype == "int32" or isinstance(size, (int, sympy.Symbol)):
            return print_size(size, self._sizes.__getitem__)
        return print_size(size, lambda symbol: f"tl.cast({self._sizes[symbol]}, INDEX_DTYPE)")

    def arguments(self) -> tuple[Argument, ...]:
        """Inputs, extras, outputs, sizes: complete once every hook but the signature is filled."""
        tensors = [
            Argument(f"arg_{name}", "input", operand.name, _pointer(operand.dtype))
            for name, operand in self._named.items()
            if name not in self._prologues
        ]
        index = "i64" if self._index_dtype == "int64" else "i32"
        sizes = [Argument(n, "size", str(s), index) for s, n in self._sizes.items()]
        return (*tensors, *self._accesses, *sizes)

    @property
    def size_args(self) -> tuple[sympy.Symbol, ...]:
        """The symbols behind the arguments of kind `size`, in their order."""
        return tuple(self._sizes)

    def _signature(self) -> str:
        names = ", ".join(argument.name for argument in self.arguments())
        constants = self._defines | {"INDEX_DTYPE": f"tl.{self._index_dtype}"}
        return "\n".join(
            [
                "@triton.jit",
                f"def {self.name}({names}):",
                *(f"    {name}: tl.constexpr = {value}" for name, value in constants.items()),
                *(f"    {a.name[4:]} = {a.name}" for a in self.arguments() if a.kind == "input"),
            ]
        )

    def _load(
        self, pointer: str, tensor: Operand | Access, indices: Sequence[str], mask: str | None
    ) -> str:
        guard = f", mask={mask}, other=0.0" if mask else ""
        offset = self._offset(tensor.name, _strides(tensor), indices)
        return f"tl.load({pointer} + ({offset}){guard})"

    def _offset(self, name: str, strides: Sequence[Expr], indices: Sequence[str]) -> str:
        if len(indices) != len(strides):
            raise HookError(f"{name} has {len(strides)} dimensions, not {len(indices)}")
        terms = []
        for index, stride in zip(indices, strides, strict=True):
            # With a stride of 0 the index stays, because it gives the block its shape.
            step = self.expression(stride)
            terms.append(index if step == "1" else f"{index} * {_paren(step)}")
        return " + ".join(terms)

    def _dimension(self, name: str | None, what: Literal["sizes", "strides"], index: int) -> Expr:
        tensor = self._tensor(name)
        dims: tuple[Expr, ...] = getattr(tensor, what)
        if not -len(dims) <= index < len(dims):
            raise HookError(f"{name or 'the output'} has {len(dims)} dimensions: no {what} {index}")
        return dims[index]

    def _tensor(self, name: str | None) -> Operand:
        if name is None:
            return self.output
        if name not in self._named:
            names = ", ".join(self._named) or "none before def_kernel"
            raise HookError(f"{self.name} has no input {name}; named inputs: {names}")
        return self._named[name]

    def _later(self, hook: str, body: Callable[[], str]) -> str:
        if hook in self._hooks:
            raise HookError(f"{self.name} calls the hook of {mark(hook)} twice")
        self._hooks[hook] = body
        return mark(hook)


def _strides(tensor: Operand | Access) -> tuple[Expr, ...]:
    """Return the strides; those of an operand's dimensions of size 1 are 0."""
    if isinstance(tensor, Access):
        return tensor.strides
    dims = zip(tensor.sizes, tensor.strides, strict=True)
    return tuple(0 if size == 1 else stride for size, stride in dims)


def _pointer(dtype: str) -> str:
    return f"*{DTYPES[dtype]}"


def _paren(text: str) -> str:
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def print_size(size: Expr, rename: Callable[[sympy.Symbol], str] = str) -> str:
    """Print integer arithmetic in one line; `rename` names the symbols. Raises ExpressionError."""
    return str(_SizePrinter(rename).doprint(sympy.sympify(size)))


def symbols(size: Expr) -> tuple[sympy.Symbol, ...]:
    """Return the symbols of a size, sorted by name."""
    return tuple(sorted(sympy.sympify(size).free_symbols, key=str))


def divides(divisor: int, size: Expr) -> bool:
    """Return whether `size` is certainly a multiple of `divisor` for all symbols' values."""
    return bool(sympy.Mod(_integers(sympy.sympify(size)), divisor) == 0)


def ceildiv(size: Expr, divisor: int) -> sympy.Expr:
    """Return how many blocks of `divisor` cover `size`."""
    return sympy.floor((sympy.sympify(size) + divisor - 1) / sympy.Integer(divisor))


def _integers(size: sympy.Expr) -> sympy.Expr:
    """Return the size with symbols that sympy knows to be integers, so that it can divide them."""
    return size.subs({s: sympy.Dummy(s.name, integer=True) for s in symbols(size)})


class _SizePrinter(Printer):  # type: ignore[misc]
    """A printer of expressions that are certainly integers. Functions are identified by class name,
    so that torch's own (`FloorDiv`, `ModularIndexing`, ...) need no import here."""

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
"""The dtypes that kernels read and write, with their names in Triton's signatures."""
