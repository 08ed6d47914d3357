"""What the kernel of a choice takes of its GPU, read from the code cache. Without torch.

A choice of ours is found with certainty: its hash is made of the source, the target and the config,
and the cache keeps the source and the target of every kernel. Nothing else is attributed.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from backend.cache import code
from backend.cache.code import CompiledKernel, read_file
from backend.errors import ConfigError
from backend.model.choice import Choice
from backend.model.origin import (
    any_toolchain,
    choice_hash,
    kernel_hash,
    kind_of,
    template_of,
    toolchain_of,
)
from backend.templates.config import Config, parse_template_config
from backend.toolchain import code_cache
from backend.toolchain.resources import (
    Occupancy,
    Resources,
    Unknown,
    from_content,
    occupancy,
    resources,
)
from backend.toolchain.target import Target, amdgpu, cuda

_SECOND_KERNEL = "reduce_parts"
"""What sums the parts of a split K: it takes little, and is not what the choice is."""
_ASKED = re.compile(r"^static_assert\(LDS_BYTES == (\d{1,7}), ", re.MULTILINE)
"""What a launch requests, unknown to compilers: sources that do so give the size and check it."""


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """What the main kernel takes. `occupancy` is None where the architecture is not known."""

    target: Target
    resources: Resources
    occupancy: Occupancy | None


class KernelResources:
    """Answers for one cache dir. It reads each kernel once; call it off the event loop."""

    def __init__(self, cache_root: Path) -> None:
        self._root = cache_root
        self._lock = threading.Lock()
        self._seen: set[Path] = set()
        self._kernels: dict[str, dict[str, list[tuple[Path, Target]]]] = {
            template: {} for template in ("gemm", "skinny", "conv", "direct", "grouped")
        }
        self._known: dict[str, ResourceUse] = {}
        self._stamp: tuple[tuple[Path, int], ...] = ()
        self._stock_known: dict[tuple[str, str], ResourceUse | Unknown | None] = {}

    def of(
        self, choices: Iterable[Choice], arch: str | None = None
    ) -> dict[str, ResourceUse | Unknown]:
        """By hash, for the choices that are ours, and for those of stock Triton that its cache has;
        `arch` is that of the session, which matters where it has several."""
        every = [choice for choice in choices if choice.hash]
        with self._lock:
            wanted = {c.hash or "": c for c in every if template_of(c)}
            if not wanted.keys() <= self._known.keys():
                self._look()
            answers = {hash_: self._one(hash_, choice) for hash_, choice in wanted.items()}
            stock = [c.hash or "" for c in every if kind_of(c.hash or "") == "triton"]
            return answers | self._stock(stock, (arch or "").partition(":")[0])

    def _stock(self, hashes: Iterable[str], arch: str) -> dict[str, ResourceUse | Unknown]:
        """Of kernels that Triton keeps. A look goes through all of its folders, so what it found is
        kept, and what it did not until something was compiled."""
        folders = code.folders_of(self._root)
        stamp = tuple((folder, _changed(folder)) for folder in folders)
        if stamp != self._stamp:
            self._stamp, self._stock_known = stamp, {}
        for hash_ in hashes:
            module = code.module_of(self._root, hash_)
            if (hash_, arch) not in self._stock_known and module is not None:
                self._stock_known[hash_, arch] = _of_arch(code.kernels_of(module, folders), arch)
        results = {hash_: self._stock_known.get((hash_, arch)) for hash_ in hashes}
        return {hash_: result for hash_, result in results.items() if result is not None}

    def source_of(self, choice: Choice) -> tuple[Target, str] | None:
        """What a choice that is ours was compiled from, and for what; None where that is gone."""
        with self._lock:
            self._look()
            with suppress(ConfigError):
                _, entries = self._entries(choice.hash or "", choice)
                return code_cache.source_of_entry(entries[0][0]) if entries else None
        return None

    def _look(self) -> None:
        """Take in what was compiled since the last look."""
        for entry in code_cache.entries(self._root):
            source_path = None if entry in self._seen else code_cache.source_of_entry(entry)
            if source_path is not None:
                target, source = source_path
                self._seen.add(entry)
                for template, kernels in self._kernels.items():
                    if (name := f"rocm_{template}") in source:
                        key = kernel_hash(source, name, str(target))
                        kernels.setdefault(key, []).append((entry, target))

    def _one(self, hash_: str, choice: Choice) -> ResourceUse | Unknown:
        if hash_ in self._known:
            return self._known[hash_]
        try:
            config, entries = self._entries(hash_, choice)
        except ConfigError:
            return Unknown("the config of the choice is unknown: its source has only the hash")
        if not entries:
            return Unknown(f"its kernel is not in the code cache below {self._root}")
        answers = {_measure(entry, target, config) for entry, target in entries}
        if len(answers) > 1:
            return Unknown("several compilers made it, and it takes different resources from each")
        answer = answers.pop()
        if isinstance(answer, ResourceUse):
            self._known[hash_] = answer
        return answer

    def _entries(self, hash_: str, choice: Choice) -> tuple[Config, list[tuple[Path, Target]]]:
        """Return its config and its entries in the code cache; of several compilers', that of the
        hash. Raises ConfigError."""
        template = template_of(choice)
        config = parse_template_config(template, choice.description)
        entries = [
            place
            for kernel, places in self._kernels[template].items()
            for place in places
            if choice_hash(template, kernel, config.description) == any_toolchain(hash_)
        ]
        matching = [
            place for place in entries if toolchain_of(hash_) == code_cache.made_by(place[0])
        ]
        return config, matching or entries


def _of_arch(kernels: Sequence[CompiledKernel], arch: str) -> ResourceUse | Unknown | None:
    """Return the use of the kernel for this arch, or of the only one; None where there is none."""
    meant = [kernel for kernel in kernels if kernel.arch == arch] or kernels
    if len(meant) > 1:
        names = ", ".join(kernel.arch for kernel in meant)
        return Unknown(f"Triton's cache has it for {names}, and no session has the one it ran on")
    return of_triton(meant[0]) if meant else None


def of_triton(kernel: CompiledKernel) -> ResourceUse | Unknown:
    """Return what Triton's kernel takes: all that an AMD code object says, else its LDS alone."""
    try:
        target = amdgpu(kernel.arch) if kernel.arch.startswith("gfx") else cuda(kernel.arch)
    except ValueError:
        return Unknown(f"{kernel.folder} is for an arch that is none")
    if target.kind == "cuda":
        return ResourceUse(target, Resources(kernel.name, lds=kernel.shared, wave=32), None)
    data = read_file(kernel.code_object)
    if data is None:
        return Unknown(f"cannot read {kernel.code_object}")
    resources = from_content(kernel.code_object, data)
    if isinstance(resources, Unknown):
        return resources
    # Its code object has no LDS: a launch of Triton's requests it.
    shared = 0 if resources[0].lds else kernel.shared or 0
    held = occupancy(target, resources[0], kernel.threads or 0, shared)
    return ResourceUse(target, _with_lds(resources[0], shared), held)


def _changed(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0


def _measure(entry: Path, target: Target, config: Config) -> ResourceUse | Unknown:
    compiled = code_cache.compiled(entry)
    if compiled is None:
        return Unknown(f"its kernel in the code cache is damaged: {entry}")
    try:
        kernels = resources(compiled)
    except OSError as error:
        return Unknown(f"cannot read {compiled.path}: {error.strerror}")
    if isinstance(kernels, Unknown):
        return kernels
    main = [kernel for kernel in kernels if _SECOND_KERNEL not in kernel.kernel]
    if len(main) != 1:
        return Unknown(f"{compiled.path} does not hold one main kernel")
    source = code_cache.source_of_entry(entry)
    asked = _ASKED.search(source[1]) if source else None
    shared = int(asked[1]) if asked else 0
    held = occupancy(target, main[0], config.waves * target.wave, shared)
    return ResourceUse(target, _with_lds(main[0], shared), held)


def _with_lds(taken: Resources, more: int) -> Resources:
    return replace(taken, lds=(taken.lds or 0) + more) if more else taken
