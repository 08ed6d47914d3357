"""The far side: what is read here, told on a pipe line by line, as long as somebody listens."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from rocm_tui import __version__
from rocm_tui.ingest.far.wire import BEAT, Beat, Hello, Settled, Told, line_of
from rocm_tui.ingest.follow.reading import read_sources, with_tunings
from rocm_tui.ingest.follow.watcher import Watcher
from rocm_tui.ingest.records import GraphTold, LinkSeen, Record, SourceStatus

SILENCE = 60.0
"""Seconds without one from the near side after which that is gone: a cut network says nothing."""
_ENOUGH = 1 << 18
"""Bytes that are written together."""
_LOOK = 1.0
"""Seconds between two looks at how far sources have been read."""


class Teller:
    """Writes whole lines to a descriptor, from several threads. Raises OSError, where nobody
    listens any more."""

    def __init__(self, out: int) -> None:
        self._out = out
        self._lock = threading.Lock()

    def tell(self, *told: Told) -> None:
        self._write(b"".join(map(line_of, told)))

    def tell_records(self, records: Iterable[Record]) -> None:
        """But for those that are not of a source read here."""
        held = bytearray()
        for record in records:
            if not isinstance(record, LinkSeen | GraphTold):
                held += line_of(record)
            if len(held) >= _ENOUGH:
                self._write(held)
                held = bytearray()
        self._write(held)

    def _write(self, data: bytes | bytearray) -> None:
        view = memoryview(data)
        with self._lock:
            while view:
                view = view[os.write(self._out, view) :]


def tell_once(paths: Sequence[str], cache_dir: Path, out: int) -> None:
    """All that the sources hold now. Raises OSError."""
    teller = Teller(out)
    teller.tell(_hello())
    teller.tell_records(read_sources(with_tunings(paths, cache_dir)))
    teller.tell(Settled())


def tell_on(
    paths: Sequence[str], cache_dir: Path, out: int, hears: int, *, polling: bool = False
) -> None:
    """The same, then what changes, until `hears` is at its end or silent for long: whoever listens
    says something every `BEAT` seconds. Raises OSError."""
    teller = Teller(out)
    lost = threading.Event()

    def sink(records: list[Record]) -> None:
        try:
            teller.tell_records(records)
        except OSError:
            lost.set()

    def settled() -> None:
        sink([])
        teller.tell(Settled())

    teller.tell(_hello())
    watcher = Watcher(with_tunings(paths, cache_dir), sink, polling=polling, settled=settled)
    watcher.start()
    known: dict[str, SourceStatus] = {}
    heard = beaten = time.monotonic()
    while not lost.is_set():
        ready, _, _ = select.select([hears], [], [], _LOOK)
        now = time.monotonic()
        if ready:
            if not os.read(hears, 1 << 12):
                return
            heard = now
        if now - heard > SILENCE:
            return
        beat = _changes(known, watcher.sources())
        if beat.sources or beat.gone or now - beaten >= BEAT:
            teller.tell(beat)
            beaten = now


def _hello() -> Hello:
    return Hello(__version__, socket.gethostname())


def _changes(known: dict[str, SourceStatus], sources: Sequence[SourceStatus]) -> Beat:
    """What is another than it was known to be, which is known from now on."""
    now = {status.path: status for status in sources}
    gone = tuple([path for path in known if path not in now])
    changed = tuple([status for path, status in now.items() if known.get(path) != status])
    known.clear()
    known.update(now)
    return Beat(changed, gone)
