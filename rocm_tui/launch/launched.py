"""A program that runs beside the screen, under `rocm-tui run`: its terminal, its end, its output.

It has a session and a terminal of its own, one that can do nothing but show lines (`TERM=dumb`),
and no input: keys are the screen's, so a Ctrl-C there does not reach it. All that it writes is
kept in a file, byte for byte, by a process that is not the screen: it goes on when the screen or
its terminal is gone, however they went, and ends when it is asked to.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
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
from collections.abc import Mapping, Sequence
from pathlib import Path

from backend.disk.layout import Layout
from backend.disk.safe import check_file, make_folder
from rocm_tui.launch.program import OUTPUT, Program
from rocm_tui.launch.run import run_id

_DRAIN = 0.5
"""Seconds that its end waits for that of its output, which what it left running may hold open."""
_PATIENCE = 10.0
"""Seconds that the program has to end in order."""
_COPIER = Path(__file__).with_name("copier.py")


class Launched(Program):
    """Starts at `start`."""

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
        run = run_id()
        log = layout.sessions / f"{run}{OUTPUT}"
        super().__init__(title or shlex.join(command), log, time.time())
        self._layout = layout
        ours = ["--id", run, "--cache-dir", str(layout.root)]
        self._words = [sys.executable, "-m", "rocm_tui", "run", *options, *ours, "--", *command]
        self._env = {**env, "TERM": "dumb"}
        self._process: subprocess.Popen[bytes] | None = None
        self._copier: subprocess.Popen[bytes] | None = None
        self._terminal = -1

    # What a screen does.

    def start(self) -> None:
        """Raises OSError and UnsafePath, where its output cannot be kept."""
        make_folder(self._layout.root, self.log.parent)
        check_file(self._layout.root, self.log)
        self._terminal, theirs = os.openpty()
        bell, rope = os.pipe()
        tty.setraw(theirs)  # what it writes arrives as it is
        self.resize(*_size())
        self.began = time.time()
        try:
            with self.log.open("xb", buffering=0) as log:
                self._copier = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_COPIER), str(rope)],
                    stdin=self._terminal,
                    stdout=log,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[rope],
                    start_new_session=True,
                )
            self.open_log()
            self._process = subprocess.Popen(
                self._words,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
            )
        finally:
            os.close(theirs)
            os.close(rope)
        self.pid = self._process.pid
        threading.Thread(target=self._follow, args=(bell,), name="output", daemon=True).start()

    def resize(self, width: int, height: int) -> None:
        if self._terminal < 0:
            return
        with contextlib.suppress(OSError):
            size = struct.pack("HHHH", height, width, 0, 0)
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)

    def end(self) -> None:
        """End it with all of its process group, politely first, and wait; safe to call again."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process is None or not self.running:
                return
            self.send(number)
            until = time.monotonic() + _PATIENCE
            while self.running and time.monotonic() < until:
                time.sleep(0.02)

    def send(self, number: signal.Signals) -> None:
        process = self._process
        if process is None or not self.running:
            return
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)  # `run` passes it on

    # In our own threads.

    def _follow(self, bell: int) -> None:
        """Until nobody can write any more: what the program left running may write after its end.
        Then the terminal is closed, so that nobody waits for a reader who is gone."""
        process, copier = self._process, self._copier
        assert process is not None and copier is not None
        ended, told = os.pipe()
        threading.Thread(target=_wait, args=(process, told), name="exit", daemon=True).start()
        waiting, until = [bell, ended], math.inf
        while waiting:
            rest = None if until == math.inf else max(0.0, until - time.monotonic())
            ready, _, _ = select.select(waiting, [], [], rest)
            rung = os.read(bell, 4096) if bell in ready else b""
            if bell in ready and not rung:
                waiting.remove(bell)
                self._close_terminal()
                copier.wait()
            failed = max(rung, default=0)
            if failed and not self.lost:
                self.lost = os.strerror(failed)
            if self.take() or failed:
                self.ring()
            if ended in ready:
                waiting.remove(ended)
                until = time.monotonic() + _DRAIN
            if until < math.inf and (bell not in waiting or time.monotonic() >= until):
                until = math.inf
                self._ended(process)
        os.close(bell)
        os.close(ended)

    def _close_terminal(self) -> None:
        terminal, self._terminal = self._terminal, -1
        os.close(terminal)

    def _ended(self, process: subprocess.Popen[bytes]) -> None:
        self.code = process.wait()
        self.seconds = time.time() - self.began
        self.ring()


def _wait(process: subprocess.Popen[bytes], told: int) -> None:
    process.wait()
    os.close(told)  # which makes the other end readable


def _size() -> tuple[int, int]:
    try:
        size = os.get_terminal_size(2)
    except OSError:
        return 100, 40
    return size.columns or 100, size.lines or 40
