"""The best configs of all kernels below a cache dir of Inductor's, followed as one source.

They lie beside the generated code, in up to 1,024 folders, which the system is asked to watch: what
it tells of is looked into alone. Where it does not, and now and then where it does, the time stamps
of all are looked at: a file that comes, or is written anew as Inductor does it, changes that of its
folder.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from backend.cache.best_config import MAX_BYTES, SUFFIX, Beside, is_file, is_folder
from backend.cache.triton import folders_of
from backend.model.session import Fault
from backend.model.tuning import Tuning
from rocm_tui.ingest.follow.gathered import Gathered
from rocm_tui.ingest.formats.best_config import FORMAT, tuning_of
from rocm_tui.ingest.records import Record

MOST = 50_000
"""Files that are read."""
AGAIN = 1.0
"""Seconds between two looks at all folders, at least."""
_LEISURE = {False: 800.0, True: 8000.0}
"""And so many times the seconds of the processor that one takes, by whether the system tells;"""
_QUIET, _BUSY = 2.0, 60.0
"""the first factor more once nothing has come for so many seconds;"""
_MOST = {False: 3.0, True: 30.0}
"""but no more than so many seconds: the machine may have been busy with something else."""
_WAITED = 20.0
"""Yet so many times those by the clock: a cache dir may lie far away."""
_PART = 32
"""Folders that are read once more in one look."""
_NEVER: tuple[int, frozenset[str]] = 0, frozenset()
_SETTLED_NS = 2_000_000_000
"""After which a change has another time stamp, however coarse the clock is."""


def path_of(root: str) -> str:
    """What the source is called."""
    return os.path.join(root, "*", f"*{SUFFIX}")  # noqa: PTH118


class BestConfigs(Gathered):
    """Follows the source of this path."""

    format = FORMAT.name
    most_bytes = MAX_BYTES
    rereads = True

    def __init__(self, path: str, early: Callable[[list[Record]], None] | None = None) -> None:
        super().__init__(path, os.path.dirname(os.path.dirname(path)), early)  # noqa: PTH120

    def _reset(self) -> None:
        super()._reset()
        self._folders: dict[str, tuple[int, frozenset[str]]] = {}
        self._names: tuple[int, tuple[str, ...]] = 0, ()
        self._seen: tuple[tuple[str, ...], list[int]] | None = None
        self._came = -_BUSY
        self._compiled: list[int] | None = None
        self._left: list[str] = []
        self._needed: frozenset[str] | None = None
        self._beside = Beside(Path())
        self._full = False

    @property
    def needed(self) -> frozenset[str]:
        """Those with generated code."""
        if self._needed is None:
            self._needed = frozenset(os.path.join(self.place, name) for name in self._folders)  # noqa: PTH118
        return self._needed

    def _tuning_of(self, data: bytes, path: str, when: float) -> Tuning:
        return tuning_of(data, path, when, self._beside)

    def concerns(self, folder: str, file: str) -> bool:
        """The folders, and the files of this name in them."""
        return is_folder(folder) and (not file or (is_file(file) and file[0] != "."))

    def _look(self, now: float) -> list[Record]:
        told, self._told = self._told, set()
        records = [record for name in sorted(told) for record in self._look_into(name)]
        if self._again is None or now >= self._again:
            records += self._look_at_all(now)
        return records

    def _look_at_all(self, now: float) -> list[Record]:
        """Look into the folders that changed. Raises OSError."""
        start, begun = time.thread_time(), time.monotonic()
        records: list[Record] = []
        root = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            names = self._listed(root)
            stamps = _stamps(names, root)
        finally:
            os.close(root)
        came = False
        if self._seen != (names, stamps):
            known = [self._folders.get(name, _NEVER)[0] for name in names]
            self._seen = (names, stamps) if known == stamps else None
            gone = self._folders.keys() - set(names)
            changed = [n for n, a, b in zip(names, known, stamps, strict=True) if a != b]
            for name in [*changed, *gone]:
                found = self._look_into(name)
                came = came or bool(found)
                records = self._hand_on(records + found)
        for name in self._healed():
            records += self._look_into(name)
        first, self._again = self._again is None, now + AGAIN
        if came:  # reading is done once
            self._came = self._came if first else now
            return records
        quiet = 1.0 if now - self._came < _BUSY else _QUIET
        is_told = self.is_watched and not self._left
        rest = (time.thread_time() - start) * _LEISURE[is_told] * quiet
        waited = (time.monotonic() - begun) * _WAITED
        self._again = now + max(AGAIN, min(rest, _MOST[is_told]), waited)
        return records

    def _healed(self) -> list[str]:
        """Some folders with a file that could not be read, once more since Triton's caches, which
        may tell what it is about, changed, and change no more: a cache dir may be copied here."""
        if not self._faulty:
            return []
        stamps = _stamps([str(path) for path in folders_of(Path(self.folder))])
        if stamps != self._compiled:
            self._compiled = stamps
            self._left = sorted({Path(path).parent.name for path in self._faulty})
            return []
        some, self._left = self._left[:_PART], self._left[_PART:]
        return some

    def _listed(self, root: int) -> tuple[str, ...]:
        """The names of the folders."""
        changed = os.fstat(root).st_mtime_ns
        if changed != self._names[0]:
            with os.scandir(root) as entries:
                found = [e.name for e in entries if is_folder(e.name) and not e.is_symlink()]
            settled = time.time_ns() - changed > _SETTLED_NS
            self._names = changed if settled else 0, tuple(sorted(found))
        return self._names[1]

    def _look_into(self, name: str) -> list[Record]:
        folder = os.path.join(self.folder, name)  # noqa: PTH118
        try:
            status = os.lstat(folder)
            if not stat.S_ISDIR(status.st_mode):
                return self._forget_folder(name)
            names = sorted(n for n in os.listdir(folder) if self.concerns(name, n))  # noqa: PTH208
        except OSError:
            return self._forget_folder(name)
        if name not in self._folders:
            self._needed = None
        _, known = self._folders.get(name, _NEVER)
        paths = {os.path.join(folder, each): None for each in names}  # noqa: PTH118
        records = [r for path in known - paths.keys() for r in self._forget(path)]
        self._beside = Beside(Path(folder))
        taken: set[str] = set()
        for path in paths:
            if path in known or len(self._stamps) < MOST:
                records += self._take(path)
                taken.add(path)
            elif not self._full:
                self._full = True
                records.append(Fault(self.path, f"what is beyond {MOST} files is not read"))
        settled = time.time_ns() - status.st_mtime_ns > _SETTLED_NS
        stamp = status.st_mtime_ns if settled else 0
        self._folders[name] = stamp, frozenset(taken & self._stamps.keys())
        return records

    def _forget_folder(self, name: str) -> list[Record]:
        _, known = self._folders.pop(name, _NEVER)
        self._needed = None
        return [record for path in known for record in self._forget(path)]


def _stamps(names: Sequence[str], root: int | None = None) -> list[int]:
    """When folders changed; -1 for one that is gone again."""
    try:
        return [os.stat(n, dir_fd=root, follow_symlinks=False).st_mtime_ns for n in names]
    except OSError:
        return [-1] if len(names) == 1 else [s for n in names for s in _stamps((n,), root)]
