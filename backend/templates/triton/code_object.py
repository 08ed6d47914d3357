"""Code objects of a choice for an AMD arch, made on any machine: Triton brings its own LLVM.

`main` does it in a process of its own, since LLVM ends the one that it fails in. It reads a pickled
(choice, folder) from stdin, which only its parent writes, says on stdout why a choice cannot be
compiled, and ends with status 1.
"""

from __future__ import annotations

import os
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.templates.errors import TemplateError, TritonCompileError
from backend.templates.triton.choice import RenderedKernel, TritonChoice
from backend.templates.triton.kernel import Argument
from backend.templates.triton.module_file import load_module, triton, write_source
from backend.toolchain.target import Target


@dataclass(frozen=True, slots=True)
class CodeObject:
    """One compiled kernel. `lds` is bytes a program; the file's own note does not tell it.

    `hsaco` is what a GPU loads, `amdgcn` its assembly; `options` are those that Triton took.
    """

    kernel: str
    arch: str
    hsaco: bytes
    amdgcn: str
    lds: int
    threads: int
    options: dict[str, int]


def write_module(choice: TritonChoice, folder: Path) -> Path:
    """The choice's module as a file that is named by its hash; written at once or not at all."""
    return write_source(choice.hash.replace("-", "_"), choice.source, folder)


def compile_choice(choice: TritonChoice, folder: Path) -> tuple[CodeObject, ...]:
    """Compile every kernel of a choice for its arch. No GPU takes part.

    Pointers are taken to be aligned to 16 bytes, as a launch finds those of fresh tensors. Raises
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
        made = compiler.compile(source, target=target, options=dict(kernel.options))
    # Triton has no root exception: what its passes raise is RuntimeError, AssertionError and more.
    except Exception as error:
        lines = str(error).strip().splitlines()
        cause = lines[-1] if lines else type(error).__name__
        raise TritonCompileError(
            f"{choice.name} ({choice.description}): {kernel.name} for {choice.arch}: {cause}"
        ) from error
    return CodeObject(
        kernel=kernel.name,
        arch=choice.arch,
        hsaco=made.asm["hsaco"],
        amdgcn=made.asm["amdgcn"],
        lds=made.metadata.shared,
        threads=made.metadata.num_warps * made.metadata.warp_size,
        options={name: getattr(made.metadata, name) for name in kernel.options},
    )


def _attributes(arguments: tuple[Argument, ...]) -> dict[tuple[int], list[list[object]]]:
    """What a launch would tell Triton of its pointers: the alignment and, where offsets are 32 bits
    wide, that 31 bits of bytes reach everything, which buffer instructions need."""
    attributes: dict[tuple[int], list[list[object]]] = {}
    narrow = all(argument.triton_type != "i64" for argument in arguments)
    for at, argument in enumerate(arguments):
        if argument.triton_type.startswith("*"):
            known: list[list[object]] = [["tt.divisibility", 16]]
            attributes[at,] = [*known, ["tt.pointer_range", 32]] if narrow else known
    return attributes


def main() -> int:
    answer = os.dup(1)
    os.dup2(2, 1)  # what Triton prints is not an answer
    choice, folder = pickle.load(sys.stdin.buffer)
    try:
        compile_choice(choice, folder)
    except TemplateError as error:
        os.write(answer, str(error).encode())
        return 1
    return 0
