"""Old or truncated files in the `rocm_tui/` folder of a cache dir that are no longer useful, and
their removal.

Inductor's own files are not touched. Files needed to undo a pin are never old, nor is a session of
a pinned tuning, nor a log whose program still runs. Lock files stay: they are empty, and a lock
file removed while another process waits for it could be held twice.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from backend.disk import safe
from backend.disk.layout import Layout
from backend.disk.sessions import is_released
from backend.errors import CacheUnreadable
from backend.pins.file import PinFile, read_pin_file
from backend.pins.state import GraphSweeper

DAYS = 30.0
"""The default age of old files: days since their last use."""
_DAY = 86400.0
_FORGOTTEN = "graphs of a forgotten pin"


@dataclass(frozen=True, slots=True)
class Leftover:
    """Files that belong together: their kind, their bytes, and their last use, in Unix seconds."""

    kind: str
    files: tuple[Path, ...]
    size: int
    used: float


@dataclass(frozen=True, slots=True)
class Leftovers:
    """All removable files, and one line in `kept` for each kind that was not checked."""

    old: tuple[Leftover, ...]
    kept: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return sum(leftover.size for leftover in self.old)


def leftovers(layout: Layout, now: float, days: float = DAYS) -> Leftovers:
    """Return the files older than `days`. Raises UnsafePath if the folder is not ours alone."""
    safe.check_folder(layout.root, layout.home)
    try:
        pins = read_pin_file(layout.pins)
    except CacheUnreadable as error:
        return Leftovers((), (f"nothing is removed while pins cannot be read: {error}",))
    try:
        return _unused(layout, pins, now - days * _DAY)
    except OSError as error:  # a log that was not read may be what keeps a graph
        path = error.filename or layout.home
        why = f"cannot read {path}: {error.strerror or error}"
        return Leftovers((), (f"nothing is removed while files cannot be read: {why}",))


def _unused(layout: Layout, pins: PinFile, before: float) -> Leftovers:
    """Return the files that were last used before that time. Raises OSError."""
    kept: list[str] = []
    graphs = _graphs(layout)
    old, mentioned = _sessions(layout, pins, before, graphs)
    groups = [group for name, group in graphs.items() if name not in mentioned]
    groups += _trees("trial cache", _folders(layout.graphs))
    groups += _trees("choices of a job's ranks", _folders(layout.ranks))
    groups += _single("log of a failed worker", layout.home / "failed")
    groups += _groups("record of a fleet's run", _files(layout.home / "fleet"))
    groups += _trees("cache dir of a fleet's agents", _folders(layout.home / "fleet"))
    groups += _trees("folder of TunableOp's tuning", _folders(layout.home / "tunableop"))
    unpacked = (folder for folder in _folders(layout.home) if folder.name == "arriving")
    groups += _trees("bundle that an older version unpacked", unpacked)
    groups += _evicted(layout, pins)
    if _records_reading(layout.home):
        groups += _groups("compiled kernel", _below(layout.home / "code"))
        groups += _groups("Triton module", _below(layout.triton))
    else:
        kept.append("compiled kernels: this file system does not record when a file was last read")
    old += [group for group in groups if group.used < before]
    return Leftovers(tuple(sorted(old, key=lambda group: group.used)), tuple(kept))


def remove(layout: Layout, leftover: Leftover, now: float, days: float = DAYS) -> bool:
    """Remove the files; False if they were used meanwhile. Raises StoreError, OSError."""
    if leftover.kind != _FORGOTTEN:
        return _remove(layout, leftover, now, days)
    with safe.locked(layout.root, layout.pins):  # a pin may have moved graphs into the folder
        in_use = _evicted_in_use(layout, read_pin_file(layout.pins))
        return in_use.isdisjoint(leftover.files) and _remove(layout, leftover, now, days)


def _remove(layout: Layout, leftover: Leftover, now: float, days: float) -> bool:
    before = now - days * _DAY
    for path in leftover.files:
        safe.check_folder(layout.root, path.parent)
    if max(_used(leftover.kind, path) for path in leftover.files) >= before:
        return False
    for path in leftover.files:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return True


def _sessions(
    layout: Layout, pins: PinFile, before: float, graphs: Iterable[str]
) -> tuple[list[Leftover], set[str]]:
    """Return the unneeded event logs, and the graphs that other logs mention, in one reading."""
    hashes = [
        json.dumps(name)[1:-1].encode() for record in pins.pins for name in record.hashes
    ]  # as in the logs, which escape a newline
    old: list[Leftover] = []
    mentioned: set[str] = set()
    for group in _single("session", layout.sessions):
        (path,) = group.files
        content = _bytes(path)
        pinned = any(name in content for name in hashes)
        if group.used < before and is_released(path) and not pinned:
            old.append(group)
        else:
            mentioned.update(name for name in graphs if name.encode() in content)
    return old, mentioned


def _graphs(layout: Layout) -> dict[str, Leftover]:
    """Return captured graphs with their files, by id."""
    texts = [path for path in _files(layout.graphs) if path.suffix in (".py", ".json")]
    groups = _groups("captured graph", texts)
    named = {group.files[0].name.partition(".")[0]: group for group in groups}
    return {name: group for name, group in named.items() if name != "accepted"}


def _evicted(layout: Layout, pins: PinFile) -> Iterator[Leftover]:
    """Yield graphs evicted by a pin that is forgotten, so that no undo restores them."""
    in_use = _evicted_in_use(layout, pins)
    yield from _trees(_FORGOTTEN, (f for f in _folders(layout.evicted) if f not in in_use))


def _evicted_in_use(layout: Layout, pins: PinFile) -> set[Path]:
    sweeper = GraphSweeper(layout)
    return {sweeper.folder(record) for record in (*pins.pins, *pins.released)}


def _records_reading(folder: Path) -> bool:
    """Return whether the file system records reads; otherwise files in daily use look old."""
    try:
        return not os.statvfs(folder).f_flag & os.ST_NOATIME
    except OSError:
        return False


def _single(kind: str, folder: Path) -> Iterator[Leftover]:
    return (_leftover(kind, (path,)) for path in _files(folder))


def _trees(kind: str, folders: Iterable[Path]) -> Iterator[Leftover]:
    return (_leftover(kind, (folder,)) for folder in folders)


def _groups(kind: str, files: Iterable[Path]) -> Iterator[Leftover]:
    """Group files of one name, whatever their suffix, without locks."""
    groups: dict[Path, list[Path]] = {}
    for path in files:
        if path.suffix != ".lock":
            groups.setdefault(path.with_name(path.name.partition(".")[0]), []).append(path)
    return (_leftover(kind, tuple(sorted(group))) for group in groups.values())


def _leftover(kind: str, paths: tuple[Path, ...]) -> Leftover:
    return Leftover(kind, paths, sum(map(_size, paths)), max(_used(kind, p) for p in paths))


def _files(folder: Path) -> list[Path]:
    return [path for path in _entries(folder) if _is(path, stat.S_ISREG)]


def _folders(folder: Path) -> list[Path]:
    return [path for path in _entries(folder) if _is(path, stat.S_ISDIR)]


def _below(folder: Path) -> Iterator[Path]:
    """Return all regular files at any depth; links are not followed."""
    for path in _entries(folder):
        if _is(path, stat.S_ISDIR):
            yield from _below(path)
        elif _is(path, stat.S_ISREG):
            yield path


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is(path: Path, kind: Callable[[int], bool]) -> bool:
    try:
        return kind(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _size(path: Path) -> int:
    if _is(path, stat.S_ISDIR):
        return sum(map(_size, _below(path)))
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0


_READ = ("trial cache", "compiled kernel", "Triton module")
"""Kinds that programs read. Other texts are read by our own commands, which is not a use."""


def _used(kind: str, path: Path) -> float:
    """Return the last write or, if that counts, read; for a folder, its newest file's."""
    if _is(path, stat.S_ISDIR):
        files = [_used(kind, file) for file in _below(path)]
        return max(files, default=_status_time(path, written=True))
    return _status_time(path, written=kind not in _READ)


def _status_time(path: Path, written: bool) -> float:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return 0.0
    return status.st_mtime if written else max(status.st_mtime, status.st_atime)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
