"""Looking through the graph caches again and again: a folder is read only after it changed.

Whatever puts a file into a folder, or takes one out, changes the folder's times. One of them, that
of its status, cannot be set back, as copying programs do with the other.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SETTLED = 2.0
"""Seconds after which a folder's time tells a new change: some file systems count in seconds."""

_Identity = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class GraphEntry:
    """One compiled graph. `relative` is its path below the cache dir; `mtime` when it was made."""

    path: Path
    relative: str
    mtime: float
    size: int
    appeared: float = 0.0
    """When it came to this place, or was touched there last."""


@dataclass(frozen=True, slots=True)
class _Listing:
    """What was in a folder: the names of its folders, and its files as entries. One that is not
    `settled` is read again."""

    identity: _Identity
    settled: bool
    folders: tuple[str, ...]
    entries: tuple[GraphEntry, ...]


class FolderMemory:
    """The folders of one tree as they were read last."""

    def __init__(self) -> None:
        self._known: dict[str, _Listing] = {}

    def entries(self, root: Path, name: str, depth: int) -> Iterator[GraphEntry]:
        """The regular files that lie `depth` folders below `root`, in the order of their names."""
        listing = self._listing(root, name, depth)
        if listing is None:
            return
        yield from listing.entries
        for folder in listing.folders:
            yield from self.entries(root, f"{name}/{folder}", depth - 1)

    def _listing(self, root: Path, name: str, depth: int) -> _Listing | None:
        place = f"{root}/{name}"
        try:
            status = os.lstat(place)
        except OSError:
            status = None
        if status is None or not stat.S_ISDIR(status.st_mode):
            self._known.pop(place, None)
            return None
        identity = _identity(status)
        known = self._known.get(place)
        if known is None or not known.settled or known.identity != identity:
            # The time was taken before the folder is read: what comes meanwhile is seen next time.
            settled = time.time() - max(status.st_mtime, status.st_ctime) > _SETTLED
            known = self._known[place] = _read(root, name, depth, identity, settled)
        return known


def stamp(folder: Path, depth: int) -> tuple[_Identity, ...]:
    """Of `folder` and, if `depth` is 2, of what is in it."""
    found: list[_Identity] = []
    with contextlib.suppress(OSError):
        found.append(_identity(os.lstat(folder)))
        if depth > 1:
            with os.scandir(folder) as children:
                found += [_identity(child.stat(follow_symlinks=False)) for child in children]
    return tuple(found)


def _read(root: Path, name: str, depth: int, identity: _Identity, settled: bool) -> _Listing:
    folders: list[str] = []
    entries: list[GraphEntry] = []
    with contextlib.suppress(OSError), os.scandir(root / name) as children:
        for child in children:
            with contextlib.suppress(OSError):
                if depth > 1:
                    folders += [child.name] if child.is_dir(follow_symlinks=False) else []
                elif child.is_file(follow_symlinks=False) and not child.name.startswith("."):
                    status = child.stat(follow_symlinks=False)
                    relative = f"{name}/{child.name}"
                    times = status.st_mtime, status.st_size, status.st_ctime
                    entries.append(GraphEntry(root / relative, relative, *times))
    entries.sort(key=lambda entry: entry.relative)
    return _Listing(identity, settled, tuple(sorted(folders)), tuple(entries))


def _identity(status: os.stat_result) -> _Identity:
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns
