"""An ssh that runs, and the lines that come through it: of bounded length, and never waited for
longer than is said."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, repeat

from backend.errors import brief
from rocm_tui.harmless import clean

_CHUNK = 1 << 18
_SAID = 1 << 12
"""Bytes of its stderr that are kept: the last."""
_PATIENCE = 2.0
"""Seconds that it has to end by itself when its output is over."""
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, linux/prctl.h
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class TooLong(Exception):
    """A line without an end."""


class Child:
    """One ssh. It ends with the thread that started it, whatever ends that, and when `end` is
    called; its own end shows as the end of its lines."""

    def __init__(self, line: Sequence[str], longest: int) -> None:
        """A line of it has at most so many bytes. Raises OSError where there is no ssh."""
        self._longest = longest
        self._process = subprocess.Popen(
            line,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C of this terminal is not for it
            preexec_fn=_dies_with_us,
        )
        streams = self._process.stdin, self._process.stdout, self._process.stderr
        self._in, self._out, self._err = (stream.fileno() for stream in streams if stream)
        for descriptor in (self._in, self._out, self._err):
            os.set_blocking(descriptor, False)
        self._rest = bytearray()
        self._said = b""
        self._stderr_open = True
        self.pid = self._process.pid
        self.heard = time.monotonic()
        """When its output came last."""
        self._code: int | None = None
        self.open = True
        """Whether more may come."""

    def lines(self, seconds: float) -> list[bytes]:
        """The lines that are there, without their ends; waits so long for the first byte. Raises
        TooLong."""
        ready, _, _ = select.select(self._listening(), [], [], seconds)
        if self._err in ready:
            self._hear_errors()
        if self._out not in ready:
            return []
        data = os.read(self._out, _CHUNK)
        self.open = bool(data)
        self.heard = time.monotonic()
        lines: list[bytes] = []
        if b"\n" in data:
            *lines, rest = (bytes(self._rest) + data).split(b"\n")
            self._rest = bytearray(rest)
        else:
            self._rest += data
        if max(map(len, (*lines, self._rest))) > self._longest:
            raise TooLong
        return lines

    @property
    def rest(self) -> bytes:
        """The beginning of a line."""
        return bytes(self._rest)

    def say(self, data: bytes) -> bool:
        """Write to it; False where it does not take all of it."""
        try:
            return os.write(self._in, data) == len(data)
        except OSError:
            return False

    def end(self) -> int:
        """Its exit code, as soon as it has one; it is ended where it does not end by itself. May be
        called again."""
        if self._code is None:
            self._code = self._end()
        return self._code

    def _end(self) -> int:
        with suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()
        if self.open:
            self._process.kill()  # it would first pass on all that is on its way
        try:
            code = self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._hear_errors()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        self.open = False
        return code

    def kill(self) -> None:
        """From any thread: its lines end."""
        with suppress(OSError):
            self._process.kill()

    @property
    def said(self) -> str:
        """The last line of its stderr, harmless."""
        lines = [clean(line).strip() for line in self._said.decode("utf-8", "replace").splitlines()]
        return brief(next(filter(None, reversed(lines)), ""), 200)

    def _listening(self) -> list[int]:
        return [self._out, self._err] if self._stderr_open else [self._out]

    def _hear_errors(self) -> None:
        """A master that ssh left behind may hold stderr open: its end is not waited for."""
        with suppress(BlockingIOError):
            data = os.read(self._err, _CHUNK)
            self._stderr_open = bool(data)
            self._said = (self._said + data)[-_SAID:]


def pauses() -> Iterator[float]:
    """Seconds before each further try of a host that is lost: 1, 2, 4, 8, 16, then 30 each."""
    return chain((1.0, 2.0, 4.0, 8.0, 16.0), repeat(30.0))


def _dies_with_us() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
