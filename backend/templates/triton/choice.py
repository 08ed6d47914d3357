"""A candidate: the module's text, how to call it, and the name under which its time is kept."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import sympy

from backend.templates.operand import ITEM_BYTES, Operand
from backend.templates.triton.config import TritonGemmConfig
from backend.templates.triton.expressions import print_size, symbols
from backend.templates.triton.kernel import Argument
from backend.templates.triton.template import RenderedKernel, environment


@dataclass(frozen=True, slots=True)
class TritonChoice:
    """`source` is a Python module that needs only Triton. Its one entry is

        launch(*inputs, *extras, out[, workspace], *sizes)

    with tensors by their first element, in the order of `inputs` (operands' names) and `extras`,
    and integers for `sizes`. It starts `kernels` on the current stream and does not wait. Where
    `workspace` is not None it takes a float32 tensor of that many elements, whose content is
    arbitrary before and after.
    """

    name: str
    op: str
    arch: str
    config: TritonGemmConfig
    facts: tuple[tuple[str, str], ...]
    kernels: tuple[RenderedKernel, ...]
    source: str
    inputs: tuple[str, ...]
    extras: tuple[str, ...]
    sizes: tuple[sympy.Symbol, ...]
    workspace: Operand | None = None

    @property
    def workspace_bytes(self) -> sympy.Expr:
        """An expression of `sizes`; 0 where none is needed."""
        if self.workspace is None:
            return sympy.Integer(0)
        elements = math.prod(map(sympy.sympify, self.workspace.sizes), start=sympy.Integer(1))
        return elements * ITEM_BYTES[self.workspace.dtype]

    @property
    def grid(self) -> tuple[sympy.Expr, int, int]:
        """Of the first kernel, in programs."""
        return self.kernels[0].programs, 1, 1

    @property
    def meta(self) -> dict[str, str]:
        """Every setting that tells this choice from its rivals, by the name that people know."""
        options = {name: str(value) for name, value in self.config.options(self.arch).items()}
        defines = {name: str(value) for name, value in self.config.defines().items()}
        return dict(sorted((dict(self.facts) | defines | options).items()))

    @property
    def description(self) -> str:
        """`KEY=VALUE, ...`, as Inductor prints a choice's configuration."""
        return ", ".join(f"{name}={value}" for name, value in self.meta.items())

    @property
    def info(self) -> dict[str, str | int]:
        """What is logged of a Triton choice, under the keys that Inductor uses."""
        config = self.config
        return {
            "backend": "Triton",
            "tile_shape": str((config.block_m, config.block_k, config.block_n)),
            "num_stages": config.num_stages,
            "num_warps": config.num_warps,
            "grid": str(self.grid),
            **self.meta,
        }

    @property
    def hash(self) -> str:
        """The same in every process and on every machine of one arch; changes with the source."""
        text = "\n".join((self.op, self.arch, self.description, self.source))
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def module_text(
    kernels: tuple[RenderedKernel, ...], parameters: dict[tuple[str, str], str]
) -> tuple[str, tuple[sympy.Symbol, ...]]:
    """The module of a choice, and the symbols that `launch` takes after the tensors.

    `parameters` says under which name `launch` gets what an argument's (kind, source) means; a name
    that comes twice is one parameter.
    """
    found = [s for k in kernels for s in (*k.sizes, *symbols(k.programs))]
    sizes = {symbol: f"ks{at}" for at, symbol in enumerate(dict.fromkeys(found))}

    def value(argument: Argument, kernel: RenderedKernel) -> str:
        if argument.kind != "size":
            return parameters[argument.kind, argument.source]
        return next(sizes[s] for s in kernel.sizes if str(s) == argument.source)

    shown = [
        {
            "name": kernel.name,
            "text": kernel.text,
            "programs": print_size(kernel.programs, sizes.__getitem__),
            "call": ", ".join(value(argument, kernel) for argument in kernel.arguments),
            "options": kernel.options,
        }
        for kernel in kernels
    ]
    names = ", ".join(dict.fromkeys([*parameters.values(), *sizes.values()]))
    text = environment().get_template("module.py.jinja").render(kernels=shown, parameters=names)
    return text + "\n", tuple(sizes)
