"""inotify through watchdog, for folders without their subfolders; and where inotify is blind.

watchdog's default filter reports every open and close, which our own reading causes; on a cache dir
that is all it then does. So the filter here names what we need. watchdog is loaded when the first
folder is watched: it is slow to import, and most commands watch nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

# File systems whose changes happen on another machine
_REMOTE = frozenset(
    "9p afs beegfs ceph cifs glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2 orangefs panfs smb2 smb3 "
    "smbfs virtiofs wekafs".split()
)


def is_remote(path: str, mountinfo: str | None = None) -> bool:
    """Whether `path` lies on a network file system, by the longest mount point above it.

    `mountinfo` is the text of `/proc/self/mountinfo`; False where there is none.
    """
    real = os.path.realpath(path)
    kind, longest = "", -1
    for mount, type_ in _mounts() if mountinfo is None else _parse(mountinfo):
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= longest:
            kind, longest = type_, len(mount)
    return kind in _REMOTE or kind.startswith("fuse.")


@lru_cache(maxsize=1)
def _mounts() -> tuple[tuple[str, str], ...]:
    try:
        return _parse(Path("/proc/self/mountinfo").read_text(errors="replace"))
    except OSError:
        return ()


def _parse(text: str) -> tuple[tuple[str, str], ...]:
    """Mount points and types: `36 35 98:0 / /mnt rw,noatime master:1 - ext4 /dev/root rw`."""
    mounts = []
    for line in text.splitlines():
        left, dash, right = line.partition(" - ")
        fields = left.split(" ")
        if dash and len(fields) > 4 and right:
            mount = fields[4].replace("\\040", " ").replace("\\011", "\t")
            mounts.append((mount, right.split(" ")[0]))
    return tuple(mounts)


if TYPE_CHECKING:
    from watchdog.events import FileSystemEventHandler
    from watchdog.observers.api import BaseObserver


@dataclass(frozen=True, slots=True)
class _Watch:
    handle: Any
    device: int
    inode: int


class Notifier:
    """Calls `changed(path)` from a thread of its own when something in a watched folder changes.

    Folders that cannot be watched are simply not in `folders`: the caller polls there.
    """

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._observer: BaseObserver | None = None
        self._watches: dict[str, _Watch] = {}
        self._full = False

    @property
    def folders(self) -> frozenset[str]:
        """The folders that are being watched now."""
        return frozenset(self._watches)

    def sync(self, wanted: Iterable[str]) -> bool:
        """Watch exactly these folders, those that exist and can be; True if anything changed."""
        states = {folder: _identity(folder) for folder in wanted}
        before = self.folders
        for folder, watch in list(self._watches.items()):
            if states.get(folder) != (watch.device, watch.inode):
                self._unwatch(folder)
        for folder, identity in states.items():
            if identity is not None and folder not in self._watches:
                self._watch(folder, identity)
        return self.folders != before

    def stop(self) -> None:
        """Watch nothing any more; its threads end."""
        self._watches.clear()
        if self._observer is not None:
            self._observer.stop()
            self._observer.join()
            self._observer = None

    def _watch(self, folder: str, identity: tuple[int, int]) -> None:
        if self._full or is_remote(folder):
            return
        from watchdog import events

        try:
            observer = self._started()
            if observer is None:
                return
            handle = observer.schedule(
                _handler(self._changed),
                folder,
                recursive=False,
                event_filter=[
                    events.FileModifiedEvent,
                    events.FileCreatedEvent,
                    events.FileMovedEvent,
                    events.FileDeletedEvent,
                    events.DirCreatedEvent,
                    events.DirMovedEvent,
                    events.DirDeletedEvent,
                ],
            )
        except OSError:  # no watches or instances left, or the folder is gone again
            return
        self._watches[folder] = _Watch(handle, *identity)

    def _unwatch(self, folder: str) -> None:
        watch = self._watches.pop(folder)
        if self._observer is not None:
            try:
                self._observer.unschedule(watch.handle)
            except (KeyError, OSError):
                return  # watchdog dropped it when the folder was deleted

    def _started(self) -> BaseObserver | None:
        if self._observer is None:
            from watchdog.observers import Observer
            from watchdog.observers.polling import PollingObserver

            observer = Observer()
            if isinstance(observer, PollingObserver):  # its snapshots are slower than our own
                self._full = True
                return None
            observer.daemon = True
            observer.start()
            self._observer = observer
        return self._observer


def _handler(changed: Callable[[str], None]) -> FileSystemEventHandler:
    from watchdog.events import FileSystemEvent, FileSystemEventHandler

    class Handler(FileSystemEventHandler):
        def dispatch(self, event: FileSystemEvent) -> None:
            for path in (event.src_path, event.dest_path):
                if path:
                    changed(os.fsdecode(path))

    return Handler()


def _identity(folder: str) -> tuple[int, int] | None:
    try:
        status = os.stat(folder)  # noqa: PTH116
    except OSError:
        return None
    return (status.st_dev, status.st_ino)
