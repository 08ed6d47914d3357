"""Changing a file that others replace without taking a lock, and losing nothing of theirs.

Stock PyTorch writes its autotune cache as temporary file + rename, from a copy that it read before
it benchmarked. A plain rename of ours could fall on top of what it wrote since we read. So the new
content is *exchanged* with the file (`renameat2`), which shows what was really there. If that is
not what the edit was based on, it is exchanged back within microseconds, and the edit is made
again. A program that reads the file within these microseconds, which a busy machine can make
longer, misses the one entry that it wrote last, and benchmarks that problem again some day.

Where the file system cannot exchange (NFS and a few others), the file is looked at once more right
before a plain rename. A write within those microseconds is then lost.

A program that holds the old file open keeps writing into it, and that is lost too: TunableOp keeps
its results open from the first product that it tunes to its end. So such a program is looked for
(`writer_of`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.disk import safe
from backend.disk.safe import read_bytes
from backend.errors import Busy, CacheUnreadable, NotWritable, brief

ROUNDS = 20
"""Each lost race costs one; a stock writer needs seconds of benchmarking between two writes."""

RESCUE_ROUNDS = 200
"""As many more are spent to put back what was displaced, if the edit has to be given up."""

PATIENT_ROUNDS = 2
"""After this many lost races the new content is synced to disk after the exchange, not before:
syncing takes longer than some writers pause."""

Edit = Callable[[bytes], bytes]
Merge = Callable[[Path, bytes, bytes], bytes]
"""Returns the newer content with additions of the older; raises CacheUnreadable if one is
foreign."""
Signature = tuple[int, int, int]
"""Inode, time of change and size of a file; renaming keeps all three."""

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_CANNOT = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EXDEV}


def newer(path: Path, newer: bytes, older: bytes) -> bytes:
    """A `Merge` for files that every writer replaces as a whole: return the newer content."""
    return newer


def leftover_path(path: Path) -> Path:
    """The file that an exchange displaced; exists only within `update`, after a kill there, or
    where others wrote without a pause: the next `update` puts it back."""
    return path.with_name(f".{path.name}.rocm_tui.displaced")


def is_unfinished(path: Path) -> bool:
    """Return whether a killed process left prepared or displaced content beside `path`."""
    return any(os.path.lexists(p) for p in (leftover_path(path), safe.temporary_path(path)))


def update(path: Path, edit: Edit, merge: Merge, keep_time: bool = False) -> bool:
    """Give `path` the content `edit(content)`; True if it was changed. With `keep_time` it stays as
    old as it is.

    `edit` may be called several times, each time with newer content; it returns what it was given
    to leave the file alone. False also if others wrote faster than we can: nothing is changed then.
    `merge` brings together what two writers wrote at once.
    The caller holds the lock of `path`. Raises CacheUnreadable and NotWritable.
    """
    leftover = leftover_path(path)
    safe.remove(safe.temporary_path(path))  # of a process that was killed
    rescued = _recovered(path, leftover, merge)
    for turn in range(ROUNDS + RESCUE_ROUNDS):
        gave_up = turn >= ROUNDS
        if gave_up and rescued is None:
            break
        with _held(path) as signature:
            data = read_bytes(path)
            base = data if rescued is None else rescued.merged_with(path, data, signature, merge)
            content = base if gave_up else edit(base)
            if content == data:
                safe.remove(leftover)
                return False
            patient = turn < PATIENT_ROUNDS
            _prepare(path, leftover, content, patient, keep_time)
            if signature_of(path) != signature:
                continue
            displaced = _swap(leftover, path, signature)
        if displaced is None:
            safe.remove(leftover)
            if not patient:
                safe.sync(path)
            safe.sync(path.parent)
            return not gave_up
        if displaced.data is not None:
            rescued = displaced.joined(path, rescued, merge)
    if rescued is None:
        safe.remove(leftover)
    else:
        _prepare(path, leftover, rescued.data or b"{}", True)
    return False


@dataclass(frozen=True, slots=True)
class _Displaced:
    """Displaced content that must return to the file; `data` is None if nothing must. It is newer
    than the file with the signature `older`, and older than any other."""

    data: bytes | None
    older: Signature | None = None

    def joined(self, path: Path, earlier: _Displaced | None, merge: Merge) -> _Displaced:
        """Merge with content displaced earlier that is not back in the file yet."""
        if earlier is None or earlier.data is None or self.data is None:
            return self
        return _Displaced(merge(path, self.data, earlier.data), self.older)

    def merged_with(self, path: Path, data: bytes, signature: Signature, merge: Merge) -> bytes:
        rescued = self.data or b"{}"
        if signature == self.older:
            return merge(path, rescued, data)
        return merge(path, data, rescued)


def signature_of(path: Path) -> Signature | None:
    """Return a value that changes whenever the file is replaced or written; None without a file."""
    try:
        return _signature(path)
    except OSError:
        return None


def _recovered(path: Path, leftover: Path, merge: Merge) -> _Displaced | None:
    """Return what a killed process had displaced. Its entries are merged where they are missing.

    Anything a killed process cannot have left (a pipe, a device, a link, garbage) is moved aside.
    """
    if not os.path.lexists(leftover):
        return None
    try:
        if leftover.is_symlink():
            raise CacheUnreadable(f"{leftover} is a symlink")
        data = read_bytes(leftover)
        merge(path, data, data)  # some derive the format from the name
    except CacheUnreadable:
        try:
            leftover.replace(path.with_name(f".{path.name}.rocm_tui.unreadable"))
        except OSError as error:
            raise NotWritable(f"{leftover} is in the way; move it away") from error
        return None
    return _Displaced(data)


@contextlib.contextmanager
def _held(path: Path) -> Iterator[Signature]:
    """Keep the file open and yield its signature: no other file can get its inode meanwhile, so two
    writers of equal sizes within one clock tick stay distinguishable."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise CacheUnreadable(f"cannot read {path}: it was removed just now") from error
    except OSError as error:
        raise CacheUnreadable(f"cannot read {path}: {error.strerror}") from error
    try:
        yield _of(os.fstat(descriptor))
    finally:
        os.close(descriptor)


