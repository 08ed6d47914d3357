"""The config that Inductor found to be the best for a Triton kernel of its own: `*.best_config`.

    {"XBLOCK": 1024, "num_warps": 4, "num_stages": 1, "configs_hash": "...",
     "found_by_coordesc": false, "time_taken_ms": 105, "triton_cache_hash": "K4WQ..."}

Read in torch 2.8 to 2.13 (`_inductor/runtime/autotune_cache.py`). It lies in the folder of the
kernel's file, which may hold other kernels; its name is a digest in which torch's own source takes
part. What was compiled of the config names the kernel's file, and Triton's cache has that under
`triton_cache_hash`; where that is not told, or not there, only one kernel of the folder may be
left. `time_taken_ms` is how long tuning took; nothing tells how fast the kernel is, or what its
rivals were: `configs_hash` is the digest of their list, constants, warps and stages of each, in the
order in which they are tried (`hash_configs` of `triton_heuristics.py`).
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
from backend.model.inductor_kernel import InductorKernel, config_of, is_digest

SUFFIX = ".best_config"
MAX_BYTES = 64 << 10
MAX_MEMBERS = 100
"""Of a file; those of real ones are about ten."""
MOST_BESIDE = 200
"""Files of one folder that are looked at."""
_FOLDER = re.compile(r"[a-z2-7]{2}\Z")
_OF_TUNING = ("configs_hash", "found_by_coordesc", "time_taken_ms", "triton_cache_hash")
_NOT_COMPARED = ("extra_options", "num_consumer_groups", "num_buffers_warp_spec")
"""What Inductor keeps beside the constants, and does not compare."""
_SETTLED_NS = 2_000_000_000
"""After which a change has another time stamp, however coarse the clock is."""
_OF_AMD = frozenset(("waves_per_eu", "matrix_instr_nonkdim", "kpack"))
"""Constants of a config that are no arguments of its kernel: the compiler for AMD GPUs has them."""
_CONSTANT = re.compile(r"\b(\w{1,60})\s*:\s*\Z")
_CONSTEXPR = "tl.constexpr"
_NEAR = 80
"""Characters in which the name before it stands."""
_HEAD = 64 << 10
"""Characters in which a kernel's arguments stand."""


@dataclass(frozen=True, slots=True)
class BestConfig:
    """What one file says. `hash`, `name` and `text` are of the config; `seconds` is what tuning
    took, compiling included; `compiled` names the folder in Triton's cache."""

    hash: str
    name: str
    text: str
    constants: frozenset[str]
    configs_hash: str
    seconds: float | None
    compiled: str | None


@dataclass(frozen=True, slots=True)
class KernelSource:
    """The file that Inductor wrote a kernel into, its text, and what that says."""

    path: Path
    text: str
    kernel: InductorKernel


def is_file(path: str | Path) -> bool:
    """Whether a file is called as these are."""
    return str(path).endswith(SUFFIX)


def is_folder(name: str) -> bool:
    """Whether a folder of a cache dir is called as those that hold generated code."""
    return _FOLDER.match(name) is not None


def parse(path: Path, data: bytes) -> BestConfig:
    """What `data`, the content of `path`, says. Raises CacheUnreadable."""
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
    hash, name, text = described(config_of(constants, warps, stages))
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
    """The constants of the config that a file holds."""
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
    """The kernels of a folder as they are now, looked at once for all its files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def source_of(self, path: Path, config: BestConfig) -> KernelSource:
        """The kernel that the file `path` is about. Raises CacheUnreadable if that is not told."""
        known = self._sources
        wanted = config.constants - _OF_AMD
        beside = [s for s, names in known if names - _OF_AMD == wanted]
        beside = beside or [s for s, names in known if names >= wanted]
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
            raise CacheUnreadable(f"{what}: the kernel that it is about is not beside")
        raise CacheUnreadable(
            f"{what} is about one of {counted(len(beside), 'kernel')} beside it, and Triton's "
            "cache, which tells them apart, does not have what was compiled"
        )

    @cached_property
    def _sources(self) -> list[tuple[KernelSource, frozenset[str]]]:
        """The kernels that may be tuned, and the constants that each is compiled for."""
        found = []
        for path in _listed(self.folder, ".py"):
            with suppress(OSError):
                status = path.lstat()
                source = _source(path, status.st_size, status.st_mtime_ns)
                found += [(source, _constants_in(source.text))] if source else []
        return found

    @cached_property
    def _compiled(self) -> dict[Path, frozenset[str]]:
        """The kernels that files of the folder are about, as Triton's cache tells."""
        known: dict[Path, frozenset[str]] = {}
        for path in _listed(self.folder, SUFFIX):
            with suppress(CacheUnreadable):
                compiled = read(path).compiled
                known[path] = self._modules(compiled) if compiled else frozenset()
        return known

    @cached_property
    def _folders(self) -> list[Path]:
        return code.folders_of(self.folder.parent)

    def _taken(self, path: Path) -> frozenset[str]:
        """The kernels that other files are about."""
        return frozenset[str]().union(*(m for p, m in self._compiled.items() if p != path))

    def _modules(self, compiled: str) -> frozenset[str]:
        """The files that a folder of Triton's cache was compiled of."""
        modules = (code.modules_of(folder / compiled) for folder in self._folders)
        return next((names for names in modules if names), frozenset())


