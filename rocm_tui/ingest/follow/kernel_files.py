"""The autotuning results of Triton kernels: many small files that are followed as one source.

A cache of Triton (`KernelConfigs`) has a folder for each kernel that was compiled, thousands of
them, and one for each that `@triton.autotune` timed. What a folder is for shows when its first file
is there, and does not change.

The best configs of Inductor's own kernels (`BestConfigs`) are beside the generated code, in up to
1,024 folders of its cache dir. A file that comes, or is replaced as Inductor does it, changes the
time stamp of its folder.

A folder in which a change was reported is looked into alone. All of them are looked at now and
then, so seldom that it costs next to nothing.
"""

from __future__ import annotations

import os
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from backend.cache import best_config, configs
from backend.disk.safe import read_bytes
from backend.errors import CacheUnreadable
from backend.model.inductor_kernel import is_digest
from backend.model.session import Fault
from backend.model.tuning import Tuning
from rocm_tui.harmless import clean
from rocm_tui.ingest.formats.kernel_configs import (
    BEST_CONFIG,
    TRITON_CONFIGS,
    best_config_tuning,
    triton_tuning,
)
from rocm_tui.ingest.records import Dropped, Gone, Record, Seen, SourceState, Unread, uid_of

EARLY = 500
"""Tunings after which they are handed on before everything is read."""
MOST_FOLDERS = 100_000
"""Folders of a cache of Triton that are looked into."""
MOST_FILES = 50_000
"""Files with a best config that are read."""
EMPTY_PAUSE = 0.25
"""Seconds between two looks into all empty folders, at least: a kernel is being timed."""
PATIENCE = 600.0
"""Seconds for which they are looked into so often: the process may have been killed."""
FOLDERS_PAUSE = 1.0
"""Seconds between two looks at all folders of a cache dir, at least."""
REST = 1000.0
"""A look at everything is followed by a pause of this many times the processor time it took,"""
REST_WAITED = 20.0
"""and of this many times the wall time: the folder may be on a slow file system."""
_REST_LISTED = 100.0
"""Listing a folder whose time stamp changed is followed by a pause of this many times its time."""
_SLICE = 0.05
"""Seconds for which known files are looked at in one go."""
_FILES_BETWEEN = 64
"""Files that are looked at between two looks at the clock."""
_REREAD = 32
"""Folders with files that could not be read which are read again in one look."""
_NO_FILES: tuple[int, frozenset[str]] = 0, frozenset()
_SETTLED_NS = 2_000_000_000
"""Nanoseconds after which a change must have another time stamp, however coarse the clock is."""

_Stamp = tuple[int, int, int]


class FollowedFiles(ABC):
    """Follows the files of `folder` as a `Tailer` follows one; `poll` never raises.

    `path` is the name of the source. `early` takes records while there is still much to read.
    """

    format: ClassVar[str]
    most_bytes: ClassVar[int]
    rereads: ClassVar[bool] = False
    """Whether a file that could not be read may become readable by what is beside it."""
    rewritten = False

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
        self._reported: set[str] = set()
        self._stamps: dict[str, _Stamp] = {}
        self._faulty: dict[str, str] = {}
        self._again = None
        self._next_look = 0.0

    @abstractmethod
    def _look(self, now: float) -> Iterator[Record]:
        """Yield what changed, by `_take` and `_forget`. Raises OSError."""

    @abstractmethod
    def _tuning_of(self, data: bytes, path: str, when: float) -> Tuning:
        """Read the content of a file. Raises CacheUnreadable."""

    def concerns(self, folder: str, file: str) -> bool:
        """Whether a change of this folder in it, or of a file there, may be one of a tuning."""
        return True

    def report(self, name: str) -> None:
        """Note a change in the folder of this name, for the next `poll`."""
        self._reported.add(name)

    def look_soon(self) -> None:
        """Look at everything with the next `poll`."""
        self._next_look = 0.0

    @property
    def size(self) -> int:
        """Bytes of the files with tunings."""
        # A copy: the thread that reads adds to these while the screen adds them up.
        return sum(size for _, _, size in list(self._stamps.values()))

    @property
    def read(self) -> int:
        return self.size

    @property
    def problems(self) -> int:
        """How many files could not be read."""
        return len(self._faulty) + (self._failure is not None)

    @property
    def retry_at(self) -> float | None:
        """When to poll though nothing was reported; monotonic seconds."""
        return self._again

    def poll(self, now: float | None = None) -> list[Record]:
        """Return what changed since the last call. `now` is monotonic time in seconds."""
        records: list[Record] = []
        try:
            os.stat(self.folder)  # noqa: PTH116
            records += [] if self._failure is None else [Gone(self.path)]
            self.state, self._failure = "following", None
            for record in self._look(time.monotonic() if now is None else now):
                records.append(record)  # kept if the look fails later: no other reads it again
        except (FileNotFoundError, NotADirectoryError):
            records += self.withdraw()
        except OSError as error:
            records += self._failed(error)
        return records

    def close(self) -> list[Record]:
        """Nothing is open between two looks."""
        return []

    def withdraw(self) -> list[Record]:
        """Withdraw everything: the folder is gone, or no longer a source."""
        was_read = self.state != "waiting"
        records: list[Record] = [Gone(path) for path in self._stamps]
        self._reset()
        self.state, self._failure = "waiting", None
        return [*records, Gone(self.path)] if was_read else records

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
        """Hand on records once there are many; return the rest."""
        if self._early is None or len(records) < EARLY:
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
        self._again = None  # it is in the past: left to the next look at everything
        if why == self._failure:
            return []
        self._failure = why
        return [Unread(self.path, f"cannot read it: {why}")]

    def _take_reported(self) -> set[str]:
        reported, self._reported = self._reported, set()
        return reported


