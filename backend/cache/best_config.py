"""The config that Inductor selected for one of its own Triton kernels: `*.best_config`.

    {"XBLOCK": 1024, "num_warps": 4, "num_stages": 1, "configs_hash": "...",
     "found_by_coordesc": false, "time_taken_ms": 105, "triton_cache_hash": "K4WQ..."}

Checked with torch 2.8 to 2.13 (`_inductor/runtime/autotune_cache.py`). The file is in the folder of
the kernel's file, which may contain other kernels; its name is a digest that depends on torch's own
source. The compiled config names the kernel's file, and is in Triton's cache under
`triton_cache_hash`; if that is missing, only one kernel of the folder may be possible.
`time_taken_ms` is the duration of tuning; neither the kernel's time nor its rivals are recorded:
`configs_hash` is a digest of the list of configs, constants, warps and stages of each, in the order
in which they are tried (`hash_configs` of `triton_heuristics.py`).
"""

from __future__ import annotations

import json
import keyword
import math
import os
import re
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from backend.cache import code
from backend.cache.code import read_text
from backend.cache.configs import described
from backend.counted import counted
from backend.disk.exchange import signature_of
from backend.disk.safe import load_json, read_bytes
from backend.errors import CacheUnreadable, brief
from backend.model import inductor_kernel
from backend.model.inductor_kernel import InductorKernel, comparable_config, is_digest

SUFFIX = ".best_config"
MAX_BYTES = 64 << 10
MAX_MEMBERS = 100
"""The maximum number of members; real files have about ten."""
MOST_BESIDE = 200
"""The maximum number of files examined in a folder."""
_FOLDER = re.compile(r"[a-z2-7]{2}\Z")
_OF_TUNING = ("configs_hash", "found_by_coordesc", "time_taken_ms", "triton_cache_hash")
_NOT_COMPARED = ("extra_options", "num_consumer_groups", "num_buffers_warp_spec")
"""Inductor stores these beside the constants, and does not compare them."""
_SETTLED_NS = 2_000_000_000
"""Nanoseconds after which a change has another time stamp, even with a coarse clock."""
_OF_AMD = frozenset(("waves_per_eu", "matrix_instr_nonkdim", "kpack"))
"""Constants of a config that are arguments of the compiler for AMD GPUs, not of the kernel."""
_CONSTANT = re.compile(r"\b(\w{1,60})\s*:\s*\Z")
_CONSTEXPR = "tl.constexpr"
_NEAR = 80
"""The number of preceding characters that contain the constant's name."""
_HEAD = 64 << 10
"""The number of characters that contain a kernel's arguments."""


@dataclass(frozen=True, slots=True)
class BestConfig:
    """The content of one file. `hash`, `name` and `text` are the config's; `seconds` is the
    duration of tuning, compiling included; `compiled` names the folder in Triton's cache."""

    hash: str
    name: str
    text: str
    constants: frozenset[str]
    configs_hash: str
    seconds: float | None
    compiled: str | None


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A file with a kernel that Inductor wrote, its text, and the parsed kernel."""

    path: Path
    text: str
    kernel: InductorKernel


def is_file(path: str | Path) -> bool:
    """Return whether a file has the name of a best config."""
    return str(path).endswith(SUFFIX)


def is_folder(name: str) -> bool:
    """Return whether a folder of a cache dir has the name of a folder with generated code."""
    return _FOLDER.match(name) is not None


def parse(path: Path, data: bytes) -> BestConfig:
    """Parse `data`, the content of `path`. Raises CacheUnreadable."""
    if len(data) > MAX_BYTES:
        raise CacheUnreadable(f"{path} has more than {MAX_BYTES >> 10} KiB; move it away")
    document = load_json(path, data)
    warps, stages = document.get("num_warps"), document.get("num_stages")
    digest = document.get("configs_hash")
    if type(warps) is not int or type(stages) is not int or not isinstance(digest, str):
        raise CacheUnreadable(f"{path} holds no config of a Triton kernel; move it away")
    constants = constants_of(document)
    if len(document) > MAX_MEMBERS or not all(map(_is_value, constants.values())):
        raise CacheUnreadable(f"{path} has a config that Inductor does not write; move it away")
    compiled = document.get("triton_cache_hash")
    hash, name, text = described(comparable_config(constants, warps, stages))
    return BestConfig(
        hash=hash,
        name=name,
        text=text,
        constants=frozenset(constants),
        configs_hash=digest,
        seconds=_seconds(document.get("time_taken_ms")),
        compiled=compiled if isinstance(compiled, str) and is_digest(compiled) else None,
    )


def constants_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constants of a file's config."""
    others = {"num_warps", "num_stages", *_OF_TUNING, *_NOT_COMPARED}
    return {name: value for name, value in document.items() if name not in others}


