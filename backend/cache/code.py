"""The code that Inductor generated for its choices, located in its cache dir by choice hash, and
Triton's output for it: IR, assembly, resources of the kernel.

Checked with torch 2.13 (`torch/_inductor/codecache.py`, `select_algorithm.py`,
`codegen/cpp_template_kernel.py`, `codegen/rocm/rocm_benchmark_request.py`). The hash of a
template's choice ends in a digest, `triton_mm-c3bq...`. For Triton, CuTe and Composable Kernel it
is the name of the file; for C++ it is that of the source, which is in a file of another name. Files
are read as text; nothing is imported or run.

Checked with Triton 3.9 (`triton/runtime/cache.py`, `triton/compiler/compiler.py`): a folder of its
cache is one kernel for one target, `NAME.json` and a file for each stage. Only its IR connects it
to the kernel's source file, by naming it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from backend.disk.safe import open_regular, read_regular
from backend.model.choice import SUBGRAPH
from backend.model.origin import kind_of

MAX_BYTES = 8 << 20
"""A longer file is not a kernel's source."""
MOST_FILES = 20_000
"""The maximum number of C++ files whose content is read."""

_DIGEST = re.compile(r"-(c[a-z2-7]{51})(?:-|\Z)")
_SUFFIXES = (".py", ".cpp", ".cu")


@dataclass(frozen=True, slots=True)
class ChoiceCode:
    """A text, and the file that it was read from; None if it is part of the hash itself."""

    text: str
    path: Path | None


def digest_in(hash: str) -> str | None:
    """Return the digest at the end of a template's hash; None without one."""
    match = _DIGEST.search(hash)
    return match[1] if match else None


def code_of(root: Path, hash: str) -> ChoiceCode | None:
    """Return the code that Inductor generated for the choice `hash` in its cache dir `root`. For a
    subgraph, return its graph, which is part of its hash. None if there is no code."""
    if SUBGRAPH in hash:
        return ChoiceCode("graph():\n" + hash.partition(SUBGRAPH)[2], None)
    digest = digest_in(hash)
    if digest is None:
        return None
    for suffix in _SUFFIXES:
        path = root / digest[1:3] / (digest + suffix)
        text = read_text(path)
        if text is not None:
            return ChoiceCode(text, path)
    if kind_of(hash) == "triton":
        return None  # spares a search of all C++ files, which Triton's code is never in
    for name, status in _cpp_files(root):
        if _digest_of(name, status.st_size, status.st_mtime_ns) == digest:
            text = read_text(Path(name))
            return None if text is None else ChoiceCode(text, Path(name))
    return None


def module_of(root: Path, hash: str) -> Path | None:
    """Return the Python file that Inductor generated for the choice `hash`, or None."""
    digest = digest_in(hash)
    path = root / digest[1:3] / f"{digest}.py" if digest else None
    return path if path is not None and path.is_file() else None


def read_text(path: Path, most: int = MAX_BYTES) -> str | None:
    """Return the text of a regular file of at most `most` bytes, not behind a link; else None."""
    data = read_file(path, most)
    return None if data is None else data.decode("utf-8", "replace")


def read_file(path: Path, most: int = MAX_BYTES) -> bytes | None:
    """Return the bytes of a regular file of at most `most` bytes, not behind a link; else None."""
    try:
        data = read_regular(path, most + 1)
    except OSError:
        return None
    return data if len(data) <= most else None


