"""A choice's module: run from its text, written for people; and whether Triton can run."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import linecache
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from backend.disk import trusted
from backend.errors import TritonCompileError, TritonMissingError

ENTRY = "launch"
"""The function of a module that is called."""

INTERPRETER = "interpreter"
"""The target of kernels that run on CPU tensors; any other is an arch."""

INTERPRET = "TRITON_INTERPRET"
"""Triton's own variable: kernels are interpreted, on CPU tensors."""


def interpreter_on(env: Mapping[str, str] = os.environ) -> bool:
    """Read the variable as `triton.knobs` does."""
    return env.get(INTERPRET, "").lower() in ("1", "true", "on", "yes", "y")


def write_source(name: str, source: str, folder: Path, root: Path | None = None) -> Path:
    """Write `source` as `<name>.py` to `folder`, in the cache dir `root` (default: itself), for
    people to read; atomic. Raises UnsafePath and OSError."""
    path = folder / f"{name}.py"
    with trusted.opened_folder(root or folder, folder, make=True) as below:
        if _content(path.name, below, len(source)) == source.encode():
            return path
        unfinished = f".{name}.{secrets.token_hex(4)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(unfinished, flags, 0o644, dir_fd=below), "wb") as file:
                file.write(source.encode())
            os.replace(unfinished, path.name, src_dir_fd=below, dst_dir_fd=below)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(unfinished, dir_fd=below)
            raise
    return path


def load_module(path: Path, source: str) -> ModuleType:
    """Return a choice's module, run from the text `source`, which `path` is the name of.

    Nothing from a disk is run, neither source nor bytecode; Triton, which looks up the lines of its
    kernels, also gets those of `source`. Raises TritonMissingError, TritonCompileError.
    """
    triton("triton")
    linecache.cache[str(path)] = len(source), None, source.splitlines(keepends=True), str(path)
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    try:
        code = compile(source, str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise TritonCompileError(f"{path} is not a Python module: {error}") from error
    exec(code, module.__dict__)  # the text came with the choice, or with the graph that calls it
    return module


def _content(name: str, folder: int, length: int) -> bytes | None:
    """Return a file's content, if the file may be the one of that length."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as file:
            return file.read(4 * length + 1)
    except OSError:
        return None


@functools.cache
def toolchain() -> str:
    """Return the name of Triton's version in the hash of a choice. Raises TritonMissingError."""
    return hashlib.sha256(str(triton("triton").__version__).encode()).hexdigest()[:16]


def triton(name: str) -> Any:
    """Return a module of Triton by its full name. Raises TritonMissingError."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise TritonMissingError(
            f"Triton cannot be imported ({error}): pip install 'triton>=3.5'"
        ) from error
