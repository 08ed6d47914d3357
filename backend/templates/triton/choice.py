"""A candidate in Triton: its config, its kernels, the module that contains them, its hash, and its
code objects.

A kernel is rendered from Jinja text that calls the hooks of `kernel`.

Code objects for an AMD arch can be compiled on any machine: Triton brings its own LLVM. `main` does
so in its own process, since a failing LLVM ends its process. It reads a pickled (choice, folder)
from stdin, which only its parent writes, prints on stdout why a choice cannot be compiled, and
exits with status 1; with 0 it prints `FOUND` if Triton's cache had everything.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import os
import pickle
import resource
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import sympy

from backend.errors import (
    ConfigError,
    HookError,
    TemplateError,
    TritonCompileError,
    TritonMissingError,
)
from backend.model.ops import ITEM_BYTES
from backend.templates.operand import Expr, Operand
from backend.templates.triton.kernel import (
    Argument,
    PartialRender,
    TritonTemplateKernel,
    print_size,
    symbols,
)
from backend.templates.triton.module_file import load_module, triton, write_source
from backend.toolchain.target import Target


@dataclass(frozen=True, slots=True, order=True)
class TritonGemmConfig:
    """A config; block sizes are in elements, `group_m` in rows of blocks.

    `matrix_instr_nonkdim` is the side of the matrix-core tile (0: Triton decides), `waves_per_eu` a
    hint for how many waves a SIMD should hold (0: none), `kpack` how many k-vectors one LDS read
    brings. `xcds` is the number of dies over which the hardware distributes programs (1: no remap).
    `split_k` programs share one output block; a second kernel adds their sums.
    """

    block_m: int
    block_n: int
    block_k: int
    group_m: int = 8
    num_warps: int = 4
    num_stages: int = 2
    matrix_instr_nonkdim: int = 16
    waves_per_eu: int = 0
    kpack: int = 1
    xcds: int = 1
    split_k: int = 1

    def __post_init__(self) -> None:
        for name in ("block_m", "block_n", "block_k"):
            if not _power_of_two(getattr(self, name)) or getattr(self, name) < 16:
                raise ConfigError(f"{name} is {getattr(self, name)}: a power of two from 16 on")
        if not _power_of_two(self.num_warps) or self.num_warps > 16:
            raise ConfigError(f"num_warps is {self.num_warps}: a power of two up to 16")
        if self.matrix_instr_nonkdim not in (0, 16, 32):
            raise ConfigError(f"matrix_instr_nonkdim is {self.matrix_instr_nonkdim}: 0, 16 or 32")
        if self.matrix_instr_nonkdim > min(self.block_m, self.block_n):
            raise ConfigError(
                f"a {self.matrix_instr_nonkdim} wide matrix tile is wider than the block"
            )
        if self.kpack not in (1, 2):
            raise ConfigError(f"kpack is {self.kpack}: 1 or 2")
        for name in ("group_m", "num_stages", "xcds", "split_k"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}: 1 or more")
        if self.waves_per_eu < 0:
            raise ConfigError(f"waves_per_eu is {self.waves_per_eu}: 0 or more")

    def options(self, arch: str) -> dict[str, int]:
        """Return Triton's compile and launch options; AMD's knobs only if Triton knows them."""
        common = {"num_warps": self.num_warps, "num_stages": self.num_stages}
        if not arch.startswith("gfx"):
            return common
        return common | {
            "matrix_instr_nonkdim": self.matrix_instr_nonkdim,
            "waves_per_eu": self.waves_per_eu,
            "kpack": self.kpack,
        }

    def defines(self) -> dict[str, int]:
        """Return the compile-time constants of the kernel's text."""
        return {
            "BLOCK_M": self.block_m,
            "BLOCK_N": self.block_n,
            "BLOCK_K": self.block_k,
            "GROUP_M": self.group_m,
            "NUM_XCDS": self.xcds,
            "SPLIT_K": self.split_k,
        }


def _power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


_FOLDER = Path(__file__).parent


@functools.cache
def _environment() -> jinja2.Environment:
    """Return Jinja's environment, in which an unknown name is an error, never an empty text."""
    return jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        loader=jinja2.FileSystemLoader(_FOLDER),
        keep_trailing_newline=False,
    )


