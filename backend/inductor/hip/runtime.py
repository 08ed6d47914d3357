"""The import of a compiled graph's code: a kernel from its source, through the code cache.

A graph may be compiled by one process and run by many, none of which has our hooks on. So this
imports no torch, and the source is part of the graph: a kernel missing from the cache is compiled
again.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Sequence

from backend.disk.layout import cache_dir
from backend.inductor.torch.versions import KERNELS_LOG
from backend.toolchain import code_cache
from backend.toolchain.target import parse_target


class LoadedKernel:
    """A loaded entry. Calling it starts the kernel; raises KernelError for an error code.

    The arguments are those of the C entry: addresses of tensors as numbers, sizes and strides, and
    at the end None, the address of the workspace or None, and the stream or None.
    """

    def __init__(
        self, library: code_cache.Library, entry: str, pointers: int, integers: int
    ) -> None:
        self._library = library
        self._name = entry
        self._pointers = pointers
        self._entry = library.entry(entry, code_cache.argtypes(pointers, integers))

    def __call__(self, *arguments: object) -> None:
        code = self._entry(*arguments)
        if code:
            self._library.check(self._name, code)

    def workspace_bytes(self, integers: Sequence[int]) -> int:
        """Return the workspace that a call with these sizes and runtime arguments needs."""
        size = ctypes.c_size_t(0)
        self(*[None] * self._pointers, *integers, ctypes.byref(size), None, None)
        return size.value


def log_kernel(source: str, kind: str = "ROCm") -> None:
    """Log the source of a graph's kernel where Inductor logs those of its own."""
    logging.getLogger(KERNELS_LOG).info("%s Kernel:\n%s", kind, source)


def load_kernel(
    source: str,
    *,
    entry: str,
    target: str,
    pointers: int,
    integers: int,
    alias: str = "",
    toolchain: str = "",
) -> LoadedKernel:
    """Return the kernel of `source`, which takes `pointers` tensors and `integers` numbers.

    Inductor's wrapper calls GPU kernels as `NAME.NAME(...)`; `alias` is that name. A library by
    `toolchain` is loaded without looking for a compiler. Raises the toolchain's errors if the
    kernel must be compiled and cannot be.
    """
    root = cache_dir()
    compiled = code_cache.compile(
        source, parse_target(target), cache_root=root, toolchain=toolchain
    )
    kernel = LoadedKernel(code_cache.load(compiled.path, root), entry, pointers, integers)
    if alias:
        log_kernel(source)
        setattr(kernel, alias, kernel)
    return kernel
