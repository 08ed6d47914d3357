"""Safe reading and writing in the cache dir.

The cache dir may be shared or belong to another user. Whoever can change a folder can plant a
symlink where we are about to write, so such folders are refused; each write is locked and atomic. A
path may lead to anything: only regular files of limited size are read.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import json
import os
import stat
import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from backend.disk.trusted import OWN_CACHE, user_name, why_not_written
from backend.errors import Busy, CacheUnreadable, NotWritable, UnsafePath, brief

T = TypeVar("T")

MAX_BYTES = 512 << 20
"""10,000 keys of 30 choices are 29 MB; a file above this limit is not an autotune cache."""

LOCK_SECONDS = 30.0
POLL_SECONDS = 0.01
"""Seconds between two attempts to lock; with longer pauses, one of many writers starves."""


def check_folder(root: Path, folder: Path, instead: str = OWN_CACHE) -> None:
    """Raise UnsafePath unless `root` and each folder from there to `folder` are ours alone; the
    message recommends `instead`.

    A folder that does not exist yet is accepted: we will create it in a safe one.
    """
    for path in accumulate(folder.relative_to(root).parts, Path.joinpath, initial=root):
        status = _status(path)
        if status is None:
            return
        why = why_not_written(status, instead)
        if why:
            raise UnsafePath(f"not writing into {path}: {why}")


def check_table(path: Path) -> None:
    """Raise UnsafePath if writing the table `path`, at any location, is unsafe."""
    check_file(path.parent, path, "a copy of the table in a folder of your own")


def check_file(root: Path, path: Path, instead: str = OWN_CACHE) -> None:
    """Raise UnsafePath if writing the file `path` in `root` is unsafe; see `check_folder`."""
    check_folder(root, path.parent, instead)
    status = _status(path)
    if status is None:
        return
    if stat.S_ISLNK(status.st_mode):
        raise UnsafePath(f"not writing to {path}: it is a symlink; replace it by a file")
    if not stat.S_ISREG(status.st_mode):
        raise UnsafePath(f"not writing to {path}: it is not a regular file; move it away")
    if status.st_uid != os.geteuid():
        raise UnsafePath(f"not writing to {path}: it belongs to {user_name(status.st_uid)}")


def _status(path: Path) -> os.stat_result | None:
    """Return the status of a file or folder, not following a link; None if it does not exist."""
    try:
        return path.lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NotWritable(f"cannot look at {path}: {error.strerror}") from error


def make_folder(root: Path, folder: Path) -> None:
    """Make `folder` in `root`, safely. Raises UnsafePath or NotWritable."""
    check_folder(root, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(folder, error) from error
    check_folder(root, folder)


def lock_of(root: Path, path: Path, locks: Path | None = None) -> Path:
    """Return the path of our lock of the file `path`, see `locked`."""
    folder = locks or root / "rocm_tui" / "locks"
    return folder / f"{'-'.join(path.relative_to(root).parts)}.lock"


@contextlib.contextmanager
def locked(
    root: Path, path: Path, seconds: float = LOCK_SECONDS, locks: Path | None = None
) -> Iterator[None]:
    """Hold our lock of the file `path` in `root`. Raises UnsafePath, or Busy after `seconds`.

    All locks are in `locks`, by default `rocm_tui/locks`, so that Inductor's folders contain
    nothing of ours. Temporary files of a killed holder are removed.
    """
    from filelock import FileLock, Timeout  # 40 ms to import

    lock_path = lock_of(root, path, locks)
    folder = lock_path.parent
    make_folder(root, folder)
    check_folder(root, path.parent)
    check_file(root, lock_path)
    lock = FileLock(lock_path)
    try:
        lock.acquire(timeout=seconds, poll_interval=POLL_SECONDS)
    except Timeout as error:
        raise busy(lock_path) from error
    except OSError as error:
        raise not_writable(folder, error) from error
    try:
        remove(temporary_path(path))
        yield
    finally:
        lock.release()


_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP)
"""What a file system without locks answers, such as Lustre mounted without `flock`."""

NO_LOCK_SECONDS = 2.0
"""Seconds for which ENOLCK is tried again. NFS answers it while its lock daemon is overloaded, when
another host may hold the lock; and always if it has no lock daemon."""


@contextlib.contextmanager
def locked_table(path: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold our lock of the table `path`. Raises UnsafePath or NotWritable, or Busy after `seconds`.

    The lock file is beside the table, so that processes with other cache dirs and other hosts see
    it, and is removed afterwards. Where no file can be created, none can be replaced either: the
    table is not locked, and whoever writes it gets the error. Nor is it on a file system without
    locks.
    """
    lock = path.with_name(f".{path.name}.rocm_tui.lock")
    try:
        descriptor = _lock_within(lock, seconds)
    except OSError as error:
        raise not_writable(path, error) from error
    try:
        yield
    finally:
        if descriptor is not None:
            remove(lock)
            os.close(descriptor)


