"""Changes below folders, as watchdog reports them; and the file systems where it sees none."""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import psutil
from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch

MOST_WATCHES = 64
"""Watches; each has a thread of watchdog."""
MOST_FOLDERS = 20_000
"""Folders that one watch may contain: each takes 1 KB of the kernel and as much of ours."""

_EVENTS: list[type[FileSystemEvent]] = [
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
]
"""Opening and closing are left out: our own reading would cause events without end."""

# File systems whose changes happen on another machine, where this one sees no event
_REMOTE = frozenset(
    "9p afs beegfs ceph cifs glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2 orangefs panfs smb2 smb3 "
    "smbfs virtiofs wekafs".split()
)

# watchdog logs each overflow of its queue, which would be printed across the screen. Nothing is
# lost by it: every source is looked at now and then, whatever is reported.
logging.getLogger("watchdog").addHandler(logging.NullHandler())
logging.getLogger("watchdog").propagate = False
# It also warns where folders are created while it adds watches, which is harmless.
warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"watchdog\.")


def mounted() -> list[tuple[str, str]]:
    """The mount points of this machine, and the type of each file system."""
    try:
        return [(each.mountpoint, each.fstype) for each in psutil.disk_partitions(all=True)]
    except OSError:
        return []


def is_remote(path: str, mounts: Iterable[tuple[str, str]]) -> bool:
    """Whether `path` is on a network file system, by the longest mount point above it."""
    real = os.path.realpath(path)
    kind, longest = "", -1
    for mount, fstype in mounts:
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= longest:
            kind, longest = fstype, len(mount)
    return kind in _REMOTE or kind.startswith("fuse.")


class _Reporter(FileSystemEventHandler):
    """Reports each changed path by the names that the sources use for the watched folder."""

    def __init__(
        self, real: str, names: Iterable[str], report: Callable[[list[str]], None]
    ) -> None:
        self._real, self._names, self._report = real, tuple(names), report
        self.ended = False
        """Whether the folder was deleted, after which watchdog reports no more of it."""

    def on_any_event(self, event: FileSystemEvent) -> None:
        paths = [os.fsdecode(path) for path in (event.src_path, event.dest_path) if path]
        if isinstance(event, DirDeletedEvent) and paths[0] == self._real:
            self.ended = True
        inside = [p for p in paths if p == self._real or p.startswith(self._real.rstrip("/") + "/")]
        self._report([name + path[len(self._real) :] for path in inside for name in self._names])


@dataclass(frozen=True, slots=True)
class _Watch:
    """A folder that watchdog watches, and the file that it was when that began."""

    inode: tuple[int, int]
    names: frozenset[str]
    wants_subfolders: bool
    has_subfolders: bool
    reporter: _Reporter
    observed: ObservedWatch


class FolderEvents:
    """Watches folders for one thread, and calls `wake` from another when there is a change.

    Folders that cannot be watched are not covered: the caller polls there.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self._watches: dict[str, _Watch] = {}
        self._mounts = mounted()
        self._observer: BaseObserver | None = None

    def sync(self, wanted: Mapping[str, bool]) -> bool:
        """Watch these absolute folders and no others: with their subfolders where the value is
        True. Returns whether a new watch began."""
        names: dict[str, set[str]] = {}
        subfolders: dict[str, bool] = {}
        for folder, recursive in list(wanted.items())[:MOST_WATCHES]:
            real = os.path.realpath(folder)
            names.setdefault(real, set()).add(folder)
            subfolders[real] = subfolders.get(real, False) or recursive
        for real, watch in list(self._watches.items()):
            kept = real in names and watch.names == frozenset(names[real])
            kept = kept and watch.wants_subfolders == subfolders[real]
            if not kept or watch.reporter.ended or watch.inode != _inode(real):
                self._unwatch(real)
        began = False
        for real in names.keys() - self._watches.keys():
            began = self._watch(real, frozenset(names[real]), subfolders[real]) or began
        return began

    def covers(self, folder: str) -> bool:
        """Whether a change in this absolute folder is reported."""
        if is_remote(folder, self._mounts):
            return False
        for watch in self._watches.values():
            for name in watch.names:
                inside = folder == name or (
                    watch.has_subfolders and folder.startswith(name.rstrip("/") + "/")
                )
                if inside and not watch.reporter.ended:
                    return True
        return False

    def take(self) -> set[str]:
        """The paths that changed since the last call."""
        with self._lock:
            changed, self._changed = self._changed, set()
        return changed

    def stop(self) -> None:
        """Watch nothing any more, and end all threads of watchdog."""
        self._watches.clear()
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.stop()
            observer.join()

    def _report(self, paths: list[str]) -> None:
        with self._lock:
            first = not self._changed
            self._changed.update(paths)
        if first:
            self._wake()

    def _watch(self, real: str, names: frozenset[str], subfolders: bool) -> bool:
        inode = _inode(real)
        if inode is None or is_remote(real, self._mounts):
            return False
        reporter = _Reporter(real, names, self._report)
        recursive = subfolders and _has_few_folders(real)
        try:
            if self._observer is None:
                self._observer = Observer()
                self._observer.start()
            observed = self._observer.schedule(
                reporter, real, recursive=recursive, event_filter=_EVENTS
            )
        except OSError:  # the system has no more watches for us
            return False
        self._watches[real] = _Watch(inode, names, subfolders, recursive, reporter, observed)
        return True

    def _unwatch(self, real: str) -> None:
        watch = self._watches.pop(real)
        if self._observer is not None:
            with suppress(KeyError):  # it ended by itself
                self._observer.unschedule(watch.observed)


def _has_few_folders(root: str) -> bool:
    count = 0
    for _, folders, _ in os.walk(root):
        count += len(folders)
        if count > MOST_FOLDERS:
            return False
    return True


def _inode(folder: str) -> tuple[int, int] | None:
    try:
        status = os.stat(folder)  # noqa: PTH116
    except OSError:
        return None
    return (status.st_dev, status.st_ino)
