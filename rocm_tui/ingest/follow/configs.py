"""A whole cache of Triton, followed as one source.

It has a folder for each kernel that was compiled, thousands of them, and one for each that
`@triton.autotune` timed. What a folder is for shows when its first file is there, and stays so.
Until then, while the kernel is timed, it is looked into again and again.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from backend.cache.configs import MAX_BYTES, is_file
from backend.disk.safe import read_bytes
from backend.errors import CacheUnreadable
from backend.model.kernel import is_digest
from backend.model.session import Fault
from backend.model.tuning import Tuning
from rocm_tui.harmless import clean
from rocm_tui.ingest.formats.configs import FORMAT, tuning_of
from rocm_tui.ingest.records import Dropped, Gone, Record, Seen, SourceState, Unread, uid_of

MOST = 100_000
"""Folders that are looked into."""
AGAIN = 0.25
"""Seconds between two looks into folders that are still empty."""
PATIENCE = 600.0
"""Seconds for which they are looked into so often: the process may have been killed."""
_LEISURE = 300.0
"""What is known is looked at again after so many times the seconds that this took."""

_Stamp = tuple[int, int, int]


class ConfigFolder:
    """Follows the folder at `path` as a `Tailer` follows a file; `poll` never raises."""

    format = FORMAT.name
    rewritten = False

    def __init__(self, path: str) -> None:
        self.path = path
        self.state: SourceState = "waiting"
        self._failure: str | None = None
        self._reset()

    def _reset(self) -> None:
        self._compiled: set[str] = set()
        self._empty: dict[str, float] = {}
        self._stamps: dict[str, _Stamp] = {}
        self._tunings: dict[str, Tuning] = {}
        self._faulty: set[str] = set()
        self._listed: tuple[int, int] | None = None
        self._rested = 0.0
        self._again: float | None = None

    @property
    def size(self) -> int:
        """Bytes of the files with times."""
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
        """While a kernel may be timed just now; monotonic seconds."""
        return self._again

    def poll(self, now: float | None = None) -> list[Record]:
        """Everything that changed since the last call. `now` is monotonic time in seconds."""
        try:
            return self._poll(time.monotonic() if now is None else now)
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

    def _poll(self, now: float) -> list[Record]:
        start = time.monotonic()
        status = os.stat(self.path)  # noqa: PTH116
        records: list[Record] = [] if self._failure is None else [Gone(self.path)]
        self.state, self._failure = "following", None
        listed = (status.st_ino, status.st_mtime_ns)
        due = now >= self._rested
        if listed != self._listed:
            records += self._list(now)
            self._listed = listed
        for name, since in list(self._empty.items()):
            if due or now - since < PATIENCE:
                records += self._look_into(name)
        if due:
            for path in list(self._stamps):
                records += self._take(path)
            self._rested = now + (time.monotonic() - start) * _LEISURE
        young = any(now - since < PATIENCE for since in self._empty.values())
        self._again = now + AGAIN if young else None
        return records

    def _list(self, now: float) -> list[Record]:
        """Take up the folders that came, and forget those that went."""
        with os.scandir(self.path) as entries:
            names = {entry.name for entry in entries if is_digest(entry.name)}
        records: list[Record] = []
        if len(names) > MOST and self._listed is None:
            records.append(Fault(self.path, f"what is beyond {MOST} folders is not read"))
        self._compiled &= names
        known = {os.path.basename(os.path.dirname(path)) for path in self._stamps}  # noqa: PTH119, PTH120
        for name in self._empty.keys() - names:
            del self._empty[name]
        for name in sorted(names - self._compiled - known - self._empty.keys())[:MOST]:
            self._empty[name] = now
        return records

    def _look_into(self, name: str) -> list[Record]:
        """What a folder is for, if that shows yet."""
        folder = os.path.join(self.path, name)  # noqa: PTH118
        try:
            with os.scandir(folder) as entries:
                names = [each.name for each in entries if not each.name.startswith((".", "tmp."))]
        except OSError:
            names = ["?"]  # no folder, or none of ours to look into
        ours = [os.path.join(folder, each) for each in names if is_file(each)]  # noqa: PTH118
        if names:
            del self._empty[name]
        if names and not ours:
            self._compiled.add(name)
        return [record for path in ours for record in self._take(path)]

    def _take(self, path: str) -> list[Record]:
        """Read one file, if it changed."""
        try:
            status = os.stat(path)  # noqa: PTH116
        except OSError:
            return self._forget(path) if path in self._stamps else []
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        if self._stamps.get(path) == stamp:
            return []
        self._stamps[path] = stamp
        records: list[Record] = [Gone(path)] if path in self._faulty else []
        self._faulty.discard(path)
        try:
            tuning = tuning_of(read_bytes(Path(path), MAX_BYTES), path, status.st_mtime)
        except CacheUnreadable as error:
            dropped = self._tunings.pop(path, None)
            self._faulty.add(path)
            records += [Dropped(uid_of(path, 0))] if dropped else []
            return [*records, Unread(path, clean(str(error)))]
        if self._tunings.get(path) != tuning:
            self._tunings[path] = tuning
            records.append(Seen(uid_of(path, 0), tuning))
        return records

    def _forget(self, path: str) -> list[Record]:
        """The file is gone; its folder may get another one."""
        del self._stamps[path]
        self._tunings.pop(path, None)
        self._faulty.discard(path)
        self._listed = None
        return [Gone(path)]

    def _failed(self, error: OSError) -> list[Record]:
        why = clean(error.strerror or type(error).__name__)
        self.state = "unreadable"
        if why == self._failure:
            return []
        self._failure = why
        return [Unread(self.path, f"cannot read it: {why}")]
