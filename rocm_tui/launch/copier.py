"""Copies what a program writes to its terminal into a file, until nobody can write there any more.

    python -I -S copier.py BELL < TERMINAL >> FILE

It is a process of its own in a session of its own: so the program and its output outlive the
screen that started them, however that ends. `BELL` is a pipe that gets a byte whenever something
was written, for as long as somebody reads it. Nothing of ours is imported: it starts at once.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

_CHUNK = 1 << 16


def copy(terminal: int, file: int, bell: int) -> None:
    """Returns when the last process that has the terminal is gone."""
    os.set_blocking(bell, False)
    while data := _read(terminal):
        view = memoryview(data)
        with suppress(OSError):  # the disk is full: the program must not notice
            while view:
                view = view[os.write(file, view) :]
        with suppress(OSError):  # it is full, or the screen is gone
            os.write(bell, b".")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, _CHUNK)
    except OSError:  # EIO: its other end is closed
        return b""


if __name__ == "__main__":
    copy(0, 1, int(sys.argv[1]))
