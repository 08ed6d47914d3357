"""Inductor's compiled graphs in `fxgraph/` and `aotautograd/`: judged by text, moved, restored.

Entries are pickles at `fxgraph/<2 letters>/<key>/<content hash>` and `aotautograd/<key>/<content
hash>`. They are never loaded. An entry of `aotautograd/` matters only if it contains the generated
code itself (`bundled_autograd_cache`); otherwise it names an entry of `fxgraph/`, and if that is
gone, PyTorch compiles again.

AOTInductor writes `<hash>/<hash>.wrapper.cpp`, with its kernels beside. Such a package is never
looked up in a cache: it keeps its compiled kernels, wherever it is moved. Its code in the cache dir
shows which they are.

Folders are scanned often, so one is read only after it changed. Adding or removing a file changes a
folder's times. One of them, the status time, cannot be set back, unlike the one that copying
programs set.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from backend.disk import safe
from backend.disk.layout import Layout
from backend.disk.safe import open_regular
from backend.model.inductor_kernel import MAX_SOURCE, is_kernel, parse
from backend.pins.graphs.match import Verdict, WantedChoice, judge, may_hold, may_hold_loosely
from backend.pins.graphs.text import GraphText, read_graph_text

MAX_BYTES = 256 << 20
"""The bytes of an entry that are read: later bytes are constants and binaries, not code."""
PACKAGE = ".wrapper.cpp"
"""The end of the file name of an AOTInductor package's wrapper."""
_DEPTHS = (("fxgraph", 3), ("aotautograd", 2))
_KERNEL = b"async_compile.triton("
"""The text before each kernel's source."""
MAX_KERNELS = 10_000
_Version = tuple[str, float, int]
_FOLDER = re.compile(r"c[a-z2-7]{51}")
MAX_PACKAGES = 1000
"""The maximum number of folders searched."""

_SETTLED = 2.0
"""Seconds after which a folder's time shows a new change: some file systems count seconds."""

_Identity = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class GraphEntry:
    """A compiled graph. `relative` is its path in the cache dir; `mtime` when it was compiled."""

    path: Path
    relative: str
    mtime: float
    size: int
    appeared: float = 0.0
    """When it came to this place, or was last touched there."""


@dataclass(frozen=True, slots=True)
class _Listing:
    """A folder's subfolders and its files as entries; read again if not `settled`."""

    identity: _Identity
    settled: bool
    folders: tuple[str, ...]
    entries: tuple[GraphEntry, ...]


class FolderMemory:
    """The folders of one tree as they were last read."""

    def __init__(self) -> None:
        self._listings: dict[str, _Listing] = {}

    def entries(self, root: Path, name: str, depth: int) -> Iterator[GraphEntry]:
        """Yield the regular files `depth` folders below `root`, sorted by name."""
        listing = self._listing(root, name, depth)
        if listing is None:
            return
        yield from listing.entries
        for folder in listing.folders:
            yield from self.entries(root, f"{name}/{folder}", depth - 1)

    def _listing(self, root: Path, name: str, depth: int) -> _Listing | None:
        place = f"{root}/{name}"
        try:
            status = os.lstat(place)
        except OSError:
            status = None
        if status is None or not stat.S_ISDIR(status.st_mode):
            self._listings.pop(place, None)
            return None
        identity = _identity(status)
        cached = self._listings.get(place)
        if cached is None or not cached.settled or cached.identity != identity:
            # The time is taken before reading, so that the next call sees any change since.
            settled = time.time() - max(status.st_mtime, status.st_ctime) > _SETTLED
            cached = self._listings[place] = _read(root, name, depth, identity, settled)
        return cached


def stamp(folder: Path, depth: int) -> tuple[_Identity, ...]:
    """Return the identity of `folder` and, if `depth` is 2, of its subfolders."""
    identities: list[_Identity] = []
    with contextlib.suppress(OSError):
        identities.append(_identity(os.lstat(folder)))
        if depth > 1:
            with os.scandir(folder) as children:
                identities += [_identity(child.stat(follow_symlinks=False)) for child in children]
    return tuple(identities)


