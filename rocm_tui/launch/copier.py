"""Copies what a program writes to its terminal into a file, until nobody can write there any more.

    python -I -S copier.py BELL < TERMINAL >> FILE

It is a process of its own in a session of its own: so the program and its output outlive the
screen that started them, however that ends. `BELL` is a pipe that gets a byte whenever something
was written, for as long as somebody reads it: 0, or the number of the error by which it was lost.
The end of the file says so too, where the disk is full. Nothing of ours is imported: it starts at
once.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress

LOST = b"\n[rocm-tui: from here on output is lost: "
_CHUNK = 1 << 16


def copy(terminal: int, file: int, bell: int) -> None:
    """Returns when the last process that has the terminal is gone."""
    os.set_blocking(bell, False)
    while data := _read(terminal):
        view, error = memoryview(data), 0
        try:
            while view:
                view = view[os.write(file, view) :]
        except OSError as full:  # the program must not notice
            error = full.errno or errno.EIO
            _mark(file, error)
        with suppress(OSError):  # it is full, or the screen is gone
            os.write(bell, bytes((min(error, 255),)))


def _mark(file: int, error: int) -> None:
    """Say it at the end of the file, over what stands there: there is no room behind it."""
    words = LOST + os.strerror(error).encode() + b"]\n"
    with suppress(OSError):
        os.pwrite(file, words, max(0, os.fstat(file).st_size - len(words)))


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, _CHUNK)
    except OSError:  # EIO: its other end is closed
        return b""


if __name__ == "__main__":
    copy(0, 1, int(sys.argv[1]))
