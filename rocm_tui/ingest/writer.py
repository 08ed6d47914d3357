"""Is the process that writes an event log still there?"""

from __future__ import annotations

import fcntl
import os
import socket

from backend.records import Session


def is_gone(path: str, session: Session | None) -> bool:
    """Whether it has ended, however that happened; False where that cannot be told.

    It holds a lock of its log, which the system lets go when it ends. A pid would not do: that of
    a container is another process's outside of it, under the same host name.
    """
    if session is None or not session.locked or session.host != socket.gethostname():
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # held, or this file system has no locks
        return False
    finally:
        os.close(descriptor)
    return True
