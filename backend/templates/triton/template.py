"""A Triton template: Jinja text that calls the hooks of a kernel."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import sympy

from backend.templates.triton.errors import HookError
from backend.templates.triton.kernel import Argument, TritonTemplateKernel
from backend.templates.triton.partial_render import PartialRender

_FOLDER = Path(__file__).parent


@functools.cache
def environment() -> jinja2.Environment:
    """A name that the template does not know is an error, never an empty text."""
    return jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        loader=jinja2.FileSystemLoader(_FOLDER),
        keep_trailing_newline=False,
    )


@dataclass(frozen=True, slots=True)
class RenderedKernel:
    """A jitted function as text, and what one needs to start it.

    `programs` is how many programs the one-dimensional grid has; `options` are Triton's launch
    options; `sizes` are the symbols behind the arguments of kind `size`, in order.
    """

    name: str
    text: str
    arguments: tuple[Argument, ...]
    sizes: tuple[sympy.Symbol, ...]
    programs: sympy.Expr
    options: Mapping[str, int]


class TritonTemplate:
    """One Jinja source by its name, rendered for many kernels."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self._template = environment().from_string(source)

    @classmethod
    def from_file(cls, name: str) -> TritonTemplate:
        """The template in `<name>.triton.jinja` beside this file."""
        return cls(name, (_FOLDER / f"{name}.triton.jinja").read_text())

    def render(self, kernel: TritonTemplateKernel, **variables: Any) -> PartialRender:
        """The text with its late hooks open, for a caller that still has something to fuse.

        Raises HookError for a name that neither the kernel nor `variables` give.
        """
        try:
            return kernel.render(self._template, **variables)
        except jinja2.UndefinedError as error:
            raise HookError(f"template {self.name}: {error}") from error

    def generate(
        self,
        kernel: TritonTemplateKernel,
        programs: sympy.Expr,
        options: Mapping[str, int],
        **variables: Any,
    ) -> RenderedKernel:
        """Render and fill every hook. Raises HookError, ExpressionError."""
        text = self.render(kernel, **variables).finalize_all()
        return RenderedKernel(
            kernel.name, text, kernel.arguments(), kernel.size_args, programs, dict(options)
        )
