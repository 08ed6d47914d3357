"""What `rocm-tui run` itself sees of the program that it started: its beginning, torch being
imported, its end. The program's own log begins when torch is there.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.inductor.hooks.environment import rank
from backend.model.events import ActivityChanged, Event, ProcessExited, SessionStarted
from backend.model.session import Session
from backend.processes import tree
from backend.processes.tree import identity

SUFFIX = ".run.jsonl"
"""Ends the name of such a log, which lies among those of the programs."""

PAUSE = 0.2
"""Seconds between two looks."""

PATIENCE = 120.0
"""Seconds; a program that has not begun to import torch by then is not looked at any more."""

_TORCH = b"/libtorch"


class RunRecord:
    """The log of a run. What cannot be written is left out: the program matters more."""

    def __init__(self, layout: Layout, run: str, command: Sequence[str]) -> None:
        self._layout = layout
        self._run = run
        self._command = tuple(command)
        self._writer: EventWriter | None = None
        self._pid = 0
        self._due = self._last = 0.0

    @property
    def waits(self) -> bool:
        """Whether `look` may still see something."""
        return self._last > 0

    def started(self, pid: int) -> None:
        """The program runs."""
        session = Session(
            id=f"{self._run}-{pid}",
            host=socket.gethostname(),
            pid=pid,
            rank=rank(),
            argv=self._command,
            cache_dir=str(self._layout.root),
            started=time.time(),
            process=identity(pid),
        )
        self._pid = pid
        self._last = time.monotonic() + PATIENCE
        path = self._layout.sessions / f"{self._run}{SUFFIX}"
        self._writer = EventWriter(self._layout, session, path)
        self._write(SessionStarted(session))

    def look(self) -> None:
        """See whether the program itself has begun to load torch; of one that it starts in its turn
        this is not seen."""
        now = time.monotonic()
        if not self.waits or now < self._due:
            return
        self._due = now + PAUSE
        try:
            loads = _TORCH in tree.mapped(self._pid)
        except OSError:  # it has ended, or this is no Linux
            self._last = 0.0
            return
        if loads:
            self._write(ActivityChanged(time.time(), "importing"))
        if loads or now > self._last:
            self._last = 0.0

    def exited(self, status: int) -> None:
        """The program has ended: with this exit code, or by minus this signal."""
        self._last = 0.0
        if self._writer is not None:
            self._write(ProcessExited(time.time(), status))
            self._writer.close()

    def _write(self, event: Event) -> None:
        if self._writer is not None:
            self._writer.write(event)
