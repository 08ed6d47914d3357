"""What ranks tell each other: notes that are written once, and a sign of life beside each.

A note is made whole or not at all, by whoever is first; that also holds on NFS, where a hard link
is made by one alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from typing import Protocol

from backend.disk.safe import check_folder, make_folder, not_writable, open_regular
from backend.errors import StoreError, brief
from backend.ranks.job import Meeting

MOST = 1 << 20
"""Bytes of a note. More is none."""


class NoBoard(StoreError):
    """Ranks cannot meet: why, in a line."""


class Board(Protocol):
    """Each method raises NoBoard where the ranks cannot meet any more."""

    def read(self, name: str) -> bytes | None:
        """The note; None where there is none."""

    def put(self, name: str, note: bytes) -> bool:
        """Whether there was none of that name yet."""

    def take_down(self, name: str) -> None:
        """Remove a note of ours."""

    def beat(self, name: str) -> None:
        """Say that who wrote the note is at work."""

    def last_beat(self, name: str) -> object:
        """Something that changes with each `beat`."""


class FolderBoard:
    """Notes as files of one folder."""

    def __init__(self, meeting: Meeting) -> None:
        self._folder = meeting.path
        self._root = meeting.root
        try:
            make_folder(meeting.root, meeting.path)
        except StoreError as error:
            raise NoBoard(str(error)) from error

    def __str__(self) -> str:
        return str(self._folder)

    def read(self, name: str) -> bytes | None:
        try:
            with open_regular(self._folder / name) as stream:
                return stream.read(MOST)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise NoBoard(f"cannot read {self._folder / name}: {_reason(error)}") from error

    def put(self, name: str, note: bytes) -> bool:
        path = self._folder / name
        whole = self._folder / f".{name}.{_writer()}"
        try:
            check_folder(self._root, self._folder)
            with contextlib.suppress(FileNotFoundError):
                whole.unlink()
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(whole, flags, 0o644), "wb") as stream:
                stream.write(note)
            try:
                os.link(whole, path)
            finally:
                whole.unlink()
        except FileExistsError:
            return False
        except StoreError as error:
            raise NoBoard(str(error)) from error
        except OSError as error:
            if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                why = f"{self._folder} has no hard links; name another one with --agree-dir"
                raise NoBoard(why) from error
            raise NoBoard(str(not_writable(path, error))) from error
        return True

    def take_down(self, name: str) -> None:
        with contextlib.suppress(OSError):
            (self._folder / name).unlink()

    def beat(self, name: str) -> None:
        with contextlib.suppress(OSError):  # a sign that is missing is seen by those who wait
            os.utime(self._folder / name)

    def last_beat(self, name: str) -> object:
        try:
            return (self._folder / name).stat().st_mtime_ns
        except OSError:
            return None


def _writer() -> str:
    """Names this thread among those of all hosts."""
    return f"{os.uname().nodename[:64]}.{os.getpid()}.{threading.get_ident()}"


def _reason(error: OSError) -> str:
    return brief(error.strerror or str(error), 80)
