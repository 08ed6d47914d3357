"""New timings that are not in the autotune cache file yet: `rocm_tui/tuned/<system hash>.jsonl`.

Rewriting a cache file of 29 MB takes half a second, so a new entry is appended here, which all
processes of ours read, and is folded into the cache file later. An entry is in a file that
survives the process once `append` returned; the disk has it once it is folded.

The first line names the journal, and what the fold before it did:

    {"journal": id, "fold": null | {"journal": id, "length": n, "before": [...], "after": [...]}}

Bytes up to `length` of the journal before turned the cache file with the signature `before` into
the one with the signature `after`; `before` is null if there is more in it. They stay in
`<system hash>.folded.jsonl` until the next fold, so that whoever knows the file as it was need not
parse all of the new one.
`<system hash>.kept.jsonl` has what was folded within a day; see `fold.Kept`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from backend.disk import safe
from backend.disk.exchange import Signature, signature_of
from backend.disk.safe import MAX_BYTES, open_regular, read_bytes
from backend.errors import NotWritable
from backend.wire.codec import WireError, dumps, loads, read, to_json

POLL_SECONDS = 0.0005
"""Between two looks at a lock that others hold for microseconds."""

mutex = threading.RLock()
"""Held with the lock of any journal: POSIX locks do not keep the threads of a process apart."""


@dataclass(frozen=True, slots=True)
class Fold:
    """`before` is None where the file has more in it than the journal says."""

    journal: str
    length: int
    before: Signature | None
    after: Signature


@dataclass(frozen=True, slots=True)
class _Header:
    """The first line of a journal."""

    journal: str
    fold: Fold | None


@dataclass(frozen=True, slots=True)
class Read:
    """Whole lines of the journal `id` from one offset up to `end`, in bytes. An `id` that is empty
    is unknown. `fold` is the last one before this journal."""

    id: str
    lines: bytes
    end: int
    fold: Fold | None = None

    def is_all_of(self, file: Signature | None) -> bool:
        """Whether the file has that signature since the last fold: nobody else wrote to it, or
        there is none."""
        return file is None or (self.fold is not None and self.fold.after == file)


NOTHING = Read("", b"", 0)


class Journal:
    """The journal of the cache file `cache_path`, whose cache dir is `root`."""

    patience = safe.LOCK_SECONDS
    """How long others may hold the journal."""

    def __init__(self, root: Path, cache_path: Path) -> None:
        self._root = root
        self.path = root / "rocm_tui" / "tuned" / f"{cache_path.name}.jsonl"
        self.folded_path = self.path.with_name(f"{cache_path.name}.folded.jsonl")

    def append(self, lines: bytes) -> None:
        """Add whole lines. Raises UnsafePath or NotWritable; a part of them may be there then."""
        safe.make_folder(self._root, self.path.parent)
        safe.check_file(self._root, self.path)
        with self._locked():
            try:
                append_lines(self.path, lines, _header(None))
            except OSError as error:
                raise safe.not_writable(self.path, error) from error

    def read(self, known: Read = NOTHING) -> Read:
        """What stands behind `known`, or all if that was another journal."""
        return self._read(self.path, known)

    def rest(self, known: Read, fold: Fold) -> bytes | None:
        """The lines that were folded behind `known`; None if they are not kept any more."""
        if known != NOTHING and known.id != fold.journal:
            return None
        if known.end >= fold.length:
            return b""
        folded = self._read(self.folded_path, known)
        return folded.lines if (folded.id, folded.end) == (fold.journal, fold.length) else None

    def signature(self) -> Signature | None:
        return signature_of(self.path)

    def rotate(self, folded: Read, before: Signature | None, after: Signature | None) -> None:
        """Begin a new journal with what was added behind `folded`, which is in the cache file.

        The caller holds the lock of the cache file. Raises NotWritable; nothing is lost then.
        """
        fold = Fold(folded.id, folded.end, before if folded.id else None, after) if after else None
        safe.check_file(self._root, self.path)
        with self._locked():
            data = read_bytes(self.path)
            self._keep_folded(data[: folded.end])
            safe.write_temporary(
                temporary := safe.temporary_path(self.path),
                _header(fold) + data[folded.end :],
                like=self.path,
                sync=False,
            )
            try:
                temporary.replace(self.path)
            except OSError as error:
                raise safe.not_writable(self.path, error) from error

    def _keep_folded(self, data: bytes) -> None:
        """Best effort: without it readers parse the cache file."""
        temporary = safe.temporary_path(self.folded_path)
        try:
            safe.write_temporary(temporary, data, like=self.path, sync=False)
            temporary.replace(self.folded_path)
        except (OSError, NotWritable):
            with contextlib.suppress(OSError):
                self.folded_path.unlink()

    def _read(self, path: Path, known: Read) -> Read:
        try:
            with open_regular(path) as stream:
                first = stream.readline(4096)
                header = _parse_header(first)
                name = header.journal
                begin = len(first) if name else 0
                if name and name == known.id and known.end >= begin:
                    begin = known.end
                stream.seek(begin)
                data = stream.read(MAX_BYTES)
        except OSError:
            return NOTHING
        lines = data[: data.rfind(b"\n") + 1]
        return Read(name, lines, begin + len(lines), header.fold)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the journal, for microseconds. POSIX locks: no fork keeps them, as it does others.

        Raises UnsafePath, or Busy when patience ends.
        """
        lock = self._root / "rocm_tui" / "locks" / f"tuned-{self.path.stem}.lock"
        safe.make_folder(self._root, lock.parent)
        safe.check_file(self._root, lock)
        with mutex:
            try:
                descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError as error:
                raise safe.not_writable(lock, error) from error
            try:
                _acquire(descriptor, lock, self.patience)
                for path in (self.path, self.folded_path):
                    safe.remove(safe.temporary_path(path))  # of a holder that was killed
                yield
            finally:
                os.close(descriptor)


def append_lines(path: Path, lines: bytes, first: bytes = b"") -> int:
    """Add whole lines to a file that nobody else writes now; `first` begins an empty one. Its size
    then. Raises OSError.

    What was torn stays a line of its own: nothing is cut off, so an offset stays what it is.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o666)
    try:
        size = os.fstat(descriptor).st_size
        if size == 0:
            lines = first + lines
        elif os.pread(descriptor, 1, size - 1) != b"\n":
            lines = b"\n" + lines  # ends what a kill, a power cut or a full disk tore
        if os.write(descriptor, lines) != len(lines):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return size + len(lines)
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, lock: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise safe.not_writable(lock, error) from error
            if time.monotonic() > deadline:
                raise safe.busy(lock) from error
        time.sleep(POLL_SECONDS)


def _header(fold: Fold | None) -> bytes:
    return dumps(to_json(_Header(secrets.token_hex(8), fold))).encode() + b"\n"


def _parse_header(line: bytes) -> _Header:
    """With an empty name if there is no such line."""
    try:
        return read(_Header, loads(line) if line.endswith(b"\n") else None)
    except WireError:
        return _Header("", None)
