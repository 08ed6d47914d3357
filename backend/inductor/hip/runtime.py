"""What the code of a compiled graph imports: a kernel from its source, by way of the code cache.

A graph may be compiled by one process and run by many, none of which has our hooks on. So this
imports no torch, and the source stands in the graph: what the cache lacks is compiled again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from backend.disk.layout import cache_dir
from backend.toolchain import code_cache
from backend.toolchain.target import CompileOptions, Headers, parse_target


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
        """The workspace that a call with these sizes and runtime arguments needs."""
        size = ctypes.c_size_t(0)
        self(*[None] * self._pointers, *integers, ctypes.byref(size), None, None)
        return size.value


def load_kernel(
    source: str,
    *,
    entry: str,
    target: str,
    pointers: int,
    integers: int,
    alias: str = "",
    toolchain: str = "",
    headers: Sequence[tuple[str, str]] = (),
    standard: str = "",
    flags: Sequence[str] = (),
) -> LoadedKernel:
    """The kernel of `source`, which takes `pointers` tensors and `integers` numbers.

    Inductor's wrapper calls kernels of GPUs as `NAME.NAME(...)`; `alias` is that name. What
    `toolchain` made of it is loaded without asking for a compiler. `headers` are folders and the
    hashes of what they have; the rest is as in `CompileOptions`. Raises what the toolchain raises
    where the kernel must be compiled and cannot be.
    """
    root, folders = cache_dir(), tuple(Headers(*given) for given in headers)
    options = CompileOptions(headers=folders, standard=standard, flags=tuple(flags))
    compiled = code_cache.compile(
        source, parse_target(target), options, cache_root=root, toolchain=toolchain
    )
    kernel = LoadedKernel(code_cache.load(compiled.path, root), entry, pointers, integers)
    if alias:
        setattr(kernel, alias, kernel)
    return kernel
