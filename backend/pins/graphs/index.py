"""Inductor's compiled graphs below `fxgraph/` and `aotautograd/`: judged by text, moved, restored.

Entries are pickles at `fxgraph/<2 letters>/<key>/<content hash>` and
`aotautograd/<key>/<content hash>`. They are never loaded. An entry of `aotautograd/` matters only
where it holds the generated code itself (`bundled_autograd_cache`); otherwise it names an entry of
`fxgraph/`, and finding that gone, PyTorch compiles again.

What AOTInductor leaves is `<hash>/<hash>.wrapper.cpp`, with its kernels beside. Such a package is
never looked up in a cache: it keeps the kernels that it was compiled with, wherever it is taken to.
Its code below the cache dir tells which they are.

The folders are looked through again and again, so one is read only after it changed. Whatever puts
a file into a folder, or takes one out, changes the folder's times. One of them, that of its status,
cannot be set back, as copying programs do with the other.
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
"""So much of an entry is read: what comes later is constants and binaries, not code."""
PACKAGE = ".wrapper.cpp"
"""How the name of the wrapper of an AOTInductor package ends."""
_DEPTHS = (("fxgraph", 3), ("aotautograd", 2))
_KERNEL = b"async_compile.triton("
"""What stands before the text of each."""
MAX_KERNELS = 10_000
_Version = tuple[str, float, int]
_FOLDER = re.compile(r"c[a-z2-7]{51}")
MAX_PACKAGES = 1000
"""More folders than this are not looked into."""

_SETTLED = 2.0
"""Seconds after which a folder's time tells a new change: some file systems count in seconds."""

_Identity = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class GraphEntry:
    """One compiled graph. `relative` is its path below the cache dir; `mtime` when it was made."""

    path: Path
    relative: str
    mtime: float
    size: int
    appeared: float = 0.0
    """When it came to this place, or was touched there last."""


@dataclass(frozen=True, slots=True)
class _Listing:
    """What was in a folder: the names of its folders, and its files as entries. One that is not
    `settled` is read again."""

    identity: _Identity
    settled: bool
    folders: tuple[str, ...]
    entries: tuple[GraphEntry, ...]


class FolderMemory:
    """The folders of one tree as they were read last."""

    def __init__(self) -> None:
        self._known: dict[str, _Listing] = {}

    def entries(self, root: Path, name: str, depth: int) -> Iterator[GraphEntry]:
        """The regular files that lie `depth` folders below `root`, in the order of their names."""
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
            self._known.pop(place, None)
            return None
        identity = _identity(status)
        known = self._known.get(place)
        if known is None or not known.settled or known.identity != identity:
            # The time was taken before the folder is read: what comes meanwhile is seen next time.
            settled = time.time() - max(status.st_mtime, status.st_ctime) > _SETTLED
            known = self._known[place] = _read(root, name, depth, identity, settled)
        return known