def _signature(path: Path) -> Signature:
    return _of(path.stat())


def _of(status: os.stat_result) -> Signature:
    return status.st_ino, status.st_mtime_ns, status.st_size


def _prepare(
    path: Path, leftover: Path, content: bytes, sync: bool, keep_time: bool = False
) -> None:
    """Write `content`, which includes `leftover`'s old content, to `leftover`."""
    temporary = safe.temporary_path(path)
    safe.write_temporary(temporary, content, like=path, sync=sync)
    try:
        if keep_time:
            status = path.stat()
            os.utime(temporary, ns=(status.st_atime_ns, status.st_mtime_ns))
        temporary.replace(leftover)
    except OSError as error:
        safe.remove(temporary)
        raise safe.not_writable(path, error) from error


def _swap(prepared: Path, path: Path, expected: Signature) -> _Displaced | None:
    """Replace `path` by `prepared` if it has the signature `expected`; else return what it has."""
    ours = _signature(prepared)
    try:
        if not exchange(prepared, path):
            prepared.replace(path)
            return None
        there = _signature(prepared)
        if there == expected and writer_of(prepared) is None:  # who has it open still writes there
            return None
        exchange(prepared, path)
        if _signature(prepared) == ours:
            return _Displaced(None)
        # Another writer was active between the two exchanges.
        return _Displaced(read_bytes(prepared), older=there)
    except OSError as error:
        raise safe.not_writable(path, error) from error


def exchange(first: Path, second: Path) -> bool:
    """Exchange two files of one folder atomically; False if the file system cannot. Raises OSError
    for any other reason."""
    import ctypes  # slow to load, and only a writer needs it

    rename = _renameat2()
    if rename is None:
        return False
    names = os.fsencode(first), os.fsencode(second)
    if rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT:
        return False
    raise OSError(code, os.strerror(code), str(second))


@functools.cache
def _renameat2() -> Any:
    """Return glibc's `renameat2`, or None if the C library has none."""
    import ctypes  # as above

    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is not None:
        function.argtypes = [*(ctypes.c_int, ctypes.c_char_p) * 2, ctypes.c_uint]
    return function


_PROC = Path("/proc")


def writer_of(path: Path) -> str | None:
    """Return a program that has the file open to write, if it is visible from here."""
    return None if _nobody_writes(path) else next(_writers(path), None)


def check_unwritten(path: Path) -> None:
    """Raise Busy if a visible program has `path` open to write."""
    writer = writer_of(path)
    if writer is not None:
        raise Busy(
            f"{path} is open in {writer}, and what that writes next would be lost; "
            "try again when it has ended"
        )


def _nobody_writes(path: Path) -> bool:
    """Return whether the kernel confirms that no process has the file open to write: it then grants
    a read lease. False where leases are not supported or the file is another user's."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # A lease is broken by a signal, whose default would end us.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except (OSError, AttributeError):
        return False
    else:
        return True
    finally:
        os.close(descriptor)


def _writers(path: Path) -> Iterator[str]:
    """Yield the processes of this user (for root, of all) that have the file open to write."""
    try:
        file = path.stat()
        processes = [entry for entry in _PROC.iterdir() if entry.name.isdigit()]
    except OSError:
        return
    for process in processes:
        with suppress(OSError):  # another user's, or ended
            for stream in (process / "fd").iterdir():
                with suppress(OSError):
                    same = os.path.samestat(stream.stat(), file)
                    if same and stream.lstat().st_mode & stat.S_IWUSR:
                        name = (process / "comm").read_text("utf-8", "replace").strip()
                        yield f"{brief(name, 40)} (process {process.name})"
