"""The hooks' lookup of pins: one stat, unless their file has changed.

Imports no torch, for processes that only compile.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from backend.disk.layout import Layout
from backend.errors import StoreError
from backend.inductor.guard import say_once
from backend.inductor.hooks.environment import home
from backend.model.inductor_kernel import OPS, InductorKernel
from backend.model.problem import TuningKey
from backend.model.tuning import Pin

_Stamp = tuple[int, int, int]


class PinLookup:
    """The pins of the cache dir in force, and of the person's own if that one is temporary; none if
    their file is unreadable."""

    def __init__(self) -> None:
        self._forked()
        os.register_at_fork(after_in_child=self._forked)
        self._read: dict[Path, tuple[_Stamp, tuple[Pin, ...]]] = {}

    def _forked(self) -> None:
        """Reset after a fork: a thread of the parent may have held the lock. Reentrant, since a
        signal handler may look pins up."""
        self._lock = threading.RLock()

    def find(self, key: TuningKey, system_hash: str) -> Pin | None:
        """Return the pin of `key` here. A pin holds for each precision that its tuning had."""
        for pin in self._current():
            if (pin.op, pin.inputs, pin.system_hash) == (key.op, key.inputs, system_hash) and (
                key.precision == pin.precision or key.precision in pin.timings
            ):
                return pin
        return None

    def find_kernel(self, kernel: InductorKernel) -> Pin | None:
        """Return the pin of a Triton kernel that Inductor launches; its key names the device."""
        key = kernel.op, kernel.inputs
        return next((pin for pin in self.of_kernels() if (pin.op, pin.inputs) == key), None)

    def of_kernels(self) -> list[Pin]:
        """Return all pins of Triton kernels that Inductor launches."""
        return [pin for pin in self._current() if pin.op in OPS]

    def _current(self) -> Sequence[Pin]:
        with self._lock:
            return [pin for place in home.places() for pin in self._of(Layout(place))]

    def _of(self, layout: Layout) -> tuple[Pin, ...]:
        stamp = _stamp(layout.pins)
        if stamp is None:
            return ()
        before, pins = self._read.get(layout.pins, (None, ()))
        if stamp != before:
            read = _read(layout)
            if read is None:  # perhaps only this once: the process had no descriptor left
                return ()
            pins = read
            self._read[layout.pins] = stamp, pins
        return pins


def _stamp(path: Path) -> _Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(layout: Layout) -> tuple[Pin, ...] | None:
    """Return the pins; None if their file is unreadable."""
    from backend.pins.store import PinStore  # only if there are pins: compile workers call this too

    try:
        return tuple(PinStore(layout).pins())
    except StoreError as error:
        say_once(f"pins are not honoured: {error}")
        return None