def _cpp_files(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the C++ files of Inductor's code cache, in any order."""
    left = MOST_FILES
    for folder in _entries(root):
        if len(folder.name) != 2 or not folder.is_dir(follow_symlinks=False):
            continue
        for entry in _entries(Path(folder.path)):
            if not entry.name.endswith(".cpp"):
                continue
            left -= 1
            if left < 0:
                return
            try:
                yield entry.path, entry.stat(follow_symlinks=False)
            except OSError:
                continue  # removed meanwhile


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


@lru_cache(maxsize=MOST_FILES)
def _digest_of(path: str, size: int, changed: int) -> str:
    """Return `code_hash` of a file's content, cached while the file is unchanged."""
    data = read_file(Path(path)) if size <= MAX_BYTES else None
    return "" if data is None else code_hash(data)


def code_hash(content: bytes) -> str:
    """Return Inductor's hash of a text: `c`, then the SHA-256 in base 32."""
    return "c" + base64.b32encode(hashlib.sha256(content).digest())[:51].decode().lower()


STAGES = ("amdgcn", "ptx", "llir", "ttgir", "ttir")
"""The texts of a compiled kernel, from machine code upwards."""
MOST_FOLDERS = 20_000
_PART = 1 << 14
_MAX_JSON = 1 << 20
_LOCATION = re.compile(rb'loc\("([^"\n]{1,4096})":\d')


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A compiled kernel. `arch` is `gfx942` or `sm90`; `stages` are its texts by name."""

    name: str
    folder: Path
    arch: str
    threads: int | None
    shared: int | None
    """Bytes of LDS or shared memory."""
    stages: Mapping[str, Path] = field(default_factory=dict)

    @property
    def code_object(self) -> Path:
        """The code object of an AMD kernel."""
        return self.folder / f"{self.name}.hsaco"


def folders_of(root: Path, env: Mapping[str, str] = os.environ) -> list[Path]:
    """Return Triton's cache folders for a cache dir `root`: one per device, else the
    environment's."""
    named = env.get("TRITON_CACHE_DIR")
    below = sorted(path for path in _listed(root / "triton") if path.name.isdecimal())
    return [*below, *([Path(named)] if named else [])]


def kernels_of(module: Path, folders: list[Path]) -> list[CompiledKernel]:
    """Return the compiled kernels of the file `module`, the newest of each arch, newest first."""
    by_arch: dict[str, tuple[float, CompiledKernel]] = {}
    left = MOST_FOLDERS
    for folder in folders:
        for place in _listed(folder):
            left -= 1
            if left < 0:
                break
            head = _head_of(place)
            if head is None or module.name not in _modules(*head):
                continue
            kernel = _kernel(place, head[0])
            if kernel is not None and (
                kernel.arch not in by_arch or head[2] > by_arch[kernel.arch][0]
            ):
                by_arch[kernel.arch] = (head[2], kernel)
    newest = sorted(by_arch.values(), key=lambda pair: pair[0], reverse=True)
    return [kernel for _, kernel in newest]


def modules_of(place: Path) -> frozenset[str]:
    """Return the names of the source files that a folder's kernel refers to."""
    head = _head_of(place)
    return frozenset() if head is None else _modules(*head)


def _listed(folder: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(folder) if not entry.is_symlink()]
    except OSError:
        return []


def _head_of(place: Path) -> tuple[str, int, int] | None:
    """Return the IR file nearest to the source, its size and modification time."""
    try:
        with os.scandir(place) as entries:
            files = {os.path.splitext(entry.name)[1]: entry for entry in entries}  # noqa: PTH122
            for suffix in (".ttir", ".ttgir"):
                if suffix in files:
                    status = files[suffix].stat(follow_symlinks=False)
                    return files[suffix].path, status.st_size, status.st_mtime_ns
    except OSError:
        pass
    return None


@lru_cache(maxsize=MOST_FOLDERS)
def _modules(path: str, size: int, changed: int) -> frozenset[str]:
    """Return the names of the source files in a kernel's IR."""
    places: set[bytes] = set()
    with suppress(OSError):
        places.update(_LOCATION.findall(read_regular(path, _PART)))
        if not places and size > _PART:  # older versions of MLIR print them at the end
            with open_regular(Path(path)) as file:
                file.seek(size - _PART)
                places.update(_LOCATION.findall(file.read(_PART)))
    return frozenset(Path(place.decode("utf-8", "replace")).name for place in places)


def _kernel(place: Path, head: str) -> CompiledKernel | None:
    name = Path(head).stem
    text = read_text(place / f"{name}.json", _MAX_JSON)
    try:
        metadata: Any = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    target: Any = metadata.get("target") if isinstance(metadata, dict) else None
    if not isinstance(target, dict):
        return None
    stages = {stage: place / f"{name}.{stage}" for stage in STAGES}
    return CompiledKernel(
        name,
        place,
        _arch(target),
        _product(metadata.get("num_warps"), target.get("warp_size")),
        _whole(metadata.get("shared")),
        {stage: path for stage, path in stages.items() if path.is_file()},
    )


def _arch(target: Mapping[str, Any]) -> str:
    arch = str(target.get("arch", "?"))[:40]
    return f"sm_{arch}" if target.get("backend") == "cuda" else arch.partition(":")[0]


def _whole(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 32 else None


def _product(left: object, right: object) -> int | None:
    first, second = _whole(left), _whole(right)
    return None if first is None or second is None else first * second
