"""Pins and timings, kept: other processes write their old copies over them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from backend.cache.fold import Recaller
from backend.disk.layout import Layout
from backend.disk.safe import exists
from backend.errors import StoreError
from backend.model.problem import TuningKey
from backend.model.session import Fault
from backend.pins.graphs.index import upper_folders
from backend.pins.held import pinned_choices
from backend.pins.state import PinStatus
from backend.pins.store import PinStore
from rocm_tui.session.inbox import Inbox


class Keeper:
    """Compares them with the files, and tells the inbox of every change."""

    def __init__(self, layout: Layout, inbox: Inbox, *, awaited: bool = False) -> None:
        """`awaited`: the states of pins are waited for; told even if there is none any more."""
        self._layout = layout
        self._inbox = inbox
        self._store = PinStore(layout)
        self._recaller = Recaller(layout, pinned_choices)
        self._drifts: dict[TuningKey, int] | None = None
        self._last: list[PinStatus] | None = None if awaited else []

    def reconcile(self, *, read_only: bool) -> None:
        """Apply drifted pins again; where nothing may be written they are told as such."""
        if not read_only:
            with contextlib.suppress(StoreError):  # whoever tunes next does it, told why not
                self._recaller.recall()
        try:
            if not exists(self._layout.pins):
                self._tell([])
                return
            if self._drifts is None:
                self._drifts = {pin.key: pin.drifts for pin in self._store.pins()}
            statuses = self._store.status() if read_only else self._store.reconcile()
        except StoreError as error:
            problem = Fault(str(self._layout.pins), str(error))
            self._inbox.put_pins(self._readable(), problem=problem)
            self._last = None
            return
        before = self._drifts
        self._drifts = {status.pin.key: status.pin.drifts for status in statuses}
        drifted = [s for s in statuses if s.pin.drifts > before.get(s.pin.key, s.pin.drifts)]
        self._tell(statuses, drifted)

    def _tell(self, statuses: list[PinStatus], drifted: Sequence[PinStatus] = ()) -> None:
        if statuses != self._last or drifted:
            self._last = statuses
            self._inbox.put_pins(statuses, drifted)

    def _readable(self) -> list[PinStatus]:
        """The pins where they can be read but not be kept."""
        try:
            return self._store.status()
        except StoreError:
            return []

    def stamps(self) -> tuple[object, ...]:
        """Names, sizes and times of the persistent cache's files and of the pins, and, where
        something is pinned, what tells a new compiled graph."""
        stamps: list[object] = []
        try:
            with os.scandir(self._layout.autotune) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    stamps.append((entry.name, status.st_size, status.st_mtime_ns, status.st_ino))
        except OSError as error:
            stamps.append(error.errno)
        try:
            status = self._layout.pins.stat()
            stamps.append((status.st_mtime_ns, status.st_ino))
        except OSError as error:
            stamps.append(error.errno)
        else:
            stamps.append(upper_folders(self._layout))
        return tuple(stamps)
