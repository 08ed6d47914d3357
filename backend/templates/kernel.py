"""The object that a template sees as `kernel`: its signature, its sizes, and how to call it.

The C ABI: `int NAME(inputs, outputs, int sizes and strides, runtime arguments,
size_t* workspace_size, uint8_t* workspace, hipStream_t stream)`. It returns 0 or HIP's error code.
With `workspace_size` not null it only stores there the bytes of workspace that the call would need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import sympy

from backend.templates.cexpr import cexpr
from backend.templates.errors import RenderError
from backend.templates.operand import ArgInfo, Expr, Operand, SizeArg

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
            raise RenderError(f"input_reorder {list(order)} is no order of {len(inputs)} inputs")
        for index in order:
            if (operand := inputs[index]) is not None:
                self._add("input", operand.name, f"const {operand.cpp_type}*", operand)
        for operand in outputs:
            self._add("output", operand.name, f"{operand.cpp_type}*", operand)
        for size in size_args:
            self._add("size", size.name, "int", size.value)
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