def _lock_within(lock: Path, seconds: float) -> int | None:
    """Make and lock a lock file; None where no file can be locked. Raises UnsafePath, OSError, or
    Busy after `seconds`."""
    begin = time.monotonic()
    while True:
        waited = time.monotonic() - begin
        try:
            descriptor = _lock(lock)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, *_NO_LOCKS):
                return None
            if error.errno != errno.ENOLCK:
                raise
            if waited > min(seconds, NO_LOCK_SECONDS):
                return None
        else:
            if descriptor is not None:
                return descriptor
            if waited > seconds:
                raise busy(lock)
        time.sleep(POLL_SECONDS)


def _lock(lock: Path) -> int | None:
    """Make and lock a lock file; None if another process holds it or just removed it. Raises
    UnsafePath and OSError."""
    check_file(lock.parent, lock)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), lock.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError as error:
        if error.errno in _NO_LOCKS:
            remove(lock)  # nobody can hold it
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def busy(lock: Path) -> Busy:
    """Return the error for a lock that another process does not release."""
    return Busy(f"another process holds {lock}; end it, or continue it if it is stopped")


def write_atomic(path: Path, data: bytes) -> None:
    """Replace the content of `path` by `data`: temporary file, fsync, rename. Raises NotWritable.
    The caller holds the lock of `path`."""
    temporary = temporary_path(path)
    write_temporary(temporary, data, like=path)
    put_in_place(temporary, path)
    sync(path.parent)


def put_in_place(temporary: Path, path: Path) -> None:
    """Rename a temporary file to `path`, or remove it. Raises NotWritable."""
    try:
        temporary.replace(path)
    except OSError as error:
        remove(temporary)
        raise not_writable(path, error) from error


def temporary_path(path: Path) -> Path:
    """Return the file in which the holder of `path`'s lock prepares new content. The name is fixed,
    so that leftovers of killed processes are reused and never pile up."""
    return path.with_name(f".{path.name}.rocm_tui.tmp")


def write_temporary(temporary: Path, data: bytes, like: Path, sync: bool = True) -> None:
    """Write a new file with the mode and group of `like`, if that exists. Raises NotWritable."""
    remove(temporary)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(temporary, flags, 0o666)
        with os.fdopen(descriptor, "wb") as stream, _closed_in_children(descriptor):
            with contextlib.suppress(FileNotFoundError):
                _resemble(stream.fileno(), like.stat())
            stream.write(data)
            stream.flush()
            if sync:
                os.fsync(stream.fileno())
    except FileExistsError as error:
        raise NotWritable(
            f"cannot write {like}: {temporary} is in the way; move it away"
        ) from error
    except OSError as error:
        remove(temporary)
        raise not_writable(like, error) from error


_being_written: set[int] = set()


@contextlib.contextmanager
def _closed_in_children(descriptor: int) -> Iterator[None]:
    """Close `descriptor` in each child that another thread forks meanwhile: the child would have
    the file open to write for as long as it lives, and `exchange` replaces no such file."""
    _being_written.add(descriptor)
    try:
        yield
    finally:
        _being_written.discard(descriptor)


def _after_fork_in_child() -> None:
    while _being_written:
        with contextlib.suppress(OSError):
            os.close(_being_written.pop())


os.register_at_fork(after_in_child=_after_fork_in_child)


def _resemble(descriptor: int, like: os.stat_result) -> None:
    """Copy a file's mode, and its group if permitted."""
    with contextlib.suppress(PermissionError):
        os.fchown(descriptor, -1, like.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(like.st_mode))


