"""The import of a compiled graph's code that calls our Triton kernels. Imports no torch.

The module of a choice is part of the graph as text, and is run from there: a process without our
hooks, or with an empty store, has everything it needs. It is also written to a file, for people to
read.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from pathlib import Path

from backend.disk.layout import Layout, cache_dir
from backend.errors import StoreError, TritonError
from backend.inductor.hip.runtime import log_kernel
from backend.templates.triton.module_file import (
    ENTRY,
    INTERPRET,
    INTERPRETER,
    interpreter_on,
    load_module,
    write_source,
)


def store() -> Path:
    """Return the folder of the modules, in Inductor's cache dir."""
    return Layout(cache_dir()).triton


@functools.cache
def load_triton(source: str, *, name: str, target: str) -> Callable[..., None]:
    """Return the `launch` of a choice's module. Triton compiles at the first call, or has it in its
    cache.

    `name` is the choice's hash. Raises TritonMissingError, and TritonError if the graph was
    compiled for the interpreter and it is off, or vice versa.
    """
    if interpreter_on() != (target == INTERPRETER):
        setting = "1" if target == INTERPRETER else "0"
        raise TritonError(
            f"this graph calls a Triton kernel of rocm-tui for {target}: "
            f"set {INTERPRET}={setting}, or compile again"
        )
    log_kernel(source, "Triton")
    path = store() / f"{name.replace('-', '_')}.py"
    with contextlib.suppress(StoreError, OSError):  # it runs from its text anyway
        write_source(path.stem, source, store(), cache_dir())
    launch: Callable[..., None] = getattr(load_module(path, source), ENTRY)
    return launch
