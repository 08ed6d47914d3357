"""A kernel to compile: what a choice holds of it, and what makes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from backend.disk.layout import code_root
from backend.inductor.benchmark.request import not_compiled, raise_known_failure
from backend.inductor.hip.runtime import Kernel, load_kernel
from backend.model.origin import kernel_hash
from backend.templates.errors import UncompiledError
from backend.toolchain import code_cache
from backend.toolchain.errors import ToolchainError
from backend.toolchain.target import Options, parse_target


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """A kernel to compile and how it is called; all that `load_kernel` needs. Of `options`, what is
    not in `how` is left as it is for every kernel."""

    source: str
    entry: str
    target: str
    pointers: int
    integers: int
    toolchain: str = ""
    options: Options = field(default_factory=Options)

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
                **how(self.options),
            )
        except ToolchainError as error:
            raise not_compiled(self, error) from error

    def compiled(self) -> bool:
        """Compile it and load nothing; whether the cache had it. Raises ToolchainErrors."""
        target, root = parse_target(self.target), code_root()
        options = self.options
        return code_cache.compile(self.source, target, options, cache_root=root).from_cache

    @property
    def hash_key(self) -> str:
        """The same wherever the same source is compiled for the same target."""
        return kernel_hash(self.source, self.entry, self.target)


def how(options: Options) -> dict[str, Any]:
    """The keywords of `load_kernel` that say the same; none for those of our templates."""
    headers = tuple((headers.folder, headers.digest) for headers in options.headers)
    given = {"headers": headers, "standard": options.standard, "flags": options.flags}
    return {name: value for name, value in given.items() if value}


def toolchain_for(source: str, target: str, options: Options = Options()) -> str:  # noqa: B008
    """What the library of `source` is made by. Raises UncompiledError where there is no compiler
    and no library."""
    made = code_cache.toolchain(source, parse_target(target), options, cache_root=code_root())
    if made is None:
        raise UncompiledError(f"no compiler for {target}, and this kernel was not compiled before")
    return made
