"""Whether a program holds a file open to write into it.

A file that is exchanged for a new one takes such a program's stream with it: what it appends later
goes into a file without a name, and is lost. TunableOp keeps its results open so, from the first
product that it tunes to its end.
"""

from __future__ import annotations

import fcntl
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from backend.errors import Busy, brief

_PROC = Path("/proc")


def writer_of(path: Path) -> str | None:
    """A program that has the file open to write, as far as it can be seen from here."""
    return None if _nobody_writes(path) else next(_writers(path), None)


def check_unwritten(path: Path) -> None:
    """Raise Busy if a program that can be seen from here has `path` open to write."""
    writer = writer_of(path)
    if writer is not None:
        raise Busy(
            f"{path} is open in {writer}, and what that writes next would be lost; "
            "try again when it has ended"
        )


def _nobody_writes(path: Path) -> bool:
    """Whether the kernel says so at once: it grants a lease for reading on no file that is open to
    write. Where there are no leases, or the file is another user's, it is not known."""
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
    """The processes of this user (for root, of all) that have it open to write."""
    try:
        wanted = path.stat()
        processes = [one for one in _PROC.iterdir() if one.name.isdigit()]
    except OSError:
        return
    for process in processes:
        with suppress(OSError):  # another user's, or ended
            for stream in (process / "fd").iterdir():
                with suppress(OSError):
                    same = os.path.samestat(stream.stat(), wanted)
                    if same and stream.lstat().st_mode & stat.S_IWUSR:
                        name = (process / "comm").read_text("utf-8", "replace").strip()
                        yield f"{brief(name, 40)} (process {process.name})"