@dataclass(frozen=True, slots=True)
class RenderedKernel:
    """A jitted function as text, and its launch parameters.

    `programs` is the number of programs of the one-dimensional grid; `options` are Triton's launch
    options; `sizes` are the symbols behind the arguments of kind `size`, in order.
    """

    name: str
    text: str
    arguments: tuple[Argument, ...]
    sizes: tuple[sympy.Symbol, ...]
    programs: sympy.Expr
    options: Mapping[str, int]


class TritonTemplate:
    """A Jinja source by its name, rendered for many kernels."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self._template = _environment().from_string(source)

    @classmethod
    def from_file(cls, name: str) -> TritonTemplate:
        """Return the template in `<name>.triton.jinja` beside this file."""
        return cls(name, (_FOLDER / f"{name}.triton.jinja").read_text())

    def render(self, kernel: TritonTemplateKernel, **variables: Any) -> PartialRender:
        """Render the text with its late hooks open, for a caller that will fuse more. Raises
        HookError for a name that neither the kernel nor `variables` give."""
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


@dataclass(frozen=True, slots=True)
class TritonChoice:
    """A choice. `source` is a Python module that needs only Triton. Its only entry is

        launch(*inputs, *extras, *outputs[, workspace], *sizes)

    with tensors by their first element, in the order of `inputs`, `extras` and `outputs`, which are
    operands' names, and integers for `sizes`. It starts `kernels` on the current stream and does
    not wait. If `workspace` is not None it takes a tensor of its dtype and of that many elements,
    whose content is arbitrary before and after. `limits` are sizes with the maximum of each.
    """

    name: str
    op: str
    arch: str
    config: TritonGemmConfig
    constants: tuple[tuple[str, str], ...]
    kernels: tuple[RenderedKernel, ...]
    source: str
    inputs: tuple[str, ...]
    extras: tuple[str, ...]
    outputs: tuple[str, ...]
    sizes: tuple[sympy.Symbol, ...]
    workspace: Operand | None = None
    limits: tuple[tuple[Expr, int], ...] = ()

    @property
    def workspace_bytes(self) -> sympy.Expr:
        """The workspace bytes, an expression of `sizes`; 0 if none is needed."""
        if self.workspace is None:
            return sympy.Integer(0)
        elements = math.prod(map(sympy.sympify, self.workspace.sizes), start=sympy.Integer(1))
        return elements * ITEM_BYTES[self.workspace.dtype]

    @property
    def sums(self) -> str:
        """The dtype of the workspace."""
        return "float32" if self.workspace is None else self.workspace.dtype

    @property
    def grid(self) -> tuple[sympy.Expr, int, int]:
        """The grid of the first kernel, in programs."""
        return self.kernels[0].programs, 1, 1

    @property
    def meta(self) -> dict[str, str]:
        """Every setting that distinguishes this choice from its rivals, by its usual name."""
        options = {name: str(value) for name, value in self.config.options(self.arch).items()}
        defines = {name: str(value) for name, value in self.config.defines().items()}
        return dict(sorted((dict(self.constants) | defines | options).items()))

    @property
    def description(self) -> str:
        """`KEY=VALUE, ...`, as Inductor prints a choice's configuration."""
        return ", ".join(f"{name}={value}" for name, value in self.meta.items())

    @property
    def info(self) -> dict[str, str | int]:
        """The logged properties of a Triton choice, under Inductor's keys."""
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
        """A hash that is the same on every machine of one arch; changes with the source."""
        text = "\n".join((self.op, self.arch, self.description, self.source))
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def module_text(
    kernels: tuple[RenderedKernel, ...], parameters: dict[tuple[str, str], str]
) -> tuple[str, tuple[sympy.Symbol, ...]]:
    """Return the module of a choice, and the symbols that `launch` takes after the tensors.

    `parameters` maps an argument's (kind, source) to the name of `launch`'s parameter; equal names
    are one parameter.
    """
    used = [s for k in kernels for s in (*k.sizes, *symbols(k.programs))]
    sizes = {symbol: f"ks{at}" for at, symbol in enumerate(dict.fromkeys(used))}

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
    text = _environment().get_template("module.py.jinja").render(kernels=shown, parameters=names)
    return text + "\n", tuple(sizes)


