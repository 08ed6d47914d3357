"""A program that runs beside the screen, under `rocm-tui run`: its terminal, its end, its output.

It has a session and a terminal of its own, one that can do nothing but show lines (`TERM=dumb`),
and no input: keys are the screen's, so a Ctrl-C there does not reach it. It ends with us, however
we end. All that it writes is kept in a file, byte for byte; the last lines are kept in memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO

from backend.disk.layout import Layout
from backend.disk.safe import check_file, make_folder
from rocm_tui.harmless import plain
from rocm_tui.launch.output import OutputLines
from rocm_tui.launch.run import run_id

_CHUNK = 1 << 16
_DRAIN = 0.2
"""Seconds for what comes after the program's end, from what it left running."""
_PATIENCE = 10.0
"""Seconds that the program has to end in order."""
_HARDER = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


class Launched:
    """Starts at `start`, which must be called by the thread that lives as long as we do: Linux ends
    the program with the thread that started it."""

    def __init__(
        self,
        command: Sequence[str],
        layout: Layout,
        *,
        options: Sequence[str] = (),
        title: str = "",
        env: Mapping[str, str] = os.environ,
    ) -> None:
        """`options` are those of `rocm-tui run`; `title` is how it is called, else by its words."""
        self.title = plain(title or shlex.join(command))
        self.lines = OutputLines()
        self._listeners: tuple[Callable[[], None], ...] = ()
        self.log = layout.sessions / f"{run_id()}.output.log"
        self.began = time.time()
        self.seconds: float | None = None
        self._layout = layout
        root = ["--cache-dir", str(layout.root)]
        self._words = [sys.executable, "-m", "rocm_tui", "run", *options, *root, "--", *command]
        self._env = {**env, "TERM": "dumb"}
        self._process: subprocess.Popen[bytes] | None = None
        self._terminal = -1
        self._sent = 0

    # What a screen asks.

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def code(self) -> int | None:
        """Its exit code, minus the signal that ended it, or None: it runs."""
        return None if self.seconds is None or not self._process else self._process.returncode

    @property
    def ending(self) -> str:
        """How it ended; empty while it runs."""
        return "" if self.code is None else ending(self.code)

    @property
    def running(self) -> bool:
        return self.seconds is None

    @property
    def age(self) -> float:
        """Seconds that it runs, or ran."""
        return time.time() - self.began if self.seconds is None else self.seconds

    @property
    def next_signal(self) -> signal.Signals:
        """What `press` sends next: Ctrl-C first, then what cannot be refused."""
        return _HARDER[min(self._sent, len(_HARDER) - 1)]

    # What a screen does.

    def listen(self, heard: Callable[[], None]) -> Callable[[], None]:
        """Have `heard` called, from another thread, at each output and at the end; what is given
        back ends that."""
        self._listeners = (*self._listeners, heard)

        def hush() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not heard)

        return hush

    def start(self) -> None:
        """Raises OSError and UnsafePath, where its output cannot be kept."""
        make_folder(self._layout.root, self.log.parent)
        check_file(self._layout.root, self.log)
        log = self.log.open("xb", buffering=0)
        self._terminal, theirs = os.openpty()
        tty.setraw(theirs)  # what it writes arrives as it is
        self.resize(*_size())
        self.began = time.time()
        try:
            self._process = subprocess.Popen(
                self._words,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
                preexec_fn=_end_with_us,
            )
        finally:
            os.close(theirs)
        threading.Thread(target=self._read, args=(log,), name="output", daemon=True).start()

    def resize(self, width: int, height: int) -> None:
        """Give its terminal this size."""
        with contextlib.suppress(OSError):
            size = struct.pack("HHHH", height, width, 0, 0)
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)

    def press(self) -> None:
        """Ask it to end, the next time harder."""
        number, self._sent = self.next_signal, self._sent + 1
        self._signal(number)

    def end(self) -> None:
        """End it with all of its process group, politely first, and wait; safe to call again."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process is None or not self.running:
                return
            self._signal(number)
            until = time.monotonic() + _PATIENCE
            while self.running and time.monotonic() < until:
                time.sleep(0.02)

    def _signal(self, number: signal.Signals) -> None:
        process = self._process
        if process is None or not self.running:
            return
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)  # `run` passes it on

    # In our own threads.

    def _read(self, log: BinaryIO) -> None:
        process = self._process
        assert process is not None
        ended, told = os.pipe()
        threading.Thread(target=_wait, args=(process, told), name="exit", daemon=True).start()
        with log:
            while True:
                ready, _, _ = select.select([self._terminal, ended], [], [])
                if self._terminal in ready:
                    if not self._take(log):
                        break
                elif not select.select([self._terminal], [], [], _DRAIN)[0]:
                    break
        process.wait()
        os.close(ended)
        os.close(self._terminal)
        self.seconds = time.time() - self.began
        self._ring()

    def _take(self, log: BinaryIO) -> bool:
        """Keep what is there; False at the end."""
        try:
            data = os.read(self._terminal, _CHUNK)
        except OSError as error:
            if error.errno != errno.EIO:  # its other end is closed
                raise
            return False
        if data:
            with contextlib.suppress(OSError):  # the disk is full: the screen still shows it
                log.write(data)
            self.lines.feed(data)
            self._ring()
        return bool(data)

    def _ring(self) -> None:
        for heard in self._listeners:
            heard()


def _wait(process: subprocess.Popen[bytes], told: int) -> None:
    process.wait()
    os.close(told)  # which makes the other end readable


def _size() -> tuple[int, int]:
    try:
        size = os.get_terminal_size(2)
    except OSError:
        return 100, 40
    return size.columns or 100, size.lines or 40


def _end_with_us() -> None:
    """Ask Linux to end the child when we are killed; `rocm-tui run` passes it on to its own."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def ending(code: int) -> str:
    """`exit code 0`, `signal 9, SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code}, {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
