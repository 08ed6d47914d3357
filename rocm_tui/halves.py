"""Work shared with a second process, where there is a core for it. It is forked, so it has all that
this one has, and only what it made has to come back."""

from __future__ import annotations

import marshal
import os
import signal
import struct
import threading
from collections.abc import Callable, Sequence
from typing import ClassVar, NoReturn, TypeVar

_Thing = TypeVar("_Thing")
_Made = TypeVar("_Made")
LEAST = 4000
"""So many things are made before a fork is worth its while: some ten milliseconds."""
_SIZE = struct.Struct("<Q")


class Aside:
    """Bytes that another process makes meanwhile. Who begins it asks for them, or drops it."""

    at_work: ClassVar[int] = 1
    """Processes, with this one: each has a core of its own."""

    def __init__(self, pid: int, found: int) -> None:
        self.pid = pid
        self._found = found

    @classmethod
    def begin(cls, make: Callable[[], bytes]) -> Aside | None:
        """None where there is no core for it, or a thread that a fork would leave behind."""
        if len(os.sched_getaffinity(0)) <= cls.at_work or threading.active_count() > 1:
            return None
        found, finds = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(found)
            os.close(finds)
            return None
        Aside.at_work += 1
        if pid == 0:
            _tell(finds, make)
        os.close(finds)
        return cls(pid, found)

    def drop(self) -> None:
        """Nobody wants it any more."""
        os.close(self._found)
        os.kill(self.pid, signal.SIGKILL)
        self._end()

    def told(self) -> bytes | None:
        """Wait for what it made; None if it ended early."""
        try:
            with os.fdopen(self._found, "rb") as stream:
                data = stream.read()
        finally:
            self._end()
        if len(data) < _SIZE.size:
            return None
        (size,) = _SIZE.unpack(data[: _SIZE.size])
        return data[_SIZE.size :] if len(data) == _SIZE.size + size else None

    def _end(self) -> None:
        Aside.at_work -= 1
        os.waitpid(self.pid, 0)


def _tell(finds: int, make: Callable[[], bytes]) -> NoReturn:
    """In the other process."""
    try:
        data = make()
        view = memoryview(_SIZE.pack(len(data)) + data)
        while view:
            view = view[os.write(finds, view) :]
    finally:
        os._exit(0)


def in_halves(
    make: Callable[[Sequence[_Thing]], list[_Made]], things: Sequence[_Thing]
) -> list[_Made]:
    """What `make` gives of all things, one for each and of it alone: lists of texts or numbers. Of
    many another process makes the second half; where that cannot be, or ends early, it is made
    here."""
    half = len(things) // 2
    aside = Aside.begin(lambda: marshal.dumps(make(things[half:]))) if half * 2 >= LEAST else None
    if aside is None:
        return make(things)
    try:
        first = make(things[:half])
    finally:
        told = aside.told()
    rest: list[_Made] = make(things[half:]) if told is None else marshal.loads(told)
    return first + rest