def _read(root: Path, name: str, depth: int, identity: _Identity, settled: bool) -> _Listing:
    folders: list[str] = []
    entries: list[GraphEntry] = []
    with contextlib.suppress(OSError), os.scandir(root / name) as children:
        for child in children:
            with contextlib.suppress(OSError):
                if depth > 1:
                    folders += [child.name] if child.is_dir(follow_symlinks=False) else []
                elif child.is_file(follow_symlinks=False) and not child.name.startswith("."):
                    status = child.stat(follow_symlinks=False)
                    relative = f"{name}/{child.name}"
                    times = status.st_mtime, status.st_size, status.st_ctime
                    entries.append(GraphEntry(root / relative, relative, *times))
    entries.sort(key=lambda entry: entry.relative)
    return _Listing(identity, settled, tuple(sorted(folders)), tuple(entries))


def _identity(status: os.stat_result) -> _Identity:
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


class GraphIndex:
    """The entries of one cache dir; each is read once and its verdicts are cached."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._texts: dict[_Version, GraphText] = {}
        self._verdicts: dict[str, dict[_Version, Verdict]] = {}
        self._kernels: dict[_Version, frozenset[tuple[str, str]]] = {}
        self._folders = FolderMemory()

    def live(self) -> list[GraphEntry]:
        """Return the entries where PyTorch finds them. Only changed folders are read again."""
        return list(entries_below(self._layout.root, self._folders))

    def evicted(self, folder: Path) -> list[GraphEntry]:
        """Return the evicted entries in `folder`."""
        return list(entries_below(folder))

    def verdicts(self, entries: Iterable[GraphEntry], wanted: WantedChoice) -> list[Verdict]:
        """Return the verdict of `match.judge` on each of `entries`. An unreadable part of one may
        contain anything."""
        question = repr((wanted.op, wanted.inputs, wanted.hash, sorted(wanted.rivals)))
        constants = sorted(wanted.constants.items())
        question += repr((sorted(wanted.config.items()), constants, wanted.device))
        cached = self._verdicts.setdefault(question, {})
        verdicts = []
        for entry in entries:
            identity = (entry.relative, entry.mtime, entry.size)
            verdict = cached.get(identity)
            if verdict is None:
                try:
                    verdict = cached[identity] = self._judge(entry, identity, wanted)
                except _NotRead as missing:
                    verdict = missing.verdict
            verdicts.append(verdict)
        return verdicts

    def _judge(self, entry: GraphEntry, identity: _Version, wanted: WantedChoice) -> Verdict:
        """Return the lasting verdict on an entry. Raises _NotRead."""
        if is_kernel(wanted.op):
            return self._judge_kernel(entry, identity, wanted)
        text, is_whole = self._texts.get(identity), entry.size <= MAX_BYTES
        if text is None:
            data = _read_now(entry)
            if is_whole and not may_hold(data, wanted):
                return "absent"
            text = self._texts[identity] = read_graph_text(data)
        if not text.is_compiled and entry.relative.startswith("fxgraph/"):
            return "unclear"  # it contains code in an unknown form
        verdict = judge(text, wanted)
        if verdict == "absent" and entry.relative.endswith(PACKAGE) and not text.tensors:
            return "unclear" if may_hold_loosely(text, wanted) else "absent"
        return verdict if is_whole or verdict in ("other", "unknown") else "unclear"

    def _judge_kernel(self, entry: GraphEntry, identity: _Version, wanted: WantedChoice) -> Verdict:
        """Return a verdict on a kernel: a graph has the text of its kernels, but not their
        configs."""
        keys = self._kernels.get(identity)
        if keys is None:
            data = _read_now(entry)
            keys = self._kernels[identity] = kernels_in(data)
        return "unknown" if (wanted.op, wanted.inputs) in keys else "absent"


class _NotRead(Exception):
    """An entry is gone or cannot be read, perhaps only now: it may be moved back, or the process
    may have no descriptor left. `verdict` is valid until the next look."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict)
        self.verdict = verdict


def _read_now(entry: GraphEntry) -> bytes:
    """Return the content of an entry. Raises _NotRead."""
    data = read_entry(entry)
    if not data:
        raise _NotRead("unclear" if data is None else "absent")
    return data


