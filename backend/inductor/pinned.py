"""Asking the pins. The file is read again only when it changed on disk."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from backend.inductor.saying import say_once
from backend.records import Pin, TuningKey
from backend.store.errors import StoreError
from backend.store.paths import Layout, cache_dir

_Stamp = tuple[Path, int, int, int]


class PinLookup:
    """The pins of the cache dir that is in force; none where their file cannot be read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stamp: _Stamp | None = None
        self._pins: tuple[Pin, ...] = ()

    def find(self, key: TuningKey, system_hash: str) -> Pin | None:
        """The pin of `key` on this system. A pin holds for each precision that its tuning had."""
        for pin in self._current():
            if (pin.op, pin.inputs, pin.system_hash) == (key.op, key.inputs, system_hash) and (
                key.precision == pin.precision or key.precision in pin.timings
            ):
                return pin
        return None

    def _current(self) -> Sequence[Pin]:
        layout = Layout(cache_dir())
        stamp = _stamp(layout.pins)
        with self._lock:
            if stamp != self._stamp:
                self._stamp = stamp
                self._pins = () if stamp is None else _read(layout)
            return self._pins


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return path, found.st_mtime_ns, found.st_size, found.st_ino


def _read(layout: Layout) -> tuple[Pin, ...]:
    from backend.store.pins import PinStore

    try:
        return tuple(PinStore(layout).pins())
    except StoreError as error:
        say_once(f"pins are not honoured: {error}")
        return ()