def stamp(folder: Path, depth: int) -> tuple[_Identity, ...]:
    """Of `folder` and, if `depth` is 2, of what is in it."""
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
    """The entries of one cache dir; each is read once and its judgements are remembered."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._texts: dict[_Version, GraphText] = {}
        self._verdicts: dict[str, dict[_Version, Verdict]] = {}
        self._kernels: dict[_Version, frozenset[tuple[str, str]]] = {}
        self._folders = FolderMemory()

    def live(self) -> list[GraphEntry]:
        """The entries where PyTorch finds them. Only folders that changed are read again."""
        return list(entries_below(self._layout.root, self._folders))

    def evicted(self, folder: Path) -> list[GraphEntry]:
        """The entries that lie in `folder`, moved aside."""
        return list(entries_below(folder))

    def verdicts(self, entries: Iterable[GraphEntry], wanted: WantedChoice) -> list[Verdict]:
        """`verdict` of each of `entries`."""
        question = repr((wanted.op, wanted.inputs, wanted.hash, sorted(wanted.rivals)))
        constants = sorted(wanted.constants.items())
        question += repr((sorted(wanted.config.items()), constants, wanted.device))
        known = self._verdicts.setdefault(question, {})
        verdicts = []
        for entry in entries:
            identity = (entry.relative, entry.mtime, entry.size)
            verdict = known.get(identity)
            if verdict is None:
                verdict = known[identity] = self._judge(entry, identity, wanted)
            verdicts.append(verdict)
        return verdicts

    def verdict(self, entry: GraphEntry, wanted: WantedChoice) -> Verdict:
        """See `match.judge`. What of an entry cannot be read may hold anything."""
        return self.verdicts([entry], wanted)[0]

    def _judge(self, entry: GraphEntry, identity: _Version, wanted: WantedChoice) -> Verdict:
        if is_kernel(wanted.op):
            return self._judge_kernel(entry, identity, wanted)
        text, is_whole = self._texts.get(identity), entry.size <= MAX_BYTES
        if text is None:
            data = read_entry(entry)
            if data is None:
                return "unclear"
            if is_whole and not may_hold(data, wanted):
                return "absent"
            text = self._texts[identity] = read_graph_text(data)
        if not text.is_compiled and entry.relative.startswith("fxgraph/"):
            return "unclear"  # it holds code, in a form that we do not know
        verdict = judge(text, wanted)
        if verdict == "absent" and entry.relative.endswith(PACKAGE) and not text.tensors:
            return "unclear" if may_hold_loosely(text, wanted) else "absent"
        return verdict if is_whole or verdict in ("other", "unknown") else "unclear"

    def _judge_kernel(self, entry: GraphEntry, identity: _Version, wanted: WantedChoice) -> Verdict:
        """A graph has the text of each kernel that it launches, not which config."""
        keys = self._kernels.get(identity)
        if keys is None:
            data = read_entry(entry)
            if data is None:
                return "unclear"
            keys = self._kernels[identity] = kernels_in(data)
        return "unknown" if (wanted.op, wanted.inputs) in keys else "absent"


def kernels_in(data: bytes) -> frozenset[tuple[str, str]]:
    """Op and inputs key of each kernel whose text a graph holds."""
    parts = data.split(_KERNEL)[1 : MAX_KERNELS + 1]
    kernels = (parse(part[:MAX_SOURCE].decode("utf-8", "replace")) for part in parts)
    return frozenset((kernel.op, kernel.inputs) for kernel in kernels if kernel)


def entries_below(root: Path, folders: FolderMemory | None = None) -> Iterator[GraphEntry]:
    """Every entry below `root`, a cache dir or a folder of evicted ones. Symlinks are left out."""
    folders = folders or FolderMemory()
    for name, depth in _DEPTHS:
        yield from folders.entries(root, name, depth)


def upper_folders(layout: Layout) -> object:
    """Changes when an entry of a new key appears or goes. It costs a look at the upper folders
    alone, of which there are a thousand at most."""
    return [stamp(layout.root / name, depth - 1) for name, depth in _DEPTHS]


def move_aside(layout: Layout, entries: Iterable[GraphEntry], folder: Path) -> int:
    """Move entries below `folder`, each at its relative path; how many were still there.

    Raises UnsafePath or NotWritable.
    """
    return sum(_move(layout, entry.path, folder / entry.relative) for entry in entries)


def restore(layout: Layout, entries: Iterable[GraphEntry]) -> int:
    """Move entries from where `move_aside` put them back to their place; how many there were."""
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
        source.replace(target)  # the name is a hash of the content: what it replaces is the same
    except FileNotFoundError:
        return False
    except OSError as error:
        raise safe.not_writable(source, error) from error
    with contextlib.suppress(OSError):
        source.parent.rmdir()
    return True


def is_readable(entry: GraphEntry) -> bool:
    """Whether the whole of an entry can be read."""
    return entry.size <= MAX_BYTES and os.access(entry.path, os.R_OK)


def _keep_age(source: Path, target: Path) -> None:
    """An entry is as old as the oldest copy of it: what loads one again makes it look new."""
    with contextlib.suppress(OSError):
        old = target.lstat()
        if stat.S_ISREG(old.st_mode) and old.st_mtime_ns < source.lstat().st_mtime_ns:
            os.utime(source, ns=(old.st_atime_ns, old.st_mtime_ns), follow_symlinks=False)


def read_entry(entry: GraphEntry) -> bytes | None:
    """The content of an entry, as far as we read it; None if it cannot be read. One that is gone
    holds nothing. The kernels of a package stand beside its wrapper."""
    try:
        data = _content(entry.path)
        if entry.relative.endswith(PACKAGE):
            beside = [path for path in entry.path.parent.iterdir() if path.suffix == ".cpp"]
            for path in sorted(path for path in beside if path.name.endswith(".kernel.cpp")):
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
    """The wrapper of each package that was compiled with the cache dir `root`."""
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
