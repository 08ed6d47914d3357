"""What a worker is at, as it stands in memory that it shares with us: known after a crash too."""

from __future__ import annotations

import os
import tempfile
import time

from backend.worker.mark import SIZE, Place, place_of


class SharedMark:
    """The parent's side of a worker's mark."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        self._place: Place | None = None
        self._since = 0.0
        self.clear()

    @property
    def descriptor(self) -> int:
        """What the worker is to inherit."""
        return self._file.fileno()

    def clear(self) -> None:
        os.pwrite(self.descriptor, bytes(SIZE), 0)

    def place(self) -> Place | None:
        """Where the worker is, or was when it died; None once this is closed."""
        return None if self._file.closed else place_of(os.pread(self.descriptor, SIZE, 0))

    def running_for(self) -> float:
        """Seconds since it was first seen that a choice runs which has not ended since."""
        place, now = self.place(), time.monotonic()
        if place is None or place.doing != "running":
            self._place = None
            return 0.0
        if place != self._place:
            self._place, self._since = place, now
        return now - self._since

    def close(self) -> None:
        self._file.close()
