"""A kernel to compile: what a choice holds of it, and what makes it."""

from __future__ import annotations

from dataclasses import dataclass

from backend.disk.layout import cache_dir
from backend.inductor.benchmark.request import not_compiled, raise_known_failure
from backend.inductor.hip.runtime import Kernel, load_kernel
from backend.model.origin import kernel_hash
from backend.templates.errors import UncompiledError
from backend.toolchain import code_cache
from backend.toolchain.errors import ToolchainError
from backend.toolchain.target import parse_target


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """A kernel to compile and how it is called; all that `load_kernel` needs."""

    source: str
    entry: str
    target: str
    pointers: int
    integers: int
    toolchain: str = ""

    def load(self) -> Kernel:
        """Compile it or take it from the cache. Raises ChoiceError."""
        raise_known_failure(self)
        try:
            return load_kernel(
                self.source,
                entry=self.entry,
                target=self.target,
                pointers=self.pointers,
                integers=self.integers,
                toolchain=self.toolchain,
            )
        except ToolchainError as error:
            raise not_compiled(self, error) from error

    @property
    def hash_key(self) -> str:
        """The same wherever the same source is compiled for the same target."""
        return kernel_hash(self.source, self.entry, self.target)


def toolchain_for(source: str, target: str) -> str:
    """What the library of `source` is made by. Raises UncompiledError where there is no compiler
    and no library."""
    made = code_cache.toolchain(source, parse_target(target), cache_root=cache_dir())
    if made is None:
        raise UncompiledError(f"no compiler for {target}, and this kernel was not compiled before")
    return made
