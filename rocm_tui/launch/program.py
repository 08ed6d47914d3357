"""What a screen knows of a program and shows of it: its name, how it does, the file of its output
and the last lines of that."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from rocm_tui.harmless import plain
from rocm_tui.launch.copier import LOST
from rocm_tui.launch.output import OutputLines

OUTPUT = ".output.log"
"""Ends the name of such a file, which lies among the logs of sessions."""
_CHUNK = 1 << 16
_TAIL = 1 << 20
"""Bytes at the end of a file that were not seen coming and are shown."""
_MARK = 200
"""Bytes at its end in which the copier says that output is lost."""
_HARDER = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


class Program:
    """One that writes its output to `log`. Subclasses know how it is started and found."""

    pid: int | None = None
    code: int | None = None
    """Its exit code, minus the signal that ended it; None while it runs or where nobody saw it."""
    seconds: float | None = None
    """How long it ran; None: it runs."""

    def __init__(self, title: str, log: Path, began: float) -> None:
        self.title = plain(title)
        self.log = log
        self.began = began
        self.lines = OutputLines()
        self.cut = False
        """Whether `lines` begin in the middle of the file."""
        self.lost = ""
        """Why a part of its output is not in the file, as far as that was seen; else empty."""
        self._file: BinaryIO | None = None
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._sent = 0

    # What a screen asks.

    @property
    def running(self) -> bool:
        return self.seconds is None

    @property
    def ending(self) -> str:
        """How it ended; empty while it runs."""
        return "" if self.running else ending(self.code)

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

    def press(self) -> None:
        """Ask it to end, the next time harder."""
        number, self._sent = self.next_signal, self._sent + 1
        self.send(number)

    def send(self, number: signal.Signals) -> None:
        """Send it this signal, if it runs."""
        raise NotImplementedError

    def resize(self, width: int, height: int) -> None:
        """Give its terminal this size, where that is ours."""

    # What subclasses have in common.

    def open_log(self) -> None:
        """Raises OSError."""
        self._file = self.log.open("rb", buffering=0)
        size = os.fstat(self._file.fileno()).st_size
        if size > _TAIL:
            self._file.seek(size - _TAIL)
            self.cut = True

    def take(self) -> bool:
        """Take in what stands in the file by now; False where that is nothing new."""
        told = False
        while self._file is not None and (data := self._file.read(_CHUNK)):
            self.lines.feed(data)
            told = True
        return self._look_for_loss() or told

    def _look_for_loss(self) -> bool:
        """What could not be written may have been said over what was read before."""
        if self.lost or self._file is None:
            return False
        number = self._file.fileno()
        end = os.pread(number, _MARK, max(0, os.fstat(number).st_size - _MARK))
        _, mark, why = end.partition(LOST)
        self.lost = plain(why.partition(b"]")[0].decode("utf-8", "replace")) if mark else ""
        return bool(mark)

    def ring(self) -> None:
        for heard in self._listeners:
            heard()


def ending(code: int | None) -> str:
    """`exit code 0`, `signal 9, SIGKILL`; `ended` where nobody saw how."""
    if code is None:
        return "ended"
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code}, {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
