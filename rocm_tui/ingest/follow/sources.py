"""The files behind the paths that a person named: found, looked at, accounted for. No threads.

An Inductor cache dir has thousands of folders; what matters lies in `cache/` and
`rocm_tui/sessions/`. In any other folder its own files matter, not its subfolders.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from backend.disk.layout import Layout
from backend.model.session import Fault
from rocm_tui.harmless import clean
from rocm_tui.ingest.follow.tailer import Tailer
from rocm_tui.ingest.formats.registry import known_format, suffix_formats
from rocm_tui.ingest.records import Gone, Record, SourceState, SourceStatus

_SYSTEM_HASH = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, slots=True)
class Member:
    """A file of a folder. `known` is its format where its place tells it, else ``; `wanted` are
    the formats for which it is worth reading, or empty for all."""

    path: str
    known: str = ""
    wanted: frozenset[str] = frozenset()


def is_member(path: str) -> bool:
    """Whether a file of this name can be a source in its folder."""
    return bool(known_format(path)) or _wanted(os.path.basename(path)) is not None  # noqa: PTH119


def members(folder: str) -> list[Member]:
    """The sources that a folder holds now, by name. Raises OSError if it cannot be listed."""
    layout = Layout(Path(folder))
    files = [*_files(folder)]
    for inner in (layout.autotune, layout.sessions):
        try:
            files += [member for member in _files(str(inner)) if member.known]
        except OSError:
            continue  # not there, or not a cache dir
    return sorted(files, key=lambda member: member.path)


def watched_folders(folder: str) -> list[str]:
    """The folders whose changes can bring or change a source of `folder`."""
    layout = Layout(Path(folder))
    return [folder, *map(str, (layout.autotune, layout.home, layout.sessions))]


def _files(folder: str) -> Iterator[Member]:
    with os.scandir(folder) as entries:
        for entry in entries:
            path = os.path.join(folder, entry.name)  # noqa: PTH118 - as the person wrote it
            known = known_format(path)
            wanted = frozenset({known}) if known else _wanted(entry.name)
            if wanted is not None and _may_be_file(entry):
                yield Member(path, known, wanted)


def _may_be_file(entry: os.DirEntry[str]) -> bool:
    """Also what cannot be told: one bad link must not hide the rest, and whoever reads it says."""
    try:
        return entry.is_file()
    except OSError:
        return True


def _wanted(name: str) -> frozenset[str] | None:
    """The formats to expect under this name; None if it is no source."""
    if name.startswith("."):
        return None
    if _SYSTEM_HASH.match(name):  # a cache file that lies elsewhere
        name += ".json"
    return suffix_formats(os.path.splitext(name.removesuffix(".gz"))[1].lower())  # noqa: PTH122


_NOWHERE = frozenset({""})
REST = 3.0
"""A whole-file source is left alone for this many times the seconds its last reading took."""


class SourceSet:
    """Follows files and folders, which need not exist yet. Never raises."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = tuple(paths)
        self._tailers: dict[str, Tailer] = {}
        self._roots: dict[str, str] = {}
        self._folders: frozenset[str] = frozenset()
        self._unlistable: dict[str, Fault] = {}
        self._aliases: dict[str, str] = {}
        self._needs: dict[str, frozenset[str]] = {}
        self._wanted: frozenset[str] = frozenset()
        self._inner: frozenset[str] = frozenset()
        self._awaited: frozenset[str] = frozenset()
        self._rest: dict[str, float] = {}
        self._pending: set[str] = set()

    @property
    def wanted_folders(self) -> frozenset[str]:
        """The folders in which a change can concern us, as of the last `find`."""
        return self._wanted

    @property
    def retry_at(self) -> float | None:
        """When `look` has something to do even if nothing changes; monotonic seconds."""
        times = [t.retry_at for t in self._tailers.values() if t.retry_at is not None]
        times += [self._rest[path] for path in self._pending]
        return min(times, default=None)

    def find(self) -> list[Record]:
        """Look which files there are. Those that came are read by the next `look`."""
        records: list[Record] = []
        tailers: dict[str, Tailer] = {}
        roots: dict[str, str] = {}
        folders: set[str] = set()
        for path in self.paths:
            for member in self._members(path, folders, records):
                if member.path not in tailers:
                    tailer = self._tailers.get(member.path)
                    if tailer is None:
                        tailer = Tailer(member.path, member.known, member.wanted)
                        self._pending.add(member.path)
                        self._rest[member.path] = 0.0
                    tailers[member.path] = tailer
                    roots[member.path] = path
        for path, tailer in self._tailers.items():
            if path not in tailers:
                records += tailer.withdraw()
                self._rest.pop(path, None)
                self._pending.discard(path)
        self._tailers, self._roots, self._folders = tailers, roots, frozenset(folders)
        self._place()
        return records

    def matters(self, path: str) -> bool:
        """Whether a change at the absolute `path`, in a wanted folder, can concern us."""
        if path in self._aliases or path in self._awaited:
            return True
        return os.path.dirname(path) in self._inner and is_member(path)  # noqa: PTH120

    def is_known(self, path: str) -> bool:
        """Whether a change at `path` concerns a file that was found already, and no other."""
        return path in self._aliases

    def look(self, paths: Iterable[str] | None = None) -> list[Record]:
        """Read what changed at `paths`, or everywhere; and what is due anyway."""
        now = time.monotonic()
        due = set(self._tailers if paths is None else (self._aliases.get(p, p) for p in paths))
        due |= {path for path in self._pending if now >= self._rest[path]}
        due |= {
            path
            for path, tailer in self._tailers.items()
            if tailer.retry_at is not None and now >= tailer.retry_at
        }
        records: list[Record] = []
        for path in sorted(due & self._tailers.keys()):
            if now < self._rest.get(path, 0.0):
                self._pending.add(path)
            else:
                records += self._poll(path)
                if self._tailers[path].state == "waiting" and self._roots[path] != path:
                    self._drop(path)
        return records

    def _drop(self, path: str) -> None:
        """A file of a folder was deleted. Copies, for the other threads that look at these."""
        self._tailers = {p: tailer for p, tailer in self._tailers.items() if p != path}
        self._aliases = {alias: p for alias, p in self._aliases.items() if p != path}
        self._needs = {p: needed for p, needed in self._needs.items() if p != path}

    def unwatched(self, watched: frozenset[str]) -> list[str]:
        """The sources that no folder of `watched` covers."""
        return [path for path, needed in self._needs.items() if not needed <= watched]

    def statuses(self, watched: frozenset[str]) -> tuple[SourceStatus, ...]:
        """One a source, in the order of the paths; a folder comes before its files."""
        statuses: list[SourceStatus] = []
        tailers, roots = self._tailers, self._roots
        for root in self.paths:
            if root in self._folders:
                bad = root in self._unlistable
                by = _by(os.path.abspath(root) in watched)  # noqa: PTH100
                state: SourceState = "unreadable" if bad else "following"
                statuses.append(SourceStatus(root, "folder", 0, 0, int(bad), by, state))
            for path in sorted(p for p in tailers if roots.get(p) == root):
                t = tailers[path]
                by = _by(self._needs.get(path, _NOWHERE) <= watched)
                statuses.append(
                    SourceStatus(path, t.format, t.size, t.read, t.problems, by, t.state)
                )
        return tuple(statuses)

    def _poll(self, path: str) -> list[Record]:
        self._pending.discard(path)
        tailer = self._tailers[path]
        start = time.monotonic()
        records = tailer.poll(start)
        if tailer.rewritten:
            end = time.monotonic()
            self._rest[path] = end + (end - start) * REST
        return records

    def _members(self, path: str, folders: set[str], records: list[Record]) -> list[Member]:
        try:
            if not stat.S_ISDIR(Path(path).stat().st_mode):
                return [Member(path, known_format(path))]
        except OSError:
            return [Member(path, known_format(path))]  # late, or unreadable: the tailer says
        folders.add(path)
        try:
            files = members(path)
        except OSError as error:
            problem = unlistable(path, error)
            if self._unlistable.get(path) != problem:
                records.append(problem)
            self._unlistable[path] = problem
            return []
        if self._unlistable.pop(path, None):
            records.append(Gone(path))
        return files

    def _place(self) -> None:
        """Work out which folders to watch for whom, and which new names to wait for there."""
        needs: dict[str, frozenset[str]] = {}
        awaited: set[str] = set()
        aliases: dict[str, str] = {}
        inner: set[str] = set()
        for root in self._folders:
            watched = watched_folders(os.path.abspath(root))  # noqa: PTH100 - keeps symlinks
            awaited.update(watched)
            inner.update(folder for folder in watched if os.path.isdir(folder))  # noqa: PTH112
        for path in self._tailers:
            absolute = os.path.abspath(path)  # noqa: PTH100
            folder, child = _nearest_folder(absolute)
            needed = {folder}
            aliases[absolute] = path
            if child != absolute:
                awaited.add(child)
            elif os.path.islink(path):  # noqa: PTH114
                real = os.path.realpath(path)
                aliases[real] = path
                needed.add(os.path.dirname(real))  # noqa: PTH120
            needs[path] = frozenset(needed)
        self._inner, self._awaited = frozenset(inner), frozenset(awaited)
        self._wanted = self._inner.union(*needs.values())
        self._needs, self._aliases = needs, aliases


def unlistable(path: str, error: OSError) -> Fault:
    return Fault(path, f"cannot read it: {clean(error.strerror or type(error).__name__)}")


def _by(watched: bool) -> Literal["inotify", "polling"]:
    return "inotify" if watched else "polling"


def _nearest_folder(path: str) -> tuple[str, str]:
    """The nearest folder above `path` that exists, and what must appear in it."""
    child = path
    while True:
        folder = os.path.dirname(child) or "."  # noqa: PTH120
        if os.path.isdir(folder) or folder == child:  # noqa: PTH112
            return folder, child
        child = folder