def sync(path: Path) -> None:
    """Make a file's content, or renames in a folder, durable if the file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


_ELSEWHERE = "choose another folder (of caches: TORCHINDUCTOR_CACHE_DIR)"


def not_writable(path: Path, error: OSError) -> NotWritable:
    """Return the error for a failed write to `path`."""
    advice = {
        errno.ENOSPC: "the disk is full; make room, then try again",
        errno.EDQUOT: "your disk quota is used up; make room, then try again",
        errno.EROFS: f"the file system is read-only; {_ELSEWHERE}",
        errno.EACCES: f"permission denied; {_ELSEWHERE}",
        errno.EPERM: f"not permitted; {_ELSEWHERE}",
    }.get(error.errno or 0, error.strerror or str(error))
    return NotWritable(f"cannot write {path}: {advice}")


def remove(path: Path) -> None:
    """Remove one of our files, if possible."""
    with contextlib.suppress(OSError):
        path.unlink()


class NotRegular(OSError):
    """The path is a folder, a pipe or a device, not a regular file."""


class _RegularFile(io.FileIO):
    """A regular file that raises BlockingIOError where FileIO returns None: `/proc/kmsg` looks like
    a regular file but may have nothing to read yet."""

    def readinto(self, buffer: Any) -> int:
        read: int | None = super().readinto(buffer)
        return _there(read)

    def readall(self) -> bytes:
        return _there(super().readall())


def _there(read: T | None) -> T:
    if read is None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return read


def open_regular(path: Path, follow: bool = False) -> BinaryIO:
    """Open the file at `path`, behind a symlink only with `follow`. Raises OSError, also later."""
    return io.BufferedReader(_RegularFile(_opened(path, follow)[0]))


def _opened(path: Path | str, follow: bool) -> tuple[int, int]:
    """Return the descriptor and size of a regular file. Raises OSError."""
    # Opening a FIFO must not block.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise NotRegular(f"{path} is not a regular file; move it away")
    return descriptor, status.st_size


def read_regular(path: Path | str, most: int | None = None, follow: bool = False) -> bytes:
    """Read a regular file, or its first `most` bytes; without a stream, which costs more than
    reading a small file. Raises OSError."""
    descriptor, size = _opened(path, follow)
    try:
        return _read(descriptor, size, most)
    finally:
        os.close(descriptor)


_STEP = 1 << 12


def _read(descriptor: int, size: int, most: int | None) -> bytes:
    """Read a file that may grow or shrink meanwhile."""
    parts: list[bytes] = []
    at = 0
    while most is None or at < most:
        step = max(size + 1 - at, _STEP)
        part = os.read(descriptor, step if most is None else min(step, most - at))
        if not part:
            break
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def read_bytes(path: Path | str, limit: int = MAX_BYTES) -> bytes:
    """Read a regular file of at most `limit` bytes. Raises CacheUnreadable."""
    with _reading(path):
        descriptor, size = _opened(path, follow=True)
        try:
            if size > limit:
                shift, unit = (20, "MiB") if limit >> 20 else (10, "KiB")
                raise CacheUnreadable(
                    f"{path} has {size >> shift} {unit}, more than {limit >> shift}; move it away"
                )
            return _read(descriptor, size, None)
        finally:
            os.close(descriptor)


def read_head(path: Path, size: int) -> bytes:
    """Read at most the first `size` bytes of a regular file. Raises CacheUnreadable."""
    with _reading(path):
        return read_regular(path, size, follow=True)


@contextlib.contextmanager
def _reading(path: Path | str) -> Iterator[None]:
    try:
        yield
    except NotRegular as error:
        raise CacheUnreadable(str(error)) from error
    except OSError as error:
        raise CacheUnreadable(f"cannot read {path}: {error.strerror}") from error


def load_json(path: Path, data: bytes) -> dict[str, Any]:
    """Return the JSON object in `data`. Raises CacheUnreadable with the location of the error."""
    try:
        document = json.loads(data)
    except RecursionError as error:
        raise CacheUnreadable(f"{path} is nested too deep; move the file away") from error
    except ValueError as error:
        why = brief(str(error), 80)
        raise CacheUnreadable(f"{path} is not JSON ({why}); move the file away") from error
    if not isinstance(document, dict):
        raise CacheUnreadable(f"{path} holds no JSON object; move the file away")
    return document


def exists(path: Path) -> bool:
    """Return whether the file exists. Raises CacheUnreadable if the folder is not accessible."""
    try:
        return path.exists()
    except OSError as error:
        raise CacheUnreadable(f"cannot read {path}: {error.strerror}") from error
