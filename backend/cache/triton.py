"""What Triton compiled of a module, found in its cache folder: IR, assembly, facts of the kernel.

Read in Triton 3.9 (`triton/runtime/cache.py`, `triton/compiler/compiler.py`). A folder is one
kernel for one target: `NAME.json`, and beside it a file for each stage. Its IR names the file that
the kernel stands in, which is all that ties the two together.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from backend.cache.code import read_text
from backend.disk.safe import open_regular, read_regular

STAGES = ("amdgcn", "ptx", "llir", "ttgir", "ttir")
"""Texts, the nearest to the machine first."""
MOST_FOLDERS = 20_000
_PART = 1 << 14
_MAX_JSON = 1 << 20
_LOCATION = re.compile(rb'loc\("([^"\n]{1,4096})":\d')


@dataclass(frozen=True, slots=True)
class Kernel:
    """One compiled kernel. `arch` is `gfx942` or `sm90`; `stages` are its texts by name."""

    name: str
    folder: Path
    arch: str
    threads: int | None
    shared: int | None
    """Bytes of LDS, or of shared memory."""
    stages: Mapping[str, Path] = field(default_factory=dict)

    @property
    def code_object(self) -> Path:
        """Of an AMD kernel."""
        return self.folder / f"{self.name}.hsaco"


def folders_of(root: Path, env: Mapping[str, str] = os.environ) -> list[Path]:
    """Where Triton keeps what it compiles for the programs of a cache dir `root`: one a device,
    else what the environment names."""
    named = env.get("TRITON_CACHE_DIR")
    below = sorted(path for path in _listed(root / "triton") if path.name.isdecimal())
    return [*below, *([Path(named)] if named else [])]


def kernels_of(module: Path, folders: list[Path]) -> list[Kernel]:
    """What was compiled of the file `module`, the newest of each arch, newest first."""
    found: dict[str, tuple[float, Kernel]] = {}
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
            if kernel is not None and (kernel.arch not in found or head[2] > found[kernel.arch][0]):
                found[kernel.arch] = (head[2], kernel)
    newest = sorted(found.values(), key=lambda pair: pair[0], reverse=True)
    return [kernel for _, kernel in newest]


def modules_of(place: Path) -> frozenset[str]:
    """The names of the files that the kernel of a folder says it comes from."""
    head = _head_of(place)
    return frozenset() if head is None else _modules(*head)


def _listed(folder: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(folder) if not entry.is_symlink()]
    except OSError:
        return []


def _head_of(place: Path) -> tuple[str, int, int] | None:
    """The file of IR that is nearest to the source, its size and when it changed."""
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
    """The names of the files that a kernel's IR says it comes from."""
    places: set[bytes] = set()
    with suppress(OSError):
        places.update(_LOCATION.findall(read_regular(path, _PART)))
        if not places and size > _PART:  # older versions of MLIR print them at the end
            with open_regular(Path(path)) as file:
                file.seek(size - _PART)
                places.update(_LOCATION.findall(file.read(_PART)))
    return frozenset(Path(place.decode("utf-8", "replace")).name for place in places)


def _kernel(place: Path, head: str) -> Kernel | None:
    name = Path(head).stem
    text = read_text(place / f"{name}.json", _MAX_JSON)
    try:
        told: Any = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    target: Any = told.get("target") if isinstance(told, dict) else None
    if not isinstance(target, dict):
        return None
    stages = {stage: place / f"{name}.{stage}" for stage in STAGES}
    return Kernel(
        name,
        place,
        _arch(target),
        _product(told.get("num_warps"), target.get("warp_size")),
        _whole(told.get("shared")),
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
