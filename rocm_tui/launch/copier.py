"""Copies what a program writes to its terminal into a file, until nobody can write there any more.

    python -I -S copier.py BELL FILE < TERMINAL

It is a process of its own in a session of its own: so the program and its output outlive the
screen that started them, however that ends. `BELL` is a pipe that gets a byte whenever something
was written, for as long as somebody reads it: 0, or the number of the error by which it was lost.
The end of the file says so too, where the disk is full. Nothing of ours is imported: it starts at
once.

A file that has become too long gives way to one with its newer half, which says so in its first
line; so readers see another inode, and know where they are.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress

LOST = b"\n[rocm-tui: from here on output is lost: "
MOST = 64 << 20
"""Bytes of output that are kept."""
DROPPED = b"[rocm-tui: the first %d bytes are not kept]\n"
_CHUNK = 1 << 16
_PIECE = 1 << 20


def copy(terminal: int, path: str, bell: int, most: int) -> None:
    """Returns when the last process that has the terminal is gone."""
    os.set_blocking(bell, False)
    file = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    size = total = 0
    while data := _read(terminal):
        view, error = memoryview(data), 0
        try:
            if size + len(data) > most:
                keep = min(size, most // 2)
                file, size = shortened(file, path, 0, DROPPED % (total - keep), size - keep)
            while view:
                written = os.write(file, view)
                view, size, total = view[written:], size + written, total + written
        except OSError as full:  # the program must not notice
            error = full.errno or errno.EIO
            _mark(file, error)
        with suppress(OSError):  # it is full, or the screen is gone
            os.write(bell, bytes((min(error, 255),)))


def shortened(file: int, path: str, head: int, line: bytes, start: int) -> tuple[int, int]:
    """Replace a file by its first `head` bytes, a line, and what it has from `start` on; return the
    new one and its size. Raises OSError, and then the file is as it was."""
    newer = f"{path}.tmp"
    with suppress(FileNotFoundError):
        os.unlink(newer)  # noqa: PTH108 - pathlib would take 10 ms to import
    copied = os.open(newer, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    try:
        at = 0
        while at < head:
            at += os.write(copied, os.pread(file, min(_PIECE, head - at), at))
        size = head + os.write(copied, line)
        while data := os.pread(file, _PIECE, start):
            written = os.write(copied, data)
            start, size = start + written, size + written
        os.rename(newer, path)  # noqa: PTH104
    except OSError:
        os.close(copied)
        with suppress(OSError):
            os.unlink(newer)  # noqa: PTH108
        raise
    os.close(file)
    return copied, size


def _mark(file: int, error: int) -> None:
    """Report it over the end of the file: there is no room behind it."""
    words = LOST + os.strerror(error).encode() + b"]\n"
    with suppress(OSError):
        os.pwrite(file, words, max(0, os.fstat(file).st_size - len(words)))


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, _CHUNK)
    except OSError:  # EIO: its other end is closed
        return b""


if __name__ == "__main__":
    copy(0, sys.argv[2], int(sys.argv[1]), MOST)
