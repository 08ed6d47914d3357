"""Sources followed in a process of its own, which has a core of its own: while the screen is being
loaded they are read already, and however big they are, keys do not wait for whoever reads.

It is forked before anything heavy is loaded, and ends with the process that it reads for. What it
found comes through a pipe; no other process can write there.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import signal
import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn

if TYPE_CHECKING:  # types only: what reads is loaded in the other process
    from rocm_tui.ingest.follow.packing import Message
    from rocm_tui.ingest.records import Record, SourceStatus

_SIZE = struct.Struct("<Q")
_ROOM = 1 << 20
"""Bytes that the pipe should hold: what fills it needs not wait for who empties it."""
_ANSWER = 0.1
"""Seconds that the state of the sources is waited for."""
_ASK = b"?"

Sink = Callable[[list["Record"]], None]


class ReaderProcess:
    """A `Watcher` in another process, forked by `begin`; it reads at once. What it found is kept
    back until `start`, and then handed to those who are told by `tell`."""

    def __init__(self, pid: int, found: int, asks: int) -> None:
        self.pid = pid
        self._sink: Sink = _nobody
        self._settle: Callable[[], None] = lambda: None
        self._settled = False
        self._found: BinaryIO = os.fdopen(found, "rb", buffering=_ROOM)
        self._asks = asks
        self._statuses: tuple[SourceStatus, ...] = ()
        self._answered = threading.Event()
        self._stopping = False

    @classmethod
    def begin(cls, paths: Sequence[str], cache_dir: Path, *, polling: bool) -> ReaderProcess:
        """Fork it; no thread may run yet. With no path that can tell of a tuning the cache dir is
        read, too. Raises OSError."""
        found, finds = os.pipe()
        hears, asks = os.pipe()
        with contextlib.suppress(OSError, AttributeError):  # elsewhere it holds less
            fcntl.fcntl(finds, fcntl.F_SETPIPE_SZ, _ROOM)
        pid = os.fork()
        if pid == 0:
            os.close(found)
            os.close(asks)
            _read(paths, cache_dir, polling, finds, hears)
        os.close(finds)
        os.close(hears)
        return cls(pid, found, asks)

    def tell(self, sink: Sink, settled: Callable[[], None]) -> None:
        """Who takes what it finds, and who hears that all that was there at the start has come."""
        self._sink, self._settle = sink, settled

    def start(self) -> None:
        """Hand over, from a thread."""
        threading.Thread(target=self._take, name="rocm-tui-reader", daemon=True).start()

    def stop(self) -> None:
        """End it: it writes nothing, so it may be killed at any time."""
        if not self._stopping:
            self._stopping = True
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            os.close(self._asks)

    def sources(self) -> tuple[SourceStatus, ...]:
        """The state of each source; the last that is known if it has no time to answer."""
        if self._settled and not self._stopping:
            self._answered.clear()
            with contextlib.suppress(OSError):  # it has ended, and that was said
                os.write(self._asks, _ASK)
                self._answered.wait(_ANSWER)
        return self._statuses

    def _take(self) -> None:
        while message := self._message():
            records, statuses = message
            if statuses is not None:
                self._statuses = statuses
                self._answered.set()
            if self._stopping:
                return
            if records:
                self._sink(records)
            elif not self._settled:
                self._end_of_first()
        if not self._stopping:
            from backend.model.session import Fault  # the screen stands by now

            self._sink([Fault("", "watching stopped: the process that reads has ended")])
            self._end_of_first()

    def _end_of_first(self) -> None:
        self._settled = True
        self._settle()

    def _message(self) -> Message | None:
        from rocm_tui.ingest.follow.packing import unpacked

        head = self._found.read(_SIZE.size)
        if len(head) < _SIZE.size:
            return None
        (size,) = _SIZE.unpack(head)
        data = self._found.read(size)
        return unpacked(data) if len(data) == size else None


def _nobody(records: list[Record]) -> None: ...


# In the other process


def _read(paths: Sequence[str], cache_dir: Path, polling: bool, finds: int, hears: int) -> NoReturn:
    """Read and answer until whoever asks is gone."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        gc.disable()  # what is read has no cycles
        from rocm_tui.ingest.follow.heads import with_tunings
        from rocm_tui.ingest.follow.packing import packed
        from rocm_tui.ingest.follow.watcher import Watcher

        lock = threading.Lock()

        def send(message: Message) -> None:
            data = packed(message)
            with lock, contextlib.suppress(BrokenPipeError):
                _write(finds, _SIZE.pack(len(data)) + data)

        def sink(records: list[Record]) -> None:
            send((records, None))

        def settled() -> None:
            send(([], watcher.sources()))
            gc.freeze()
            gc.enable()

        paths = with_tunings(paths, cache_dir)
        watcher = Watcher(paths, sink, polling=polling, settled=settled)
        watcher.start()
        while os.read(hears, 1):
            send(([], watcher.sources()))
    finally:
        os._exit(0)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
