"""The trust rule for folders in a cache dir: which may be written into, and from which code may
run.

A folder is trusted if it is ours (to read and run: or root's), is no link, and nobody else can
create or rename anything in it. Paths are opened folder by folder from the cache dir down, each
relative to the descriptor of its parent, so that nobody can exchange a folder between check and
use. Folders above the cache dir need not be trusted: others can only put things there that are not
ours.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from backend.errors import UnsafePath

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


OWN_CACHE = "a cache dir of your own (TORCHINDUCTOR_CACHE_DIR)"
"""The advice when a folder cannot be trusted."""


def why_not_written(status: os.stat_result, instead: str = OWN_CACHE) -> str:
    """Return why a folder must not be written into, advising `instead`; or an empty string."""
    return _why(status, {os.geteuid()}, instead)


def why_not_run(status: os.stat_result) -> str:
    """Return why nothing may be loaded or run from a folder, or an empty string."""
    return _why(status, {os.geteuid(), 0}, OWN_CACHE)


@contextlib.contextmanager
def opened_folder(root: Path, folder: Path, make: bool = False) -> Iterator[int]:
    """Yield a descriptor of `folder`, from which files may be run; `root` is the cache dir above
    it.

    With `make`, missing folders are created with access for us alone. Raises UnsafePath, and
    OSError if a folder is missing or cannot be opened.
    """
    if make:
        root.mkdir(parents=True, exist_ok=True)
    path = root
    descriptor = os.open(os.path.realpath(root), _FOLDER)
    try:
        _check(descriptor, path)
        for name in folder.relative_to(root).parts:
            path = path / name
            inner = _open_below(descriptor, name, path, make)
            os.close(descriptor)
            descriptor = inner
            _check(descriptor, path)
        status = os.fstat(descriptor)
        if status.st_mode & stat.S_IWOTH or _group_writes(status):  # sticky: files beside ours
            raise _refused(path, "others can write there; chmod go-w it")
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def opened_file(root: Path, path: Path) -> Iterator[int]:
    """Yield a descriptor of a regular file in `root` that may be run. Raises UnsafePath,
    OSError."""
    with opened_folder(root, path.parent) as folder:
        try:
            descriptor = os.open(path.name, _FILE, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _refused(path, "it is a symlink; remove it") from error
            raise
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise _refused(path, "it is not a regular file; remove it")
            if status.st_uid not in (os.geteuid(), 0):
                raise _refused(path, f"it belongs to {user_name(status.st_uid)}; remove it")
            if status.st_mode & stat.S_IWOTH or _group_writes(status):
                raise _refused(path, "others can write it; remove it")
            yield descriptor
        finally:
            os.close(descriptor)


def read_file(root: Path, path: Path) -> bytes:
    """Return the content of a file that may be run. Raises UnsafePath and OSError."""
    with opened_file(root, path) as descriptor, os.fdopen(os.dup(descriptor), "rb") as stream:
        return stream.read()


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _open_below(folder: int, name: str, path: Path, make: bool) -> int:
    try:
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=folder)
        return os.open(name, _FOLDER, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise _refused(path, "it is a symlink or a file; remove it") from error
        raise


def _check(descriptor: int, path: Path) -> None:
    why = why_not_run(os.fstat(descriptor))
    if why:
        raise _refused(path, why)


def _refused(path: Path, why: str) -> UnsafePath:
    return UnsafePath(f"nothing is loaded from {path}: {why}")


def _why(status: os.stat_result, owners: set[int], instead: str) -> str:
    mode = status.st_mode
    if stat.S_ISLNK(mode):
        return "it is a symlink; set TORCHINDUCTOR_CACHE_DIR to the real folder"
    if not stat.S_ISDIR(mode):
        return "it is not a folder"
    if status.st_uid not in owners:
        return f"it belongs to {user_name(status.st_uid)}; run as that user or choose {instead}"
    if mode & stat.S_ISVTX:
        return ""
    if mode & stat.S_IWOTH:
        return "every user can write there; chmod o-w it"
    if _group_writes(status):
        group = _group(status.st_gid)
        return f"the group {group} can write there; chmod g-w it, or choose {instead}"
    return ""


def _group_writes(status: os.stat_result) -> bool:
    return bool(status.st_mode & stat.S_IWGRP) and not _is_private_group(status.st_gid)


def _is_private_group(gid: int) -> bool:
    """Return whether a group is the user's own, named after them, as on systems with umask 002."""
    try:
        user, group = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(gid)
    except KeyError:
        return gid == os.geteuid()
    return group.gr_name == user and set(group.gr_mem) <= {user}


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
