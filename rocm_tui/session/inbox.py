"""Where the threads that read leave what they found, for the event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from backend.model.session import Fault
from rocm_tui.ingest.records import Record

if TYPE_CHECKING:
    from backend.pins.state import PinStatus


@dataclass(slots=True)
class Batch:
    """Everything that arrived since the last look."""

    records: list[Record] = field(default_factory=list)
    awaited: frozenset[tuple[str, str]] | None = None
    pins: Sequence[PinStatus] | None = None
    pin_problem: Fault | None = None
    drifted: list[PinStatus] = field(default_factory=list)


class Inbox:
    """`wake` is called from any thread, when the inbox was empty; it must not block."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._batch = Batch()
        self._woken = False

    def put_records(self, records: list[Record]) -> None:
        with self._lock:
            self._batch.records += records
        self._ring()

    def put_awaited(self, keys: frozenset[tuple[str, str]]) -> None:
        """The op and inputs key of each pin, before its state was read."""
        with self._lock:
            self._batch.awaited = keys
        self._ring()

    def put_pins(
        self,
        pins: Sequence[PinStatus],
        drifted: Sequence[PinStatus] = (),
        problem: Fault | None = None,
    ) -> None:
        """The pins as they are now, those that had drifted, and why they cannot be kept."""
        with self._lock:
            self._batch.pins = pins
            self._batch.drifted += drifted
            self._batch.pin_problem = problem
        self._ring()

    def take(self, most: int) -> tuple[Batch, bool]:
        """What has arrived, at most so many records of it, and whether more is waiting."""
        with self._lock:
            batch, self._batch = self._batch, Batch()
            self._batch.records = batch.records[most:]
            del batch.records[most:]
            self._woken = bool(self._batch.records)
            return batch, self._woken

    def _ring(self) -> None:
        with self._lock:
            if self._woken:
                return
            self._woken = True
        self._wake()