def source_of(path: Path, config: BestConfig) -> KernelSource:
    """The kernel that the file `path` is about. Raises CacheUnreadable where that is not told."""
    return FolderKernels(path.parent).source_of(path, config)


@lru_cache(maxsize=1024)
def _constants_in(text: str) -> frozenset[str]:
    """Asked for whenever something of its folder changed."""
    before = text[:_HEAD].split(_CONSTEXPR)[
        :-1
    ]  # to search the text for names takes ten times that
    return frozenset(match[1] for part in before if (match := _CONSTANT.search(part[-_NEAR:])))


@lru_cache(maxsize=1024)
def _source(path: Path, size: int, changed: int) -> KernelSource | None:
    """What a file says as long as it does not change; others of its folder are asked for next."""
    text = read_text(path, inductor_kernel.MAX_SOURCE)
    kernel = inductor_kernel.parse(text) if text and "@triton_heuristics." in text else None
    return KernelSource(path, text, kernel) if text is not None and kernel is not None else None


def _listed(folder: Path, suffix: str) -> list[Path]:
    names: list[str] = []
    with suppress(OSError), os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.name.endswith(suffix)]
    return [folder / name for name in sorted(names)[:MOST_BESIDE]]


_DESCENT = re.compile(r"'coordinate_descent_tuning': (True|False)")


def descends(source: KernelSource) -> bool:
    """Whether coordinate descent goes on where a kernel's config was not found by it."""
    told = _DESCENT.search(source.text[:_HEAD])
    return told is not None and told[1] == "True"


def config_told(texts: Mapping[str, str], hash: str) -> dict[str, Any] | None:
    """The members of the config that is called `hash`, made of their texts as `described` writes
    them; None where they are not those of that config."""
    members = {name: _value(text) for name, text in texts.items()}
    constants = {n: v for n, v in members.items() if n not in ("num_warps", "num_stages")}
    warps, stages = members.get("num_warps"), members.get("num_stages")
    if type(warps) is not int or type(stages) is not int:
        return None
    same = described(config_of(constants, warps, stages))[0] == hash
    return members if same and is_plain(members) else None


_WORD = re.compile(
    r"ieee|none|tf32(?:x3)?|bf16x[369]|\.c[agvs]|\.w[bt]|evict_(?:first|last|normal)|rt(?:ne|z)"
    r"|(?:torch\.|tl\.)?(?:b?float|u?int|fp|bf|[iu])\d{1,2}(?:e\dm\d\w{0,6}|e\dnv|x\d)?",
    re.ASCII,
)
"""The words of Triton's own options: precisions, types, cache and eviction policies, rounding."""
_NAME = re.compile(r"[A-Za-z]\w{0,59}", re.ASCII)


def is_plain(members: Mapping[str, Any]) -> bool:
    """Whether names and values may stand in a program's source: Inductor pastes the constants of a
    config into the Python text of its launcher, and executes that."""
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
    """The content of a file with another config, as Inductor writes it; with `found` as one that
    coordinate descent has found, so that it does not go on. Raises CacheUnreadable."""
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
    """The files below a cache dir, by the kernel that they are about; what did not change is read
    once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folders: dict[str, tuple[int, tuple[Path, ...]]] = {}
        self._kernels: dict[Path, tuple[object, KernelSource | None]] = {}

    def of(self, op: str, inputs: str) -> list[tuple[Path, KernelSource]]:
        """The files of a kernel, and its text beside each."""
        found = []
        for path in self._all():
            source = self._source(path)
            if source and (source.kernel.op, source.kernel.inputs) == (op, inputs):
                found.append((path, source))
        return found

    def lists(self, op: str, inputs: str) -> tuple[str, ...]:
        """The digests of the lists of configs that a kernel's files were made of."""
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
        known = self._folders.get(folder.name)
        if known is None or known[0] != status.st_mtime_ns:
            paths = tuple(_listed(folder, SUFFIX)) if stat.S_ISDIR(status.st_mode) else ()
            settled = time.time_ns() - status.st_mtime_ns > _SETTLED_NS
            known = status.st_mtime_ns if settled else 0, paths
            self._folders[folder.name] = known
        return known[1]

    def _source(self, path: Path) -> KernelSource | None:
        """Which kernel a file is about does not change with its config."""
        stamp = signature_of(path)
        known = self._kernels.get(path)
        if known is None or known[0] != stamp:
            try:
                source = source_of(path, read(path))
            except CacheUnreadable:
                source = None
            known = self._kernels[path] = stamp, source
        return known[1]
