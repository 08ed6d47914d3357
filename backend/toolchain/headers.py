"""Folders of headers that are not ours and that a kernel includes, known by their content.

A library of templates, such as Composable Kernel, has some thousand headers, of which a kernel
includes most. So all of a folder count: that is some milliseconds a hundred files, once a process,
where asking the compiler for those that it read would take a compile.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from backend.toolchain.errors import HeadersError

_SUFFIXES = frozenset((".h", ".hh", ".hpp", ".hxx", ".cuh", ".inc", ".inl", ".ipp", ".tpp", ""))
"""What a compiler may be told to include; a header of C++'s own kind has no suffix."""


@dataclass(frozen=True, slots=True)
class Headers:
    """A folder for `-I`, and the SHA-256 of what was in it. The path is in no key; the hash is."""

    folder: str
    digest: str

    @classmethod
    def of(cls, folder: Path) -> Headers:
        """Read once a process. Raises HeadersError where there is no such folder."""
        return cls(str(folder), _digest_once(folder))

    def check(self) -> None:
        """Raises HeadersError where the folder has other headers by now, or is gone."""
        if digest_of(Path(self.folder)) != self.digest:
            raise HeadersError(f"the headers in {self.folder} have changed since they were read")


@lru_cache(maxsize=64)
def _digest_once(folder: Path) -> str:
    return digest_of(folder)


def digest_of(folder: Path) -> str:
    """Of the names and the content of all headers below `folder`. Raises HeadersError."""
    if not folder.is_dir():
        raise HeadersError(f"there is no folder {folder} with headers")
    digest = hashlib.sha256()
    try:
        for header in sorted(folder.rglob("*")):
            if header.suffix in _SUFFIXES and header.is_file():
                text = header.read_bytes()
                digest.update(f"{header.relative_to(folder).as_posix()}\0{len(text)}\0".encode())
                digest.update(text)
    except OSError as error:
        raise HeadersError(f"cannot read the headers in {folder}: {error.strerror}") from error
    return digest.hexdigest()
