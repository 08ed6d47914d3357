"""Doing something in the background, once for many requests, and not while somebody measures."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator

QUIET_SECONDS = 3.0
LATEST_SECONDS = 30.0
"""An action begins so long after the last request, or after the first."""

HELD_POLL_SECONDS = 0.05
PATIENCE_SECONDS = 2.0
"""A measurement waits at most so long for an action that runs already."""


class Later:
    """Calls `action` some time after `call`. Its thread does not outlive the process, nor a fork:
    whoever needs the action done does it at exit."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._acting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._due = self._latest = 0.0
        self._holders = 0

    def call(self) -> None:
        """Ask for the action."""
        self._check_fork()
        with self._lock:
            self._due = time.monotonic() + QUIET_SECONDS
            if self._thread is None:
                self._latest = time.monotonic() + LATEST_SECONDS
                thread = threading.Thread(target=self._run, name="rocm-tui fold", daemon=True)
                with contextlib.suppress(RuntimeError):  # no thread can be started at exit
                    thread.start()
                    self._thread = thread

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """A time in which no action begins. One that runs already is waited for, a moment."""
        self._check_fork()
        lock, acting = self._lock, self._acting
        with lock:
            self._holders += 1
        try:
            if acting.acquire(timeout=PATIENCE_SECONDS):
                acting.release()
            yield
        finally:
            with lock:
                self._holders -= 1

    def _check_fork(self) -> None:
        if self._pid != os.getpid():  # the thread stayed in the parent
            self._reset()

    def _run(self) -> None:
        while (seconds := self._seconds_left()) > 0:
            time.sleep(seconds)
        try:
            self._action()
        finally:
            self._acting.release()

    def _seconds_left(self) -> float:
        """Until the action; 0 when it begins now."""
        with self._lock:
            seconds = min(self._due, self._latest) - time.monotonic()
            if seconds > 0:
                return seconds
            if self._holders or not self._acting.acquire(blocking=False):
                return HELD_POLL_SECONDS
            self._thread = None
            return 0.0
