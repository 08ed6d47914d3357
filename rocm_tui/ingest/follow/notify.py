"""inotify, for folders without their subfolders; and where inotify is blind.

One descriptor for all folders, which whoever waits for other things waits for, too: no threads. A
watched folder costs the kernel some 1 KB and nothing while it is left alone, so that a cache dir's
thousand can be watched. Opening and closing is not asked for: our own reading does that.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

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


_MODIFY, _ATTRIB, _MOVED_FROM, _MOVED_TO = 0x2, 0x4, 0x40, 0x80
_CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x100, 0x200, 0x400, 0x800
_OVERFLOW, _IGNORED, _ONLY_FOLDERS = 0x4000, 0x8000, 0x1000000
_OF_NAMES = _MODIFY | _ATTRIB | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
_WANTED = _OF_NAMES | _DELETE_SELF | _MOVE_SELF | _ONLY_FOLDERS
_EVENT = struct.Struct("iIII")
"""`struct inotify_event` before its name, see inotify(7)."""
_ROOM = 1 << 16
"""Bytes of events that are taken at once; the kernel keeps 16,384 events."""
_FULL = (errno.ENOSPC, errno.ENOMEM)


class Notifier:
    """Tells what changes in folders. For one thread, but for `folders`.

    Folders that cannot be watched are simply not in `folders`: the caller polls there.
    """

    def __init__(self) -> None:
        self.descriptor = -1
        """Can be read from when `take` has something to tell; below 0 if nothing is watched."""
        self._watches: dict[str, tuple[int, tuple[int, int]]] = {}
        self._paths: dict[int, list[str]] = {}
        self._remote: dict[int, bool] = {}
        self._blind = sys.platform != "linux"

    @property
    def folders(self) -> frozenset[str]:
        """The folders that are being watched now."""
        return frozenset(self._watches)

    def sync(self, wanted: Iterable[str]) -> bool:
        """Watch exactly these folders, those that exist and can be; True if anything changed."""
        states = {folder: _identity(folder) for folder in wanted}
        before = self.folders
        for folder, (_, watched) in list(self._watches.items()):
            if states.get(folder) != watched:
                self._unwatch(folder)
        for folder in sorted(states.keys() - self._watches.keys(), key=len):  # the highest first
            identity = states[folder]
            if identity is not None and not self._watch(folder, identity):
                break
        return self.folders != before

    def take(self) -> set[str] | None:
        """The paths that changed since the last call; None if there were too many to tell."""
        changed: set[str] = set()
        told = True
        for watch, mask, name in self._events():
            told = told and not mask & _OVERFLOW
            paths = self._paths.get(watch, ())
            if mask & _IGNORED:  # the folder is gone
                for path in self._paths.pop(watch, ()):
                    self._watches.pop(path, None)
            elif mask & _OF_NAMES and name:
                changed.update(os.path.join(path, os.fsdecode(name)) for path in paths)  # noqa: PTH118
            else:
                changed.update(paths)
        return changed if told else None

    def stop(self) -> None:
        """Watch nothing any more."""
        self._watches.clear()
        self._paths.clear()
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _events(self) -> Iterator[tuple[int, int, bytes]]:
        """The watch, the mask and the name of each that waits."""
        while self.descriptor >= 0:
            try:
                data = os.read(self.descriptor, _ROOM)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                watch, mask, _, size = _EVENT.unpack_from(data, at)
                at += _EVENT.size + size
                yield watch, mask, data[at - size : at].rstrip(b"\0")

    def _watch(self, folder: str, identity: tuple[int, int]) -> bool:
        """False if the system watches no more folders."""
        if self._blind:
            return False
        device = identity[0]
        if device not in self._remote:
            self._remote[device] = is_remote(folder)
        if self._remote[device]:
            return True
        if self.descriptor < 0:
            self.descriptor = _libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.descriptor < 0:
            self._blind = True
            return False
        watch = _libc().inotify_add_watch(self.descriptor, os.fsencode(folder), _WANTED)
        if watch < 0:
            return _errno() not in _FULL
        self._watches[folder] = watch, identity
        self._paths.setdefault(watch, []).append(folder)  # two names of one folder are one watch
        return True

    def _unwatch(self, folder: str) -> None:
        watch, _ = self._watches.pop(folder)
        paths = self._paths[watch]
        paths.remove(folder)
        if not paths:
            del self._paths[watch]
            _libc().inotify_rm_watch(self.descriptor, watch)


@lru_cache(maxsize=1)
def _libc() -> Any:
    import ctypes  # slow to load, and most commands watch nothing

    return ctypes.CDLL(None, use_errno=True)


def _errno() -> int:
    import ctypes  # as above

    return ctypes.get_errno()


def _identity(folder: str) -> tuple[int, int] | None:
    try:
        status = os.stat(folder)  # noqa: PTH116
    except OSError:
        return None
    return (status.st_dev, status.st_ino)
