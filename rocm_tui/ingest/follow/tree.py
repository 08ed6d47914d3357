"""The folders below one that a person named, within bounds, and the sources that they hold.

A job of many ranks writes `run1/rank0/...`; a home folder or a data set may lie there as well, and
must stay cheap. So the search goes level by level and ends at a depth, a number of folders, of
names and of files, whichever comes first, and says so. Of an Inductor cache dir, which has
thousands of folders, two are looked at: that of the times and that of the sessions. Links to
folders are not followed, nor, below the first level, links to files outside. A folder whose time
stamp is the same is not listed again.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal

from backend.counted import counted
from backend.disk.layout import Layout
from backend.model.inductor_kernel import is_digest
from rocm_tui.config.settings import config
from rocm_tui.ingest.formats.kernel_configs import TRITON_CONFIGS
from rocm_tui.ingest.formats.registry import known_format, suffix_formats
from rocm_tui.ingest.records import STDIN

FOLDERS = 400
ENTRIES = 20_000
"""Names of files and folders looked at, in the subfolders together."""
FILES = 1_000
"""Sources of the subfolders together."""

_SYSTEM_HASH = re.compile(r"[0-9a-f]{64}\Z")
_INSTALLED = frozenset(("__pycache__", "node_modules", "site-packages", "dist-packages"))
_OF_CACHE = frozenset(("fxgraph", "aotautograd", "rocm_tui"))
"""A folder with one of these is an Inductor cache dir."""
_FEW = 20
"""Names that are enough to recognise a cache of Triton."""
_SETTLED = 2.0
"""Seconds after which a change must have another time stamp, however coarse the clock is."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a folder. `format` is its format where its place determines that, else ``; `wanted`
    are the formats for which it is worth reading, or empty for all."""

    path: str
    format: str = ""
    wanted: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Tree:
    """What was found below a folder: the folders that were listed, itself first, and which of them
    are cache dirs. `bounds` says which limit ended the search, `left_out` what else is not read."""

    folders: tuple[str, ...]
    caches: frozenset[str] = frozenset()
    members: tuple[SourceFile, ...] = ()
    bounds: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """All of that in a line; empty where there is one folder, read to its end."""
        folders, files = counted(len(self.folders), "folder"), counted(len(self.members), "file")
        left = ", ".join((*self.bounds, *self.left_out))
        parts = [f"{folders}, {files}"] if len(self.folders) > 1 else []
        parts += [f"not read: {left}"] if left else []
        return "; ".join(parts)


@dataclass(slots=True)
class _Listing:
    """A folder as it was at a time stamp. `linked` are files that may lie elsewhere."""

    stamp: tuple[int, int, int]
    settled: bool
    members: list[SourceFile] = field(default_factory=list)
    linked: list[SourceFile] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    links: int = 0
    passed_over: int = 0
    entries: int = 0
    cut: bool = False


@dataclass(slots=True)
class _Search:
    """A search as far as it has come."""

    root: str
    depth: int
    folders: list[str] = field(default_factory=list)
    caches: set[str] = field(default_factory=set)
    members: list[SourceFile] = field(default_factory=list)
    entries: int = 0
    files: int = 0
    links: int = 0
    outside: int = 0
    closed: int = 0
    passed_over: int = 0
    too_deep: int = 0
    bound: str = ""

    def tree(self) -> Tree:
        deep = f"{counted(self.too_deep, 'folder')} more than {self.depth} levels below"
        bounds = [self.bound] if self.bound else []
        bounds += [deep] if self.too_deep else []
        counts = (
            (self.links, "link", "to folders"),
            (self.outside, "link", "to files outside"),
            (self.closed, "folder", "without permission"),
            (self.passed_over, "hidden or installed folder", ""),
        )
        left = tuple(f"{counted(n, what)} {more}".rstrip() for n, what, more in counts if n)
        members = tuple(sorted(self.members, key=lambda member: member.path))
        folders, caches = tuple(self.folders), frozenset(self.caches)
        return Tree(folders, caches, members, tuple(bounds), left)


class Walker:
    """Searches folders, again and again; remembers what has not changed."""

    def __init__(self) -> None:
        self._listings: dict[str, _Listing] = {}

    def walk(self, root: str) -> Tree:
        """Everything below `root`. Raises OSError if it cannot be listed itself."""
        search = _Search(root, config().limits.folder_depth)
        level = self._visit(search, root, first=True)
        for _ in range(search.depth):
            level = [below for folder in level for below in self._below(search, folder)]
        search.too_deep += len(level)
        return search.tree()

    def _below(self, search: _Search, folder: str) -> list[str]:
        if not search.bound:
            search.bound = _bound(search)
        if search.bound:
            return []
        try:
            return self._visit(search, folder)
        except OSError:
            search.closed += 1
            return []

    def _visit(self, search: _Search, folder: str, first: bool = False) -> list[str]:
        """Take what a folder holds, and give its subfolders."""
        listing = self._list(folder, None if first else ENTRIES - search.entries)
        search.folders.append(folder)
        search.links += listing.links
        search.members += listing.members
        inside = [member for member in listing.linked if first or _is_inside(member, search.root)]
        search.outside += len(listing.linked) - len(inside)
        search.members += inside
        if not first:
            search.entries += listing.entries
            search.files += len(listing.members) + len(inside)
            if listing.cut:
                search.bound = f"more than {ENTRIES} names"
        if _is_tritons(listing.folders):
            search.members.append(SourceFile(folder, TRITON_CONFIGS.name))
            return []
        kept = self._cache_members(folder, listing.folders)
        if kept is not None:
            search.caches.add(folder)
            search.members += kept
            return []
        search.passed_over += listing.passed_over
        return [os.path.join(folder, name) for name in listing.folders]  # noqa: PTH118

    def _cache_members(self, folder: str, names: Sequence[str]) -> list[SourceFile] | None:
        """The sources of a cache dir; None if this is none."""
        marked = not _OF_CACHE.isdisjoint(names)
        if not marked and "cache" not in names:
            return None
        kept: list[SourceFile] = []
        for inner in inner_folders(folder)[:2]:
            try:
                kept += [member for member in self._list(inner, None).members if member.format]
            except OSError:
                continue  # not there yet
        if "triton" in names:
            kept += _tritons(os.path.join(folder, "triton"))  # noqa: PTH118
        return kept if kept or marked else None

    def _list(self, folder: str, most: int | None) -> _Listing:
        status = os.stat(folder)  # noqa: PTH116
        stamp = (status.st_dev, status.st_ino, status.st_mtime_ns)
        before = self._listings.get(folder)
        if before is not None and before.stamp == stamp and before.settled and not before.cut:
            return before
        settled = time.time() - status.st_mtime > _SETTLED
        listing = self._listings[folder] = _listed(_Listing(stamp, settled), folder, most)
        return listing

    def forget(self, wanted: frozenset[str]) -> None:
        """Remember nothing but these folders."""
        self._listings = {at: each for at, each in self._listings.items() if at in wanted}


def _is_tritons(names: Sequence[str]) -> bool:
    """Whether a folder of these folders is a cache of Triton."""
    few = names[:_FEW]
    return bool(few) and sum(map(is_digest, few)) * 2 > len(few)


def _tritons(folder: str) -> list[SourceFile]:
    """The caches that Inductor gives to Triton, one a device."""
    try:
        names = sorted(e.name for e in os.scandir(folder) if e.name.isdecimal() and _is_folder(e))
    except OSError:
        return []
    paths = [os.path.join(folder, name) for name in names]  # noqa: PTH118
    return [SourceFile(path, TRITON_CONFIGS.name) for path in paths]


@lru_cache(1024)
def inner_folders(folder: str) -> tuple[str, str, str]:
    """Return the folders of a cache dir with its times, its sessions, and all that is ours."""
    layout = Layout(Path(folder))
    return str(layout.autotune), str(layout.sessions), str(layout.home)


def is_member(path: str) -> bool:
    """Whether a file of this name can be a source in its folder."""
    return bool(known_format(path)) or _wanted(os.path.basename(path)) is not None  # noqa: PTH119


def is_searched(name: str) -> bool:
    """Whether a folder of this name is looked into."""
    return not name.startswith(".") and name not in _INSTALLED


def _bound(search: _Search) -> str:
    if len(search.folders) >= FOLDERS:
        return f"what is beyond {FOLDERS} folders"
    if search.files >= FILES:
        return f"what is beyond {FILES} files"
    return f"what is beyond {ENTRIES} names" if search.entries >= ENTRIES else ""


def _is_inside(member: SourceFile, root: str) -> bool:
    real = os.path.realpath(member.path)
    return real.startswith(os.path.join(os.path.realpath(root), ""))  # noqa: PTH118


def _listed(listing: _Listing, folder: str, most: int | None) -> _Listing:
    """Fill in an empty listing. Raises OSError."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if most is not None and listing.entries >= most:
                listing.cut = True
                break
            listing.entries += 1
            if _is_folder(entry):
                listing.folders += [entry.name] if is_searched(entry.name) else []
                listing.passed_over += not is_searched(entry.name)
                continue
            member = _member(folder, entry)
            link = entry.is_symlink()
            if link and os.path.isdir(entry.path):  # noqa: PTH112
                listing.links += 1
            elif member is not None and _may_be_file(entry):
                (listing.linked if link else listing.members).append(member)
    listing.folders.sort()
    return listing


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _member(folder: str, entry: os.DirEntry[str]) -> SourceFile | None:
    path = os.path.join(folder, entry.name)  # noqa: PTH118 - as the person wrote it
    format = known_format(path)
    wanted = frozenset({format}) if format else _wanted(entry.name)
    return None if wanted is None else SourceFile(path, format, wanted)


