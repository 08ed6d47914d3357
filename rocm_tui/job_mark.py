"""What a worker is at, as it stands in memory that it shares with us: known after a crash too."""

from __future__ import annotations

import contextlib
import os
import time

from backend.worker.mark import SIZE, Place, place_of
from backend.worker.ring import fixed_memory


class SharedMark:
    """The parent's side of a worker's mark."""

    def __init__(self) -> None:
        self.descriptor = fixed_memory("rocm-tui-mark", SIZE)
        """What the worker is to inherit."""
        self._open = True
        self._place: Place | None = None
        self._since = 0.0
        self.clear()

    def clear(self) -> None:
        os.pwrite(self.descriptor, bytes(SIZE), 0)

    def place(self) -> Place | None:
        """Where the worker is, or was when it died; None once this is closed."""
        return place_of(os.pread(self.descriptor, SIZE, 0)) if self._open else None

    def running_for(self) -> tuple[float, bool]:
        """Seconds since it was first seen that a choice runs which has not ended since, and whether
        it is timed at length."""
        place, now = self.place(), time.monotonic()
        if place is None or place.doing == "compiling":
            self._place = None
            return 0.0, False
        if place != self._place:
            self._place, self._since = place, now
        return now - self._since, place.doing == "timing"

    def close(self) -> None:
        if self._open:
            self._open = False
            with contextlib.suppress(OSError):
                os.close(self.descriptor)
