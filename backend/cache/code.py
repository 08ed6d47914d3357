"""The code that Inductor generated for its choices, found below its cache dir by a choice's hash.

Read in torch 2.13 (`torch/_inductor/codecache.py`, `select_algorithm.py`,
`codegen/cpp_template_kernel.py`, `codegen/rocm/rocm_benchmark_request.py`). The hash of a
template's choice ends in a digest, `triton_mm-c3bq...`. For Triton, CuTe and Composable Kernel it
is the name of the file; for C++ it is that of the source, which lies in a file of another name.
Nothing is imported or run: these are texts.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from backend.disk.safe import read_regular

MAX_BYTES = 8 << 20
"""A longer file is no kernel's source."""
MOST_FILES = 20_000
"""C++ files whose content is looked at."""

_DIGEST = re.compile(r"-(c[a-z2-7]{51})(?:-|\Z)")
_SUFFIXES = (".py", ".cpp", ".cu")
_SUBGRAPH = "-graph():\n"


@dataclass(frozen=True, slots=True)
class Code:
    """A text, and the file that it was read from; None for what the hash itself holds."""

    text: str
    path: Path | None


def digest_in(hash: str) -> str | None:
    """The digest at the end of a template's hash; None where there is none."""
    found = _DIGEST.search(hash)
    return found[1] if found else None


def code_of(root: Path, hash: str) -> Code | None:
    """What Inductor generated for the choice `hash`, below its cache dir `root`.

    Of a choice that is a subgraph, the graph, which is its hash. None where nothing is found.
    """
    if _SUBGRAPH in hash:
        return Code("graph():\n" + hash.partition(_SUBGRAPH)[2], None)
    digest = digest_in(hash)
    if digest is None:
        return None
    for suffix in _SUFFIXES:
        path = root / digest[1:3] / (digest + suffix)
        text = read_text(path)
        if text is not None:
            return Code(text, path)
    for name, status in _cpp_files(root):
        if _digest_of(name, status.st_size, status.st_mtime_ns) == digest:
            text = read_text(Path(name))
            return None if text is None else Code(text, Path(name))
    return None


def module_of(root: Path, hash: str) -> Path | None:
    """The Python file that Inductor generated for the choice `hash`; None where there is none."""
    digest = digest_in(hash)
    path = root / digest[1:3] / f"{digest}.py" if digest else None
    return path if path is not None and path.is_file() else None


def read_text(path: Path, most: int = MAX_BYTES) -> str | None:
    """A regular file of at most so many bytes, behind no link; else None."""
    data = read_file(path, most)
    return None if data is None else data.decode("utf-8", "replace")


def read_file(path: Path, most: int = MAX_BYTES) -> bytes | None:
    """The same as bytes."""
    try:
        data = read_regular(path, most + 1)
    except OSError:
        return None
    return data if len(data) <= most else None


def _cpp_files(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """The C++ files of Inductor's code cache, in any order."""
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
    """`code_hash` of a file's content, read once as long as it does not change."""
    data = read_file(Path(path)) if size <= MAX_BYTES else None
    return "" if data is None else code_hash(data)


def code_hash(content: bytes) -> str:
    """Inductor's own: `c`, then the SHA-256 in base 32."""
    return "c" + base64.b32encode(hashlib.sha256(content).digest())[:51].decode().lower()