def kernels_in(data: bytes) -> frozenset[tuple[str, str]]:
    """Return op and inputs key of each kernel whose text is in a graph."""
    parts = data.split(_KERNEL)[1 : MAX_KERNELS + 1]
    kernels = (parse(part[:MAX_SOURCE].decode("utf-8", "replace")) for part in parts)
    return frozenset((kernel.op, kernel.inputs) for kernel in kernels if kernel)


def entries_below(root: Path, folders: FolderMemory | None = None) -> Iterator[GraphEntry]:
    """Yield every entry in `root`, a cache dir or a folder of evicted ones, except symlinks."""
    folders = folders or FolderMemory()
    for name, depth in _DEPTHS:
        yield from folders.entries(root, name, depth)


def upper_folders(layout: Layout) -> object:
    """Return a value that changes when an entry of a new key appears or disappears. Only the upper
    folders are read, of which there are a thousand at most."""
    return [stamp(layout.root / name, depth - 1) for name, depth in _DEPTHS]


def move_aside(layout: Layout, entries: Iterable[GraphEntry], folder: Path) -> int:
    """Move entries to `folder`, each at its relative path; return how many still existed. Raises
    UnsafePath or NotWritable."""
    return sum(_move(layout, entry.path, folder / entry.relative) for entry in entries)


def restore(layout: Layout, entries: Iterable[GraphEntry]) -> int:
    """Move entries back from where `move_aside` put them; return how many existed."""
    return sum(_move(layout, entry.path, layout.root / entry.relative) for entry in entries)


def check_writable(layout: Layout) -> None:
    """Raise UnsafePath if graphs could not be moved safely, before anything is changed."""
    for folder in (layout.fxgraph, layout.aotautograd, layout.evicted):
        safe.check_folder(layout.root, folder)


def _move(layout: Layout, source: Path, target: Path) -> bool:
    safe.make_folder(layout.root, target.parent)
    safe.check_folder(layout.root, source.parent)
    try:
        _keep_age(source, target)
        source.replace(target)  # the name is a hash of the content, so a replaced file is identical
    except FileNotFoundError:
        return False
    except OSError as error:
        raise safe.not_writable(source, error) from error
    with contextlib.suppress(OSError):
        source.parent.rmdir()
    return True


def is_readable(entry: GraphEntry) -> bool:
    """Return whether an entry can be read completely."""
    return entry.size <= MAX_BYTES and os.access(entry.path, os.R_OK)


def _keep_age(source: Path, target: Path) -> None:
    """Give an entry the age of its oldest copy: loading one makes it look new."""
    with contextlib.suppress(OSError):
        old = target.lstat()
        if stat.S_ISREG(old.st_mode) and old.st_mtime_ns < source.lstat().st_mtime_ns:
            os.utime(source, ns=(old.st_atime_ns, old.st_mtime_ns), follow_symlinks=False)


def read_entry(entry: GraphEntry) -> bytes | None:
    """Return the content of an entry, up to MAX_BYTES; None if it cannot be read, empty if it is
    gone. A package's kernels are beside its wrapper."""
    try:
        data = _content(entry.path)
        if entry.relative.endswith(PACKAGE):
            for path in sorted(entry.path.parent.glob("*.kernel.cpp")):
                data += _content(path)
        return data
    except FileNotFoundError:
        return b""
    except OSError:
        return None


def _content(path: Path) -> bytes:
    with open_regular(path) as stream:
        return stream.read(MAX_BYTES)


def packages_below(root: Path) -> list[GraphEntry]:
    """Return the wrapper of each package that was compiled with the cache dir `root`."""
    wrappers: list[GraphEntry] = []
    try:
        with os.scandir(root) as children:
            names = sorted(child.name for child in children if _FOLDER.fullmatch(child.name))
    except OSError:
        return []
    for name in names[:MAX_PACKAGES]:
        with contextlib.suppress(OSError):
            wrappers += [
                GraphEntry(root / name / file, f"{name}/{file}", status.st_mtime, status.st_size)
                for file in sorted(path.name for path in (root / name).iterdir())
                if file.endswith(PACKAGE)
                and stat.S_ISREG((status := (root / name / file).lstat()).st_mode)
            ]
    return wrappers