class KernelConfigs(FollowedFiles):
    """Follows the cache of Triton at `path`."""

    format = TRITON_CONFIGS.name
    most_bytes = configs.MAX_BYTES

    def __init__(self, path: str, early: Callable[[list[Record]], None] | None = None) -> None:
        super().__init__(path, path, early)

    def _reset(self) -> None:
        super()._reset()
        self._names: set[str] = set()
        self._empty: dict[str, float] = {}
        self._files: dict[str, list[str]] = {}
        self._full = False
        self._listed: tuple[int, int] | None = None
        self._next_list = 0.0
        self._next_empty = 0.0
        self._unlooked: list[str] = []

    def _tuning_of(self, data: bytes, path: str, when: float) -> Tuning:
        return triton_tuning(data, path, when)

    def _look(self, now: float) -> Iterator[Record]:
        reported = self._take_reported()
        for name in sorted(reported):
            yield from self._look_at(name, now)
        status = os.stat(self.path)  # noqa: PTH116
        listed = (status.st_ino, status.st_mtime_ns)
        due, first = now >= self._next_look, self._listed is None
        begun, spent = time.monotonic(), time.thread_time()
        if listed != self._listed and (due or now >= self._next_list):
            yield from self._list(now)
            self._listed = listed
            self._next_list = now + (time.thread_time() - spent) * _REST_LISTED
        yield from self._look_into_empty(reported, now, due)
        if due:
            if first:  # it reads everything, which says nothing of the next look's time
                begun, spent = time.monotonic(), time.thread_time()
            yield from self._look_again()
            waited = (time.monotonic() - begun) * REST_WAITED
            self._next_look = now + max((time.thread_time() - spent) * REST, waited)
        young = any(now - since < PATIENCE for since in self._empty.values())
        self._again = self._next_empty if young else None

    def _look_into_empty(self, reported: set[str], now: float, due: bool) -> list[Record]:
        """Look into the empty folders that are new or changed, and now and then into all of them.

        Thousands may be empty at once, so a change of one of them costs no look at the others.
        """
        if not due and now < self._next_empty:
            new = (name for name, since in self._empty.items() if since == now)
            return self._look_into([*new, *(reported & self._empty.keys())])
        begun = time.thread_time()
        records = self._look_into(
            [name for name, since in self._empty.items() if due or now - since < PATIENCE]
        )
        self._next_empty = now + max(EMPTY_PAUSE, (time.thread_time() - begun) * _REST_LISTED)
        return records

    def _list(self, now: float) -> list[Record]:
        """Begin with new folders, and forget deleted ones."""
        names = set(os.listdir(self.path))  # noqa: PTH208 - a fifth of what entries take
        new = names - self._names
        gone = self._names - names if len(names) - len(new) < len(self._names) else ()
        records = [r for name in gone for r in self._without(name)]
        for name in sorted(filter(is_digest, new)):
            records += self._take_up(name, now)
        return records

    def _take_up(self, name: str, now: float) -> list[Record]:
        """Look into a folder from now on."""
        if name in self._names or len(self._names) < MOST_FOLDERS:
            self._names.add(name)
            self._empty.setdefault(name, now)
        elif not self._full:
            self._full = True
            return [Fault(self.path, f"what is beyond {MOST_FOLDERS} folders is not read")]
        return []

    def _look_at(self, name: str, now: float) -> list[Record]:
        """Look at the folder of this name, in which a change was reported."""
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
        """Read the first files of folders, if they are there by now."""
        records: list[Record] = []
        for name in names:
            folder = os.path.join(self.path, name)  # noqa: PTH118
            try:
                every = os.listdir(folder)  # noqa: PTH208
                inside = [each for each in every if not each.startswith((".", "tmp."))]
            except OSError:
                inside = ["?"]  # no folder, or none of ours to look into
            if inside:
                self._empty.pop(name, None)
            for each in filter(configs.is_file, inside):
                path = os.path.join(folder, each)  # noqa: PTH118
                if path not in self._stamps:
                    records += self._take(path)
                    if path in self._stamps:  # it may be gone again
                        self._files.setdefault(name, []).append(path)
            records = self._hand_on(records)
        return records

    def _look_again(self) -> list[Record]:
        """Look at known files, for a short time: at the others with the next looks."""
        begun = time.monotonic()
        records: list[Record] = []
        self._unlooked = self._unlooked or list(self._stamps)
        while self._unlooked and time.monotonic() - begun < _SLICE:
            for path in self._unlooked[-_FILES_BETWEEN:]:
                records += self._take(path) if path in self._stamps else []
            del self._unlooked[-_FILES_BETWEEN:]
        return records

    def _forget(self, path: str) -> list[Record]:
        """The file is gone; its folder may get another one."""
        name = os.path.basename(os.path.dirname(path))  # noqa: PTH119, PTH120
        if path in self._files.get(name, ()):
            self._files[name].remove(path)
            self._empty[name] = time.monotonic()
        return super()._forget(path)


