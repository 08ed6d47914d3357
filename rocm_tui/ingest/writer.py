"""Is the process that writes an event log still there?

It holds a lock of its log, which the system lets go when it ends, however that happens. A pid would
not do: that of a container is another process's outside of it, under the same host name.
"""

from __future__ import annotations

import fcntl
import os
import socket

from backend.model.session import Session


def can_be_told(session: Session | None) -> bool:
    """Of another host's writer nothing can be told: its lock may not reach here."""
    return session is not None and session.locked and session.host == socket.gethostname()


def is_gone(path: str) -> bool:
    """Whether nobody holds the lock of the log `path`; False where that cannot be seen."""
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
