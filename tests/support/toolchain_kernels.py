"""What the toolchain's tests share: kernels by name, compiled once, called on tensors."""

from __future__ import annotations

import ctypes
import functools
import tempfile
from pathlib import Path
from typing import Any

import torch

from backend.toolchain import code_cache
from backend.toolchain.code_cache import Compiled, compile
from backend.toolchain.target import CompileOptions, Compiler, Target, cpu
from backend.toolchain.targets import find_compiler

KERNELS = Path(__file__).parent / "kernels"
NO_WORKSPACE = (None, None, None)


@functools.cache
def cache_root() -> Path:
    """A cache for all tests of this process."""
    folder = tempfile.TemporaryDirectory(prefix="toolchain-")
    cache_root.folder = folder  # type: ignore[attr-defined]
    return Path(folder.name)


def source(name: str) -> str:
    return (KERNELS / f"{name}.hip").read_text()


def build(
    name: str, target: Target | None = None, options: CompileOptions | None = None,
    compiler: Compiler | None = None,
) -> Compiled:  # fmt: skip
    return compile(
        source(name), target or cpu(), options or CompileOptions(), cache_root=cache_root(),
        compiler=compiler,
    )  # fmt: skip


def library(name: str, **defines: object) -> code_cache.Library:
    """The kernels of `tests/support/kernels/<name>.hip` on the CPU target."""
    options = CompileOptions(defines=tuple((key, str(value)) for key, value in defines.items()))
    return code_cache.load(build(name, options=options).path)


def call(lib: code_cache.Library, entry: str, *arguments: Any) -> int:
    """An entry's code; tensors go as pointers, numbers as ints, no workspace."""
    values: list[Any] = [
        ctypes.c_void_p(argument.data_ptr()) if isinstance(argument, torch.Tensor) else argument
        for argument in arguments
    ]
    return lib.entry(entry)(*values, *NO_WORKSPACE)


def available(target: Target) -> bool:
    return isinstance(find_compiler(target), Compiler)
