"""How a command does its jobs: in workers, one after another, which end with it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from rocm_tui.commands.live_line import LiveLine

if TYPE_CHECKING:
    from backend.disk.layout import Layout
    from rocm_tui.errors import RocmTuiError

R = TypeVar("R")

_ENDS = (signal.SIGTERM, signal.SIGHUP)


class Work:
    """Does a job in a worker of its own, like a `RunJob`; a line on a terminal's stderr says how
    far it is. SIGTERM and a lost terminal end it as Ctrl-C does: the session's log gets its end,
    and no process is left."""

    def __init__(self, layout: Layout, python: str | None, device: str | None) -> None:
        """Raises UsageError and NoTorchPython."""
        from rocm_tui.devices import device_env
        from rocm_tui.environment import find_python
        from rocm_tui.jobs.limits import Limits

        self.line = LiveLine()
        self._layout = layout
        self._env = device_env(os.environ, device)
        self._python = find_python(python, self._env)
        self._limits = Limits.of_this_machine()

    def __call__(self, job: WorkerJob[R]) -> R:
        """Raises JobError."""
        from rocm_tui.jobs.run import run_watched

        with ended_by_signals():
            return run_watched(
                job,
                python=self._python,
                layout=self._layout,
                env=self._env,
                limits=self._limits,
                on_progress=self.line.progressed,
            )


def with_log(error: RocmTuiError) -> str:
    """The one line of an error, and where the log of its worker can be read."""
    log = getattr(error, "log", None)
    return f"{error}; the end of its log: {log}" if log else str(error)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """SystemExit instead of the sudden end; what is ignored (nohup) stays so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = {number: signal.getsignal(number) for number in _ENDS}
    for number, handler in old.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
