"""Inductor's compiled graphs below `fxgraph/` and `aotautograd/`: found by text, moved, restored.

Entries are pickles at `fxgraph/<2 letters>/<key>/<content hash>` and
`aotautograd/<key>/<content hash>`. They are never loaded. An entry of `aotautograd/` matters only
where it holds the generated code itself (`bundled_autograd_cache`); otherwise it names an entry of
`fxgraph/`, and finding that gone, PyTorch compiles again.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from backend.store import safe
from backend.store.graph_folders import FolderMemory, GraphEntry, stamp
from backend.store.graph_match import Verdict, Wanted, judge, may_hold, may_hold_loosely
from backend.store.graph_text import GraphText, read_graph_text
from backend.store.paths import Layout

__all__ = ["GraphEntry", "GraphIndex"]

MAX_BYTES = 256 << 20
"""So much of an entry is read: what comes later is constants and binaries, not code."""

PACKAGE = ".wrapper.cpp"
"""How the name of the wrapper of an AOTInductor package ends."""

_DEPTHS = (("fxgraph", 3), ("aotautograd", 2))


class GraphIndex:
    """The entries of one cache dir; each is read once and its judgements are remembered."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._texts: dict[_Identity, GraphText] = {}
        self._verdicts: dict[str, dict[_Identity, Verdict]] = {}
        self._folders = FolderMemory()

    def live(self) -> list[GraphEntry]:
        """The entries where PyTorch finds them. Only folders that changed are read again."""
        return list(entries_below(self._layout.root, self._folders))

    def evicted(self, folder: Path) -> list[GraphEntry]:
        """The entries that lie in `folder`, moved aside."""
        return list(entries_below(folder))

    def verdicts(self, entries: Iterable[GraphEntry], wanted: Wanted) -> list[Verdict]:
        """`verdict` of each of `entries`."""
        question = repr((wanted.op, wanted.inputs, wanted.hash, sorted(wanted.rivals)))
        question += repr((sorted(wanted.config.items()), sorted(wanted.constants.items())))
        known = self._verdicts.setdefault(question, {})
        found = []
        for entry in entries:
            identity = (entry.relative, entry.mtime, entry.size)
            verdict = known.get(identity)
            if verdict is None:
                verdict = known[identity] = self._judge(entry, identity, wanted)
            found.append(verdict)
        return found

    def verdict(self, entry: GraphEntry, wanted: Wanted) -> Verdict:
        """See `graph_match.judge`. What of an entry cannot be read may hold anything."""
        return self.verdicts([entry], wanted)[0]

    def _judge(self, entry: GraphEntry, identity: _Identity, wanted: Wanted) -> Verdict:
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


_Identity = tuple[str, float, int]


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
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read(MAX_BYTES)
