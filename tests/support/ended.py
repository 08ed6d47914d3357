"""Whether a process has ended."""

from __future__ import annotations

import psutil


def ended(process: psutil.Process) -> bool:
    """Also where nobody has waited for it yet: who takes orphans in may be in no hurry."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
