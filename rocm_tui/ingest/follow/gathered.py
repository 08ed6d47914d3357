"""Many small files that are followed as one source: each is a tuning, told when it changed."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from backend.disk.safe import read_bytes
from backend.errors import CacheUnreadable
from backend.model.tuning import Tuning
from rocm_tui.harmless import clean
from rocm_tui.ingest.records import Dropped, Gone, Record, Seen, SourceState, Unread, uid_of

_AT_ONCE = 500
"""Tunings that are handed on before all is read."""

_Stamp = tuple[int, int, int]


class Gathered(ABC):
    """Follows the files of `folder` as a `Tailer` follows one; `poll` never raises. `path` is what
    the source is called. `early` takes what was found while there is still much to read."""

    format: ClassVar[str]
    most_bytes: ClassVar[int]
    rereads: ClassVar[bool] = False
    """Whether what is beside a file decides if it can be read."""
    rewritten = False
    is_watched = False
    """Whether the system tells of all that changes here: who asked it to sets this."""

    def __init__(
        self, path: str, folder: str, early: Callable[[list[Record]], None] | None = None
    ) -> None:
        self.path, self.folder, self._early = path, folder, early
        self.state: SourceState = "waiting"
        self._failure: str | None = None
        self._again: float | None = None
        self.place = os.path.abspath(folder)  # noqa: PTH100 - keeps symlinks
        self._reset()

    def _reset(self) -> None:
        self._told: set[str] = set()
        self._stamps: dict[str, _Stamp] = {}
        self._faulty: dict[str, str] = {}
        self._again = None

    @abstractmethod
    def _look(self, now: float) -> list[Record]:
        """What changed, by `_take` and `_forget`. Raises OSError."""

    @abstractmethod
    def _tuning_of(self, data: bytes, path: str, when: float) -> Tuning:
        """What a file tells. Raises CacheUnreadable."""

    @property
    def needed(self) -> frozenset[str]:
        """The folders in which a file may change at any time, absolute, beside the source's own."""
        return frozenset()

    def awaited(self, now: float) -> frozenset[str]:
        """Those, and in which one is to be expected soon."""
        return self.needed

    def concerns(self, folder: str, file: str) -> bool:
        """Whether a change of this folder in it, or of a file there, may be one of a tuning."""
        return True

    def tell(self, name: str) -> None:
        """The next `poll` looks at what changed in the folder of this name."""
        self._told.add(name)

    @property
    def size(self) -> int:
        """Bytes of the files with tunings."""
        return sum(size for _, _, size in self._stamps.values())

    @property
    def read(self) -> int:
        return self.size

    @property
    def problems(self) -> int:
        """How many files could not be read."""
        return len(self._faulty) + (self._failure is not None)

    @property
    def retry_at(self) -> float | None:
        """When to look though nothing was told; monotonic seconds."""
        return self._again

    def poll(self, now: float | None = None) -> list[Record]:
        """Everything that changed since the last call. `now` is monotonic time in seconds."""
        try:
            os.stat(self.folder)  # noqa: PTH116
            records: list[Record] = [] if self._failure is None else [Gone(self.path)]
            self.state, self._failure = "following", None
            return records + self._look(time.monotonic() if now is None else now)
        except (FileNotFoundError, NotADirectoryError):
            return self.withdraw()
        except OSError as error:
            return self._failed(error)

    def close(self) -> list[Record]:
        """Nothing is open between two looks."""
        return []

    def withdraw(self) -> list[Record]:
        """Take back everything: the folder is gone, or no source any more."""
        known = self.state != "waiting"
        records: list[Record] = [Gone(path) for path in self._stamps]
        self._reset()
        self.state, self._failure = "waiting", None
        return [*records, Gone(self.path)] if known else records

    def _take(self, path: str) -> list[Record]:
        """Read one file, if it changed."""
        try:
            status = os.stat(path)  # noqa: PTH116
        except OSError:
            return self._forget(path)
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        before, fault = self._stamps.get(path), self._faulty.get(path)
        if before == stamp and not (fault and self.rereads):
            return []
        self._stamps[path] = stamp
        records: list[Record] = [Gone(path)] if fault else []
        try:
            data = read_bytes(path, self.most_bytes)
            tuning = self._tuning_of(data, path, status.st_mtime)
        except CacheUnreadable as error:
            why = clean(str(error))
            if why == fault:
                return []
            self._faulty[path] = why
            records += [Dropped(uid_of(path, 0))] if before and not fault else []
            return [*records, Unread(path, why)]
        self._faulty.pop(path, None)
        return [*records, Seen(uid_of(path, 0), tuning)]

    def _hand_on(self, records: list[Record]) -> list[Record]:
        """Give away what has come to be much; returns what was not."""
        if self._early is None or len(records) < _AT_ONCE:
            return records
        self._early(records)
        return []

    def _forget(self, path: str) -> list[Record]:
        """The file is gone."""
        self._faulty.pop(path, None)
        return [] if self._stamps.pop(path, None) is None else [Gone(path)]

    def _failed(self, error: OSError) -> list[Record]:
        why = clean(error.strerror or type(error).__name__)
        self.state = "unreadable"
        if why == self._failure:
            return []
        self._failure = why
        return [Unread(self.path, f"cannot read it: {why}")]
