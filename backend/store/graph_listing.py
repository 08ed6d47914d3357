"""The entries of Inductor's compiled-graph caches as they lie on disk, listed again and again.

fxgraph/<2 letters>/<key>/<content hash>        aotautograd/<key>/<content hash>
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_DEPTHS = (("fxgraph", 3), ("aotautograd", 2))
_SETTLED = 2.0
"""Seconds: a folder that changed so lately may change again without another time of change."""


@dataclass(frozen=True, slots=True)
class GraphEntry:
    """One compiled graph. `relative` is its path below the cache dir; `mtime` when it was made."""

    path: Path
    relative: str
    mtime: float
    size: int


@dataclass(slots=True)
class Listing:
    """The entries below `root`, a cache dir or a folder of evicted ones. Symlinks are left out.

    An entry comes and goes by a rename, which changes its folder: a folder that did not change is
    not read again, so that a listing costs one look at each folder and none at the files.
    """

    root: Path
    _folders: dict[str, tuple[int, tuple[str, ...], tuple[GraphEntry, ...]]] = field(
        default_factory=dict
    )

    def entries(self) -> list[GraphEntry]:
        """All entries, in the order of their paths."""
        seen: set[str] = set()
        found = [e for name, depth in _DEPTHS for e in self._below(name, depth, seen)]
        for gone in [name for name in self._folders if name not in seen]:
            del self._folders[gone]
        return found

    def _below(self, name: str, depth: int, seen: set[str]) -> Iterator[GraphEntry]:
        seen.add(name)
        folders, entries = self._read(name, depth)
        yield from entries
        for folder in folders:
            yield from self._below(f"{name}/{folder}", depth - 1, seen)

    def _read(self, name: str, depth: int) -> tuple[tuple[str, ...], tuple[GraphEntry, ...]]:
        """The folders and entries in one folder: the ones above the last hold folders only."""
        path = f"{self.root}/{name}"
        try:
            changed = os.stat(path).st_mtime_ns  # noqa: PTH116 - of many, many folders
            known = self._folders.get(name)
            if known is not None and known[0] == changed:
                return known[1:]
            folders, entries = _listed(self.root, name, path, depth)
        except OSError:
            self._folders.pop(name, None)
            return (), ()
        if time.time() - changed / 1e9 > _SETTLED:
            self._folders[name] = changed, folders, entries
        return folders, entries


def entries_below(root: Path) -> Iterator[GraphEntry]:
    """Every entry below `root`, once."""
    yield from Listing(root).entries()


def _listed(
    root: Path, name: str, path: str, depth: int
) -> tuple[tuple[str, ...], tuple[GraphEntry, ...]]:
    folders: list[str] = []
    entries: list[GraphEntry] = []
    with os.scandir(path) as children:
        for child in sorted(children, key=lambda child: child.name):
            try:
                status = child.stat(follow_symlinks=False)
            except OSError:  # gone meanwhile
                continue
            if depth > 1 and stat.S_ISDIR(status.st_mode):
                folders.append(child.name)
            elif depth == 1 and stat.S_ISREG(status.st_mode) and child.name[0] != ".":
                relative = f"{name}/{child.name}"
                entries.append(
                    GraphEntry(root / relative, relative, status.st_mtime, status.st_size)
                )
    return tuple(folders), tuple(entries)
