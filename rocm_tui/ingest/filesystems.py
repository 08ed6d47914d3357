"""Where inotify is blind: file systems whose changes happen on another machine."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

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
    for mount, found in _mounts() if mountinfo is None else _parse(mountinfo):
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= longest:
            kind, longest = found, len(mount)
    return kind in _REMOTE or kind.startswith("fuse.")


@lru_cache(maxsize=1)
def _mounts() -> tuple[tuple[str, str], ...]:
    try:
        return _parse(Path("/proc/self/mountinfo").read_text(errors="replace"))
    except OSError:
        return ()


def _parse(text: str) -> tuple[tuple[str, str], ...]:
    """Mount points and types: `36 35 98:0 / /mnt rw,noatime master:1 - ext4 /dev/root rw`."""
    found = []
    for line in text.splitlines():
        left, dash, right = line.partition(" - ")
        fields = left.split(" ")
        if dash and len(fields) > 4 and right:
            mount = fields[4].replace("\\040", " ").replace("\\011", "\t")
            found.append((mount, right.split(" ")[0]))
    return tuple(found)
