"""Reading and writing below the cache dir without doing harm.

The cache dir may be shared or belong to somebody else. Whoever can change a folder can put a
symlink where we are about to write, so such folders are refused; each write is locked and atomic.
Anything may stand in a file's place: what is no regular file is not read, nor is one without end.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from backend.disk.trusted import user_name, why_not_written
from backend.errors import Busy, CacheUnreadable, NotWritable, UnsafePath, brief

MAX_BYTES = 512 << 20
"""10,000 keys of 30 choices are 29 MB; a file above this is no autotune cache."""

LOCK_SECONDS = 30.0
POLL_SECONDS = 0.01
"""Between two looks at a lock: with longer rests, one of many writers hardly gets its turn."""


def check_folder(root: Path, folder: Path) -> None:
    """Raise UnsafePath unless `root` and each folder from there to `folder` are ours alone.

    A folder that does not exist yet is fine: it will be made by us in one that is.
    """
    for path in (root, *(root.joinpath(*part) for part in _prefixes(folder.relative_to(root)))):
        try:
            status = path.lstat()
        except FileNotFoundError:
            return
        except OSError as error:
            raise NotWritable(f"cannot look at {path}: {error.strerror}") from error
        why = why_not_written(status)
        if why:
            raise UnsafePath(f"not writing into {path}: {why}")


def check_file(root: Path, path: Path) -> None:
    """Raise UnsafePath if writing the file `path` below `root` is unsafe; see `check_folder`."""
    check_folder(root, path.parent)
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise NotWritable(f"cannot look at {path}: {error.strerror}") from error
    if stat.S_ISLNK(status.st_mode):
        raise UnsafePath(f"not writing to {path}: it is a symlink; replace it by a file")
    if not stat.S_ISREG(status.st_mode):
        raise UnsafePath(f"not writing to {path}: it is not a regular file; move it away")
    if status.st_uid != os.geteuid():
        raise UnsafePath(f"not writing to {path}: it belongs to {user_name(status.st_uid)}")


def make_folder(root: Path, folder: Path) -> None:
    """Make `folder` below `root`, safely. Raises UnsafePath or NotWritable."""
    check_folder(root, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(folder, error) from error
    check_folder(root, folder)


@contextlib.contextmanager
def locked(
    root: Path, path: Path, seconds: float = LOCK_SECONDS, locks: Path | None = None
) -> Iterator[None]:
    """Hold our lock of the file `path` below `root`. Raises UnsafePath, or Busy after `seconds`.

    All locks lie in `rocm_tui/locks`, so that Inductor's own folders hold nothing of ours, else in
    `locks`. What a killed holder was preparing is removed.
    """
    from filelock import FileLock, Timeout  # 40 ms to import

    folder = locks or root / "rocm_tui" / "locks"
    make_folder(root, folder)
    check_folder(root, path.parent)
    lock_path = folder / f"{'-'.join(path.relative_to(root).parts)}.lock"
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


def busy(lock: Path) -> Busy:
    """The one line for a lock that another process does not let go."""
    return Busy(f"another process holds {lock}; end it, or continue it if it is stopped")


def write_atomic(path: Path, data: bytes) -> None:
    """Replace the content of `path` by `data`: temporary file, fsync, rename. Raises NotWritable.

    The caller holds the lock of `path`.
    """
    temporary = temporary_path(path)
    write_temporary(temporary, data, like=path)
    try:
        temporary.replace(path)
    except OSError as error:
        remove(temporary)
        raise not_writable(path, error) from error
    sync(path.parent)


def temporary_path(path: Path) -> Path:
    """Where the holder of the lock of `path` prepares its new content.

    One fixed name, so that what a killed process left behind is reused and never piles up.
    """
    return path.with_name(f".{path.name}.rocm_tui.tmp")


def write_temporary(temporary: Path, data: bytes, like: Path, sync: bool = True) -> None:
    """Write a new file with the mode of `like`, if that exists. Raises NotWritable."""
    remove(temporary)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, 0o666), "wb") as stream:
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(stream.fileno(), stat.S_IMODE(like.stat().st_mode))
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


def sync(path: Path) -> None:
    """Make a file's content, or renames in a folder, durable. File systems that cannot are left
    alone."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def not_writable(path: Path, error: OSError) -> NotWritable:
    """The one line for a write to `path` that failed."""
    advice = {
        errno.ENOSPC: "the disk is full; make room, then try again",
        errno.EDQUOT: "your disk quota is used up; make room, then try again",
        errno.EROFS: "the file system is read-only; choose another TORCHINDUCTOR_CACHE_DIR",
        errno.EACCES: "permission denied; choose another TORCHINDUCTOR_CACHE_DIR",
        errno.EPERM: "not permitted; choose another TORCHINDUCTOR_CACHE_DIR",
    }.get(error.errno or 0, error.strerror or str(error))
    return NotWritable(f"cannot write {path}: {advice}")


def _prefixes(relative: Path) -> Iterator[tuple[str, ...]]:
    for length in range(1, len(relative.parts) + 1):
        yield relative.parts[:length]


def remove(path: Path) -> None:
    """Remove a file of ours, if it can be."""
    with contextlib.suppress(OSError):
        path.unlink()


class NotRegular(OSError):
    """A folder, a pipe or a device stands in the place of a file."""


def open_regular(path: Path, follow: bool = False) -> BinaryIO:
    """The file at `path`, behind a symlink only with `follow`. Raises OSError."""
    # A FIFO in the file's place must not block us.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegular(f"{path} is not a regular file; move it away")
    return os.fdopen(descriptor, "rb")


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """The content of a regular file of at most `limit` bytes. Raises CacheUnreadable."""
    try:
        with open_regular(path, follow=True) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size > limit:
                raise CacheUnreadable(
                    f"{path} has {size >> 20} MiB, more than {limit >> 20}; move it away"
                )
            return stream.read()
    except NotRegular as error:
        raise CacheUnreadable(str(error)) from error
    except OSError as error:
        raise CacheUnreadable(f"cannot read {path}: {error.strerror}") from error


def load_json(path: Path, data: bytes) -> dict[str, Any]:
    """The JSON object that `data` holds. Raises CacheUnreadable with the place of the fault."""
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
    """Whether there is such a file. Raises CacheUnreadable where we may not look."""
    try:
        return path.exists()
    except OSError as error:
        raise CacheUnreadable(f"cannot read {path}: {error.strerror}") from error
