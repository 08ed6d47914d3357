"""A whole cache of Triton, followed as one source.

It has a folder for each kernel that was compiled, thousands of them, and one for each that
`@triton.autotune` timed. What a folder is for shows when its first file is there, and stays so.
Until then, while the kernel is timed, it is looked into again and again. A program that compiles
makes many folders a second: what the system tells of is looked into alone, and all names are
listed now and then.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

from backend.cache.configs import MAX_BYTES, is_file
from backend.model.kernel import is_digest
from backend.model.session import Fault
from backend.model.tuning import Tuning
from rocm_tui.ingest.follow.gathered import Gathered
from rocm_tui.ingest.formats.configs import FORMAT, tuning_of
from rocm_tui.ingest.records import Record

MOST = 100_000
"""Folders that are looked into."""
AGAIN = 0.25
"""Seconds between two looks into folders that are still empty."""
PATIENCE = 600.0
"""Seconds for which they are looked into so often: the process may have been killed."""
TIMED = 0.5
"""A folder that is empty for so many seconds is one of a kernel that is timed just now."""
WATCHED = 8
"""How many of these are to be watched at once."""
_SLICE = 0.05
"""Seconds for which known files are looked at in one go."""
_FEW = 64
"""So many between two looks at the clock."""
_LEISURE = 1000.0
"""Then they are left alone for so many times the seconds of the processor that this took,"""
_WAITED = 20.0
"""and so many times those by the clock: a file may lie far away."""
_LISTED = {False: 25.0, True: 300.0}
"""The same for listing a folder that changes, by whether the system tells of what comes."""


class ConfigFolder(Gathered):
    """Follows the folder at `path`."""

    format = FORMAT.name
    most_bytes = MAX_BYTES

    def __init__(self, path: str, early: Callable[[list[Record]], None] | None = None) -> None:
        super().__init__(path, path, early)

    def _reset(self) -> None:
        super()._reset()
        self._names: set[str] = set()
        self._empty: dict[str, float] = {}
        self._files: dict[str, list[str]] = {}
        self._is_told = self._full = False
        self._listed: tuple[int, int] | None = None
        self._next_list = self._next_look = 0.0
        self._unlooked: list[str] = []

    def _tuning_of(self, data: bytes, path: str, when: float) -> Tuning:
        return tuning_of(data, path, when)

    def awaited(self, now: float) -> frozenset[str]:
        """Few, the newest."""
        young = [name for name, since in self._empty.items() if TIMED <= now - since < PATIENCE]
        return frozenset(os.path.join(self.place, name) for name in young[-WATCHED:])  # noqa: PTH118

    def _look(self, now: float) -> list[Record]:
        told, self._told = self._told, set()
        self._is_told = self._is_told or bool(told)
        records = [record for name in told for record in self._hear_of(name, now)]
        status = os.stat(self.path)  # noqa: PTH116
        listed = (status.st_ino, status.st_mtime_ns)
        if listed != self._listed and now >= self._next_list:
            begun = time.thread_time()
            records += self._list(now)
            self._listed = listed
            self._next_list = now + (time.thread_time() - begun) * _LISTED[self._is_told]
        due = now >= self._next_look
        records += self._look_into(
            name for name, since in list(self._empty.items()) if due or now - since < PATIENCE
        )
        if due:
            records += self._look_again(now)
        young = any(now - since < PATIENCE for since in self._empty.values())
        self._again = now + AGAIN if young else None
        return records

    def _list(self, now: float) -> list[Record]:
        """Take up the folders that came, and forget those that went."""
        names = set(os.listdir(self.path))  # noqa: PTH208 - a fifth of what entries take
        new = names - self._names
        gone = self._names - names if len(names) - len(new) < len(self._names) else ()
        records = [r for name in gone for r in self._without(name)]
        for name in sorted(filter(is_digest, new)):
            records += self._take_up(name, now)
        return records

    def _take_up(self, name: str, now: float) -> list[Record]:
        """Look into a folder from now on."""
        if name in self._names or len(self._names) < MOST:
            self._names.add(name)
            self._empty.setdefault(name, now)
        elif not self._full:
            self._full = True
            return [Fault(self.path, f"what is beyond {MOST} folders is not read")]
        return []

    def _hear_of(self, name: str, now: float) -> list[Record]:
        """Something happened to a folder, or in it."""
        if not is_digest(name):
            return []
        if not os.path.isdir(os.path.join(self.path, name)):  # noqa: PTH112, PTH118
            return self._without(name)
        records = [r for path in list(self._files.get(name, ())) for r in self._take(path)]
        return records + self._take_up(name, now)

    def _without(self, name: str) -> list[Record]:
        """A folder is gone."""
        self._names.discard(name)
        records = [r for path in list(self._files.get(name, ())) for r in self._forget(path)]
        self._files.pop(name, None)
        self._empty.pop(name, None)
        return records

    def _look_into(self, names: Iterable[str]) -> list[Record]:
        """What folders are for, if that shows yet."""
        records: list[Record] = []
        for name in names:
            folder = os.path.join(self.path, name)  # noqa: PTH118
            try:
                inside = [
                    each
                    for each in os.listdir(folder)  # noqa: PTH208
                    if not each.startswith((".", "tmp."))
                ]
            except OSError:
                inside = ["?"]  # no folder, or none of ours to look into
            if inside:
                del self._empty[name]
            for each in filter(is_file, inside):
                path = os.path.join(folder, each)  # noqa: PTH118
                if path not in self._stamps:
                    records += self._take(path)
                    if path in self._stamps:  # it may be gone again
                        self._files.setdefault(name, []).append(path)
            records = self._hand_on(records)
        return records

    def _look_again(self, now: float) -> list[Record]:
        """Whether files that are known changed: some of them, the others the next times."""
        begun, spent = time.monotonic(), time.thread_time()
        records: list[Record] = []
        self._unlooked = self._unlooked or list(self._stamps)
        while self._unlooked and time.monotonic() - begun < _SLICE:
            for path in self._unlooked[-_FEW:]:
                records += self._take(path) if path in self._stamps else []
            del self._unlooked[-_FEW:]
        waited = (time.monotonic() - begun) * _WAITED
        self._next_look = now + max((time.thread_time() - spent) * _LEISURE, waited)
        return records

    def _forget(self, path: str) -> list[Record]:
        """The file is gone; its folder may get another one."""
        name = os.path.basename(os.path.dirname(path))  # noqa: PTH119, PTH120
        if path in self._files.get(name, ()):
            self._files[name].remove(path)
            self._empty[name] = time.monotonic()
        return super()._forget(path)
