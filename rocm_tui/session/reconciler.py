"""The thread that keeps pins and timings while the screen runs: other processes write their old
copies over them."""

from __future__ import annotations

import threading
import time

from backend.disk.layout import Layout
from rocm_tui.session.inbox import Inbox

_LOOK = 1.0
"""Seconds between two looks at the files' times: a few system calls."""
_PAINT = 0.3
"""Seconds for the screen to paint what was there at the start: what knows of pins is large."""
_RECONCILE = 20.0
"""Seconds after which the pins are compared with the files even if none seems to have changed."""
_SHARE = 0.0015
"""The most that these comparisons may take of a core, while they are made more often than that."""


class Reconciler:
    """A thread that applies drifted pins again and tells the inbox of every change. The first look
    waits for `poke`, or a second."""

    def __init__(self, layout: Layout, inbox: Inbox) -> None:
        self._layout = layout
        self._inbox = inbox
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self.read_only = False
        """Nothing is written: drifted pins are told as such."""
        self._thread = threading.Thread(target=self._run, name="reconciler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def poke(self) -> None:
        """Look now: a pin was just made or taken back."""
        self._wake.set()

    def stop(self) -> None:
        """Ask the thread to end and wait for what it is writing."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)

    def _run(self) -> None:
        pinned = self._layout.pins.exists()
        if pinned:
            self._inbox.put_awaited(self._keys())
        self._wake.wait(_LOOK)  # the first rows come before what is loaded here
        if self._stopping.wait(_PAINT):
            return
        from rocm_tui.session.keeping import Keeper  # what knows of pins is large

        keeper, due = Keeper(self._layout, self._inbox, awaited=pinned), 0.0
        seen: object = None
        while not self._stopping.is_set():
            # What changes while we reconcile is seen by the next look, and so is what we change.
            now = keeper.stamps()
            poked = self._wake.is_set()
            self._wake.clear()
            if poked or now != seen or time.monotonic() >= due:
                begin = time.thread_time()
                keeper.reconcile(read_only=self.read_only)
                pause = (time.thread_time() - begin) / _SHARE
                seen, due = now, time.monotonic() + min(pause, _RECONCILE)
            self._wake.wait(_LOOK)

    def _keys(self) -> frozenset[tuple[str, str]]:
        """What is pinned, read before it is known whether that holds, which takes the caches and
        compiled graphs. None where that cannot be read: `Keeper` says why."""
        from backend.errors import StoreError
        from backend.pins.file import read_pin_file  # the small part of what knows of pins

        try:
            pins = read_pin_file(self._layout.pins).pins
        except (StoreError, OSError):
            return frozenset()
        return frozenset((record.op, record.inputs) for record in pins)