def _may_be_file(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a file, or may be one: its reader reports a bad link, and waits for a
    file to which a link leads that is not there yet."""
    try:
        return entry.is_file() or (entry.is_symlink() and not os.path.exists(entry.path))  # noqa: PTH110
    except OSError:
        return True


def _wanted(name: str) -> frozenset[str] | None:
    """The formats to expect under this name; None if it is no source."""
    if name.startswith("."):
        return None
    if _SYSTEM_HASH.match(name):  # a cache file that lies elsewhere
        name += ".json"
    return suffix_formats(os.path.splitext(name.removesuffix(".gz"))[1].lower())  # noqa: PTH122


@dataclass(frozen=True, slots=True)
class PathKind:
    """What a path turned out to be, for a person to whom it showed nothing.

    `files` are the sources of a folder; `cache` is set for the cache dir in force.
    """

    path: str
    kind: Literal["missing", "file", "folder", "unreadable"]
    files: int = 0
    cache: bool = False


def path_kinds(paths: Sequence[str], cache_dir: str) -> list[PathKind]:
    """Look at each path again. Never raises."""
    return [_path_kind(path, path == cache_dir) for path in dict.fromkeys(paths)]


def _path_kind(path: str, cache: bool) -> PathKind:
    if path != STDIN and not os.path.lexists(path):
        return PathKind(path, "missing", cache=cache)
    if not os.path.isdir(path):  # noqa: PTH112
        return PathKind(path, "file", 1, cache)
    try:
        return PathKind(path, "folder", len(Walker().walk(path).members), cache)
    except OSError:
        return PathKind(path, "unreadable", cache=cache)