@dataclass(frozen=True, slots=True)
class CodeObject:
    """A compiled kernel. `lds` is bytes per program, which the file's own note lacks. `hsaco` is
    the binary for the GPU, `amdgcn` its assembly; `options` are the ones that Triton used."""

    kernel: str
    arch: str
    hsaco: bytes
    amdgcn: str
    lds: int
    threads: int
    options: dict[str, int]


def write_module(choice: TritonChoice, folder: Path) -> Path:
    """Write the choice's module to a file named by its hash; atomic."""
    return write_source(choice.hash.replace("-", "_"), choice.source, folder)


def compile_choice(choice: TritonChoice, folder: Path) -> tuple[CodeObject, ...]:
    """Compile every kernel of a choice for its arch, without a GPU.

    Pointers are assumed aligned to 16 bytes, as a launch of fresh tensors detects. Raises
    TritonMissingError, TritonCompileError.
    """
    module = load_module(write_module(choice, folder), choice.source)
    return tuple(
        _compile(choice, kernel, getattr(module, kernel.name)) for kernel in choice.kernels
    )


def _compile(choice: TritonChoice, kernel: RenderedKernel, function: Any) -> CodeObject:
    compiler = triton("triton.compiler")
    wave = Target("amdgpu", choice.arch).wave
    target = triton("triton.backends.compiler").GPUTarget("hip", choice.arch, wave)
    source = compiler.ASTSource(
        fn=function,
        signature={argument.name: argument.triton_type for argument in kernel.arguments},
        constexprs={},
        attrs=_attributes(kernel.arguments),
    )
    try:
        compiled = compiler.compile(source, target=target, options=dict(kernel.options))
    # Triton has no root exception: its passes raise RuntimeError, AssertionError and more.
    except Exception as error:
        lines = str(error).strip().splitlines()
        cause = lines[-1] if lines else type(error).__name__
        raise TritonCompileError(
            f"{choice.name} ({choice.description}): {kernel.name} for {choice.arch}: {cause}"
        ) from error
    return CodeObject(
        kernel=kernel.name,
        arch=choice.arch,
        hsaco=compiled.asm["hsaco"],
        amdgcn=compiled.asm["amdgcn"],
        lds=compiled.metadata.shared,
        threads=compiled.metadata.num_warps * compiled.metadata.warp_size,
        options={name: getattr(compiled.metadata, name) for name in kernel.options},
    )


def _attributes(arguments: tuple[Argument, ...]) -> dict[tuple[int], list[list[object]]]:
    """Return the pointer attributes that a launch would detect: the alignment and, with 32-bit
    offsets, that 31 bits of bytes reach everything, which buffer instructions need."""
    attributes: dict[tuple[int], list[list[object]]] = {}
    narrow = all(argument.triton_type != "i64" for argument in arguments)
    for at, argument in enumerate(arguments):
        if argument.triton_type.startswith("*"):
            aligned: list[list[object]] = [["tt.divisibility", 16]]
            attributes[at,] = [*aligned, ["tt.pointer_range", 32]] if narrow else aligned
    return attributes


COMPILE_SECONDS = 300
"""Seconds of processor time; the slowest of these kernels take a few. Seconds of the clock would
also count the wait for a processor, which is long at low priority on a busy machine."""
FOUND = "found"


def main() -> int:
    answer = os.dup(1)
    os.dup2(2, 1)  # keep Triton's output out of the answer
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    if most == resource.RLIM_INFINITY or most > COMPILE_SECONDS:
        resource.setrlimit(resource.RLIMIT_CPU, (COMPILE_SECONDS, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    choice, folder = pickle.load(sys.stdin.buffer)
    hits = _hits()
    try:
        compile_choice(choice, folder)
    except TemplateError as error:
        os.write(answer, str(error).encode())
        return 1
    if hits and all(hits):
        os.write(answer, FOUND.encode())
    return 0


def _hits() -> list[bool]:
    """Return a list that gets, for each compiled kernel, whether the cache had it, if reported."""
    hits: list[bool] = []
    with contextlib.suppress(TritonMissingError):
        triton("triton.knobs").compilation.listener = lambda **event: hits.append(
            event["cache_hit"]
        )
    return hits
