"""How a command does its jobs: one after another, in a worker that stays warm and ends with it; one
line on stderr says how far they are."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TypeVar

from backend.disk.layout import Layout
from backend.wire.jobs import Progress, WorkerJob
from rocm_tui import say
from rocm_tui.environment import device_env, find_python
from rocm_tui.errors import RocmTuiError
from rocm_tui.harmless import plain
from rocm_tui.jobs.limits import Limits
from rocm_tui.jobs.run import RunJob, run_watched
from rocm_tui.jobs.warm import MOST, Workers
from rocm_tui.render.jobs import progress_text
from rocm_tui.session.numbers import shorten

R = TypeVar("R")

_ENDS = (signal.SIGTERM, signal.SIGHUP)


class LiveLine:
    """A line on stderr that overwrites itself, only where stderr is a terminal; an empty text
    clears it."""

    def __init__(self, title: str = "") -> None:
        self.title = title
        self._live = sys.stderr.isatty()

    def show(self, text: str) -> None:
        if self._live:
            with contextlib.suppress(OSError):  # the terminal is gone; the job's end is still ours
                width = (os.get_terminal_size(sys.stderr.fileno()).columns or 80) - 1
                line = shorten(plain(f"{self.title}: {text}"), width) if text else ""
                say.overwrite(line)

    @contextlib.contextmanager
    def during(self, title: str) -> Iterator[None]:
        """Show what a job with this title does, until it is over."""
        self.title = title
        self.show("starting a worker")
        try:
            yield
        finally:
            self.show("")

    def progressed(self, progress: Progress) -> None:
        """Show how far a worker is."""
        self.show(progress_text(progress))


class Work:
    """Does a job in a worker, like a `RunJob`: a warm one, or, without `warm`, one of its own for
    each. SIGTERM and a lost terminal end it as Ctrl-C does: the session's log gets its end, and no
    process is left."""

    def __init__(
        self, layout: Layout, python: str | None, device: str | None, *, warm: bool = True
    ) -> None:
        """Raises UsageError and NoTorchPython."""
        self.line = LiveLine()
        self._layout = layout
        self._env = device_env(os.environ, device)
        self._python = find_python(python, self._env)
        self._limits = Limits.of_this_machine()
        self._workers = Workers(layout.root, most=MOST if warm else 0)
        atexit.register(self._workers.end)

    def __call__(self, job: WorkerJob[R]) -> R:
        """Raises JobError."""
        return self._do(job, self._layout, self._workers)

    def at(self, layout: Layout) -> RunJob:
        """The same in another cache dir, each job in a worker of its own."""

        def run(job: WorkerJob[R]) -> R:
            return self._do(job, layout, None)

        return run

    def _do(self, job: WorkerJob[R], layout: Layout, workers: Workers | None) -> R:
        with ended_by_signals():
            return run_watched(
                job,
                python=self._python,
                layout=layout,
                env=self._env,
                limits=self._limits,
                on_progress=self.line.progressed,
                workers=workers,
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
