"""A program that another screen started and left running, or that has ended meanwhile: found by
what its run recorded, shown by the file of its output."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from backend.disk.layout import Layout
from backend.disk.sessions import read_log
from backend.model.events import ProcessExited, SessionStarted
from backend.model.session import Session
from backend.processes.tree import lives
from rocm_tui.launch.program import OUTPUT, Program
from rocm_tui.launch.record import SUFFIX

_PAUSE = 0.5
"""Seconds between two looks, while somebody shows it."""
_MOST = 20
"""Files that are looked into, the newest first."""


class Detached(Program):
    """Follows its file while somebody listens."""

    def __init__(self, log: Path, session: Session) -> None:
        super().__init__(shlex.join(session.argv), log, session.started)
        self.pid = session.pid
        self._identity = session.process
        self._watching: threading.Thread | None = None
        self.look()

    def look(self) -> bool:
        """See how it does, and what it has written; False where that is nothing new."""
        if not self.running:
            return False
        over = lives(self._identity) is False
        if self._file is None:
            with contextlib.suppress(OSError):
                self.open_log()
        new = self.take()
        _, end = _record(self.log)
        if end is None and not over:
            return new
        if end is not None:
            self.code, self.seconds = end.status, max(0.0, end.when - self.began)
        else:  # nobody saw its end
            self.seconds = max(0.0, self._written() - self.began)
        return True

    def _written(self) -> float:
        try:
            return self.log.stat().st_mtime
        except OSError:
            return self.began

    def listen(self, heard: Callable[[], None]) -> Callable[[], None]:
        hush = super().listen(heard)
        if self._watching is None and self.running:
            self._watching = threading.Thread(target=self._watch, name="detached", daemon=True)
            self._watching.start()
        return hush

    def _watch(self) -> None:
        pause = threading.Event()
        while self._listeners and self.running:
            pause.wait(_PAUSE)
            if self.look():
                self.ring()
        self._watching = None

    def send(self, number: signal.Signals) -> None:
        if self.pid is not None and lives(self._identity):
            with contextlib.suppress(OSError):  # it is another's, or has just ended
                os.kill(self.pid, number)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One that a screen started, and the file of its output."""

    log: Path
    session: Session
    running: bool


def recorded(layout: Layout) -> list[Recorded]:
    """Those that run before those that have ended, the newest first."""
    found = []
    for log in _newest(layout.sessions):
        session, end = _record(log)
        if session is not None:
            running = end is None and lives(session.process) is not False
            found.append(Recorded(log, session, running))
    return sorted(found, key=lambda one: (not one.running, -one.session.started))


def _newest(folder: Path) -> list[Path]:
    written: list[tuple[float, Path]] = []
    for path in folder.glob(f"*{OUTPUT}"):
        with contextlib.suppress(OSError):
            written.append((path.stat().st_mtime, path))
    return [path for _, path in sorted(written, reverse=True)[:_MOST]]


def _record(log: Path) -> tuple[Session | None, ProcessExited | None]:
    """What `run` wrote of the program with this output: who it is, and its end."""
    events, _ = read_log(log.with_name(log.name.removesuffix(OUTPUT) + SUFFIX))
    started = next((e.session for e in events if isinstance(e, SessionStarted)), None)
    return started, next((e for e in events if isinstance(e, ProcessExited)), None)