def _is_value(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (bool, int, str))


def _seconds(ms: object) -> float | None:
    return ms / 1000 if type(ms) is int and 0 <= ms < 1 << 40 else None


def read(path: Path) -> BestConfig:
    """Read one file. Raises CacheUnreadable."""
    return parse(path, read_bytes(path, MAX_BYTES))


class FolderKernels:
    """The kernels in a folder, read once for all best configs in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def source_of(self, path: Path, config: BestConfig) -> KernelSource:
        """Return the kernel of the file `path`. Raises CacheUnreadable if that is ambiguous."""
        sources = self._sources
        names_of_config = config.constants - _OF_AMD
        beside = [s for s, names in sources if names - _OF_AMD == names_of_config]
        beside = beside or [s for s, names in sources if names >= names_of_config]
        if len(beside) > 1 and config.compiled:
            modules = self._modules(config.compiled)
            beside = [s for s in beside if s.path.name in modules] or beside
        if len(beside) > 1:
            taken = self._taken(path)
            beside = [source for source in beside if source.path.name not in taken] or beside
        if len(beside) == 1:
            return beside[0]
        what = brief(str(path), 300)
        if not beside:
            raise CacheUnreadable(f"{what}: its kernel is not in the folder")
        raise CacheUnreadable(
            f"{what} may belong to any of {counted(len(beside), 'kernel')} in its folder, and "
            "Triton's cache no longer has the compiled kernel that would decide"
        )

    @cached_property
    def _sources(self) -> list[tuple[KernelSource, frozenset[str]]]:
        """The kernels that may be tuned, with the constants that each is compiled for."""
        sources = []
        for path in _listed(self.folder, ".py"):
            with suppress(OSError):
                status = path.lstat()
                source = _source(path, status.st_size, status.st_mtime_ns)
                sources += [(source, _constants_in(source.text))] if source else []
        return sources

    @cached_property
    def _compiled(self) -> dict[Path, frozenset[str]]:
        """The kernels' files of each best config in the folder, from Triton's cache."""
        modules: dict[Path, frozenset[str]] = {}
        for path in _listed(self.folder, SUFFIX):
            with suppress(CacheUnreadable):
                compiled = read(path).compiled
                modules[path] = self._modules(compiled) if compiled else frozenset()
        return modules

    @cached_property
    def _folders(self) -> list[Path]:
        return code.folders_of(self.folder.parent)

    def _taken(self, path: Path) -> frozenset[str]:
        """Return the files of kernels that other best configs belong to."""
        return frozenset[str]().union(*(m for p, m in self._compiled.items() if p != path))

    def _modules(self, compiled: str) -> frozenset[str]:
        """Return the source files of a folder in Triton's cache."""
        modules = (code.modules_of(folder / compiled) for folder in self._folders)
        return next((names for names in modules if names), frozenset())


def kernel_source_of(path: Path, config: BestConfig) -> KernelSource:
    """Return the kernel of the file `path`. Raises CacheUnreadable if that is ambiguous."""
    return FolderKernels(path.parent).source_of(path, config)


@lru_cache(maxsize=1024)
def _constants_in(text: str) -> frozenset[str]:
    """Return a kernel's constants; cached, because any change in a folder calls this again."""

    # Splitting first is ten times as fast as searching the whole text for names.
    before = text[:_HEAD].split(_CONSTEXPR)[:-1]
    return frozenset(match[1] for part in before if (match := _CONSTANT.search(part[-_NEAR:])))


@lru_cache(maxsize=1024)
def _source(path: Path, size: int, changed: int) -> KernelSource | None:
    """Parse a file, cached while it is unchanged."""
    text = read_text(path, inductor_kernel.MAX_SOURCE) or ""
    kernel = inductor_kernel.parse(text)
    return None if kernel is None else KernelSource(path, text, kernel)


def _listed(folder: Path, suffix: str) -> list[Path]:
    names: list[str] = []
    with suppress(OSError), os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.name.endswith(suffix)]
    return [folder / name for name in sorted(names)[:MOST_BESIDE]]


_DESCENT = re.compile(r"'coordinate_descent_tuning': (True|False)")


def descends(source: KernelSource) -> bool:
    """Return whether coordinate descent continues from a config that it did not find itself."""
    match = _DESCENT.search(source.text[:_HEAD])
    return match is not None and match[1] == "True"


