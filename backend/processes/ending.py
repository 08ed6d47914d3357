"""Ending as another process ended: its signal is ours. Imports little, for `rocm-tui run`."""

from __future__ import annotations

import contextlib
import os
import resource
import signal


def die_by(number: int) -> int:
    """End this process by a signal, without a core dump of ours; 128 + its number if that ends
    nobody."""
    without_cores()
    with contextlib.suppress(OSError, ValueError):  # some cannot be set
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number


def without_cores() -> None:
    """Crashes are expected; their cores are large."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
