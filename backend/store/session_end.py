"""The end of an event log whose writer was killed: the screen shall not wait for more of it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from backend.model.events import SessionEnded
from backend.store import safe
from backend.store.errors import EventInvalid
from backend.store.event_codec import decode, encode
from backend.store.paths import Layout

_TAIL = 1 << 16


def end_log(layout: Layout, path: Path) -> bool:
    """Write `SessionEnded` for a writer that is dead; False if it did so itself, or left no log.

    Raises UnsafePath and NotWritable.
    """
    if path.parent != layout.sessions or not path.is_file():
        return False
    safe.check_file(layout.root, path)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise safe.not_writable(path, error) from error
    try:
        size = os.fstat(descriptor).st_size
        tail = os.pread(descriptor, _TAIL, max(0, size - _TAIL))
        whole, _, torn = tail.rpartition(b"\n")
        if not torn and _is_end(whole.rpartition(b"\n")[2]):
            return False
        line = encode(SessionEnded(time.time())).encode() + b"\n"
        os.write(descriptor, (b"\n" if torn else b"") + line)
    except OSError as error:
        raise safe.not_writable(path, error) from error
    finally:
        os.close(descriptor)
    return True


def _is_end(line: bytes) -> bool:
    try:
        return isinstance(decode(line.decode()), SessionEnded)
    except (EventInvalid, UnicodeDecodeError):
        return False