def config_from_texts(texts: Mapping[str, str], hash: str) -> dict[str, Any] | None:
    """Return the members of the config with the hash `hash` from their texts as `described` writes
    them; None if they belong to another config."""
    members = {name: _value(text) for name, text in texts.items()}
    constants = {n: v for n, v in members.items() if n not in ("num_warps", "num_stages")}
    warps, stages = members.get("num_warps"), members.get("num_stages")
    if type(warps) is not int or type(stages) is not int:
        return None
    same = described(comparable_config(constants, warps, stages))[0] == hash
    return members if same and is_plain(members) else None


_WORD = re.compile(
    r"ieee|none|tf32(?:x3)?|bf16x[369]|\.c[agvs]|\.w[bt]|evict_(?:first|last|normal)|rt(?:ne|z)"
    r"|(?:torch\.|tl\.)?(?:b?float|u?int|fp|bf|[iu])\d{1,2}(?:e\dm\d\w{0,6}|e\dnv|x\d)?",
    re.ASCII,
)
"""The words of Triton's own options: precisions, types, cache and eviction policies, rounding."""
_NAME = re.compile(r"[A-Za-z]\w{0,59}", re.ASCII)


def is_plain(members: Mapping[str, Any]) -> bool:
    """Return whether names and values are safe in a program's source: Inductor pastes a config's
    constants into the Python text of its launcher and executes it."""
    names = all(_NAME.fullmatch(name) and not keyword.iskeyword(name) for name in members)
    return names and all(map(_is_plain_value, members.values()))


def _is_plain_value(value: object) -> bool:
    return _WORD.fullmatch(value) is not None if isinstance(value, str) else _is_value(value)


def check_plain(path: Path, data: bytes) -> None:
    """Raise CacheUnreadable for a config that a program must not execute."""
    odd = {n: v for n, v in constants_of(load_json(path, data)).items() if not is_plain({n: v})}
    if odd:
        name, value = next(iter(odd.items()))
        raise CacheUnreadable(
            f"{path} sets {brief(name, 40)!r} to {brief(str(value), 60)!r}, which PyTorch would "
            "execute as source; move it away"
        )


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def with_config(path: Path, data: bytes, config: Mapping[str, Any], found: bool) -> bytes:
    """Return the content of a file with another config, as Inductor writes it. With `found` it is
    marked as found by coordinate descent, which then does not continue. Raises CacheUnreadable."""
    parse(path, data)
    check_plain(path, data)
    document = load_json(path, data)
    old = constants_of(document)
    new = {name: config.get(name, value) for name, value in document.items()}
    kept = {name: value for name, value in new.items() if name in config or name not in old}
    if found:
        kept["found_by_coordesc"] = True
    added = {name: value for name, value in config.items() if name not in kept}
    return json.dumps({**added, **kept}).encode()


class KernelFiles:
    """The best config files in a cache dir, by kernel; unchanged files are read once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folders: dict[str, tuple[int, tuple[Path, ...]]] = {}
        self._kernels: dict[Path, tuple[object, KernelSource | None]] = {}

    def of(self, op: str, inputs: str) -> list[tuple[Path, KernelSource]]:
        """Return the files of a kernel, with the kernel's source."""
        files = []
        for path in self._all():
            source = self._source(path)
            if source and (source.kernel.op, source.kernel.inputs) == (op, inputs):
                files.append((path, source))
        return files

    def lists(self, op: str, inputs: str) -> tuple[str, ...]:
        """Return the digests of the lists of configs that a kernel was tuned with."""
        digests: set[str] = set()
        for path, _ in self.of(op, inputs):
            with suppress(CacheUnreadable):
                digests.add(read(path).configs_hash)
        return tuple(sorted(digests))

    def _all(self) -> list[Path]:
        paths: list[Path] = []
        with suppress(OSError), os.scandir(self._root) as entries:
            for name in sorted(entry.name for entry in entries if is_folder(entry.name)):
                paths += self._in(self._root / name)
        return paths

    def _in(self, folder: Path) -> tuple[Path, ...]:
        try:
            status = folder.lstat()
        except OSError:
            return ()
        cached = self._folders.get(folder.name)
        if cached is None or cached[0] != status.st_mtime_ns:
            paths = tuple(_listed(folder, SUFFIX)) if stat.S_ISDIR(status.st_mode) else ()
            settled = time.time_ns() - status.st_mtime_ns > _SETTLED_NS
            cached = status.st_mtime_ns if settled else 0, paths
            self._folders[folder.name] = cached
        return cached[1]

    def _source(self, path: Path) -> KernelSource | None:
        """Return a file's kernel, which does not change with its config."""
        stamp = signature_of(path)
        cached = self._kernels.get(path)
        if cached is None or cached[0] != stamp:
            try:
                source = kernel_source_of(path, read(path))
            except CacheUnreadable:
                source = None
            cached = self._kernels[path] = stamp, source
        return cached[1]
