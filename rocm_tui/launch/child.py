"""A person's program as our child: it keeps our terminal and process group, and gets our signals.

Ctrl-C and Ctrl-Z reach it as without us; what is sent to us alone (SIGTERM, SIGHUP, SIGUSR1, ...)
is passed on.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

from rocm_tui.launch.stderr import StderrRelay

HOLD_SECONDS = 0.1
"""How long `--quiet` holds the begun line of what may be a table."""

DRAIN_SECONDS = 0.2
"""How long we wait for stderr of what the child left running in the background."""

LOOK_SECONDS = 0.5
"""Between two looks at what the child leaves behind."""

_FORWARDED = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM")
_KEYS = ("SIGINT", "SIGQUIT")
"""A terminal sends these to the whole group by itself: then we only have to outlive them."""


class Child:
    """The running program: its signals, and its stderr where a relay passes that on.

    Without a relay `look` is called now and then while it runs.
    """

    def __init__(
        self, relay: StderrRelay | None = None, look: Callable[[], None] = lambda: None
    ) -> None:
        self._relay = relay
        self._look = look
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    def run(self, command: Sequence[str], env: Mapping[str, str]) -> int:
        """The exit code, or minus the signal. Raises OSError if the command cannot be started."""
        with self._signals() as wake:
            self._process = process = self._start(command, env)
            for number in self._early:
                process.send_signal(number)
            if self._relay is None:
                self._wait(process, wake)
            else:
                self._until_exit(process, self._relay, wake)
                _drain(self._relay)
        if self._relay is not None:
            self._relay.close()
        return process.returncode

    def _start(self, command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        if self._relay is None:
            return subprocess.Popen(command, env=env)
        try:
            return subprocess.Popen(command, env=env, stderr=self._relay.child_end)
        finally:
            self._relay.child_started()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[int]:
        """Our handlers; the result becomes readable at each signal. What is ignored stays so."""
        reading, writing = os.pipe()
        for end in (reading, writing):
            os.set_blocking(end, False)
        handlers = dict.fromkeys(_FORWARDED, self._forward)
        handlers.update(dict.fromkeys(_KEYS, self._key_pressed))
        handlers.update(SIGCHLD=_outlive, SIGWINCH=self._resized)
        before: dict[int, Any] = {}
        for name, handler in handlers.items():
            number = getattr(signal, name)
            if name == "SIGCHLD" or signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, handler)
        wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        try:
            yield reading
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(reading)
            os.close(writing)

    def _forward(self, number: int, frame: FrameType | None) -> None:
        if self._process is None:
            self._early.append(number)
        else:
            self._process.send_signal(number)

    def _key_pressed(self, number: int, frame: FrameType | None) -> None:
        if not _in_foreground():
            self._forward(number, frame)

    def _resized(self, number: int, frame: FrameType | None) -> None:
        if self._relay is not None:
            self._relay.follow_size()
        self._forward(number, frame)  # its own may have come before the size was right

    def _wait(self, process: subprocess.Popen[bytes], wake: int) -> None:
        while process.poll() is None:
            select.select([wake], [], [], LOOK_SECONDS)
            _clear(wake)
            self._look()

    def _until_exit(self, process: subprocess.Popen[bytes], relay: StderrRelay, wake: int) -> None:
        sources = [relay.descriptor, wake]
        while process.poll() is None:
            timeout = HOLD_SECONDS if relay.holds else None
            ready, _, _ = select.select(sources, [], [], timeout)
            if wake in ready:
                _clear(wake)
            if relay.descriptor in ready and not relay.pump():
                sources = [wake]  # the child closed its stderr and goes on
            if not ready:
                relay.release()


def _clear(wake: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(wake, 4096)


def _drain(relay: StderrRelay) -> None:
    while select.select([relay.descriptor], [], [], DRAIN_SECONDS)[0]:
        if not relay.pump():
            return


def _in_foreground() -> bool:
    """Whether a terminal sends its keys' signals to our process group."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _outlive(number: int, frame: FrameType | None) -> None:
    """Not ignored, since a child would inherit that."""