def best_configs_path(root: str) -> str:
    """The name of the source of a cache dir's best configs."""
    return os.path.join(root, "*", f"*{best_config.SUFFIX}")  # noqa: PTH118


class BestConfigs(FollowedFiles):
    """Follows the source of this path; see `best_configs_path`."""

    format = BEST_CONFIG.name
    most_bytes = best_config.MAX_BYTES
    rereads = True

    def __init__(self, path: str, early: Callable[[list[Record]], None] | None = None) -> None:
        super().__init__(path, os.path.dirname(os.path.dirname(path)), early)  # noqa: PTH120

    def _reset(self) -> None:
        super()._reset()
        self._folders: dict[str, tuple[int, frozenset[str]]] = {}
        self._names: tuple[int, tuple[str, ...]] = 0, ()
        self._unread: list[str] = []
        self._beside = best_config.FolderKernels(Path())
        self._full = self._looked = False

    def _tuning_of(self, data: bytes, path: str, when: float) -> Tuning:
        return best_config_tuning(data, path, when, self._beside)

    def concerns(self, folder: str, file: str) -> bool:
        """The folders, and the files of this name in them."""
        is_file = best_config.is_file(file) and file[0] != "."
        return best_config.is_folder(folder) and (not file or is_file)

    def _look(self, now: float) -> Iterator[Record]:
        for name in sorted(self._take_reported()):
            yield from self._look_into(name)
        if now >= self._next_look:
            yield from self._look_at_all(now)
        self._again = self._next_look

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
        before = [self._folders.get(name, _NO_FILES)[0] for name in names]
        changed = [n for n, a, b in zip(names, before, stamps, strict=True) if a != b]
        for name in [*changed, *(self._folders.keys() - set(names))]:
            records = self._hand_on(records + self._look_into(name))
        for name in self._unread_folders():
            records += self._look_into(name)
        first, self._looked = not self._looked, True
        rest = (time.thread_time() - start) * REST
        waited = (time.monotonic() - begun) * REST_WAITED
        # The first look reads everything, which says nothing of the time that the next takes.
        self._next_look = now + (FOLDERS_PAUSE if first else max(FOLDERS_PAUSE, rest, waited))
        return records

    def _unread_folders(self) -> list[str]:
        """A few folders with files that could not be read: what they are about may be there by
        now, where a cache dir is being copied."""
        if not self._faulty:
            return []
        self._unread = self._unread or sorted({Path(path).parent.name for path in self._faulty})
        some, self._unread = self._unread[:_REREAD], self._unread[_REREAD:]
        return some

    def _listed(self, root: int) -> tuple[str, ...]:
        """The names of the folders."""
        changed = os.fstat(root).st_mtime_ns
        if changed != self._names[0]:
            with os.scandir(root) as entries:
                folders = [
                    e.name for e in entries if best_config.is_folder(e.name) and not e.is_symlink()
                ]
            settled = time.time_ns() - changed > _SETTLED_NS
            self._names = changed if settled else 0, tuple(sorted(folders))
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
        _, paths_before = self._folders.get(name, _NO_FILES)
        paths = {os.path.join(folder, each): None for each in names}  # noqa: PTH118
        records = [r for path in paths_before - paths.keys() for r in self._forget(path)]
        self._beside = best_config.FolderKernels(Path(folder))
        taken: set[str] = set()
        for path in paths:
            if path in paths_before or len(self._stamps) < MOST_FILES:
                records += self._take(path)
                taken.add(path)
            elif not self._full:
                self._full = True
                records.append(Fault(self.path, f"what is beyond {MOST_FILES} files is not read"))
        settled = time.time_ns() - status.st_mtime_ns > _SETTLED_NS
        stamp = status.st_mtime_ns if settled else 0
        self._folders[name] = stamp, frozenset(taken & self._stamps.keys())
        return records

    def _forget_folder(self, name: str) -> list[Record]:
        _, paths = self._folders.pop(name, _NO_FILES)
        return [record for path in paths for record in self._forget(path)]


def _stamps(names: Sequence[str], root: int | None = None) -> list[int]:
    """When folders changed; -1 for one that is gone again."""
    try:
        return [os.stat(n, dir_fd=root, follow_symlinks=False).st_mtime_ns for n in names]
    except OSError:
        return [-1] if len(names) == 1 else [s for n in names for s in _stamps((n,), root)]
