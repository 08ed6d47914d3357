"""The files behind the paths that a person named: found, looked at, accounted for, or read once to
their end. No threads. Standard input is `-`. Which folders are searched, and how far: `tree`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

from backend.cache.configs import cache_folder
from backend.disk.safe import open_regular
from backend.model.session import Fault
from rocm_tui.harmless import clean
from rocm_tui.ingest.follow.kernel_files import (
    BestConfigs,
    FollowedFiles,
    KernelConfigs,
    best_configs_path,
)
from rocm_tui.ingest.follow.tailer import (
    CHUNK,
    MAX_WHOLE,
    Decoder,
    Tailer,
    packed_document,
    sniffed,
)
from rocm_tui.ingest.follow.tree import (
    SourceFile,
    Tree,
    Walker,
    inner_folders,
    is_member,
    is_searched,
)
from rocm_tui.ingest.formats import profiler_trace
from rocm_tui.ingest.formats.reader import NotReadable, StreamReader
from rocm_tui.ingest.formats.registry import (
    ANY_TEXT,
    EMPTY,
    HEAD,
    format_named,
    known_format,
)
from rocm_tui.ingest.records import STDIN, Gone, Record, SourceState, SourceStatus, Unread

_ALL_BEST = best_configs_path("")
REST = 3.0
"""A document is left alone for this many times the seconds that its last reading took."""
EARLY = 1000
"""Records after which they are handed on before everything is read."""


class SourceSet:
    """Follows files and folders, which need not exist yet. Never raises.

    `early` takes records while there is still much to read; `look` returns what it did not take.
    """

    def __init__(
        self, paths: Sequence[str], early: Callable[[list[Record]], None] | None = None
    ) -> None:
        self.paths = tuple(paths)
        self._early = early
        self._gathered: list[Record] = []
        self._tailers: dict[str, Tailer | FollowedFiles] = {}
        self._roots: dict[str, str] = {}
        self._walker = Walker()
        self._trees: dict[str, Tree] = {}
        self._searched: frozenset[str] = frozenset()
        self._unlistable: dict[str, Fault] = {}
        self._aliases: dict[str, str] = {}
        self._places: dict[str, FollowedFiles] = {}
        self._needs: dict[str, frozenset[str]] = {}
        self.folders: dict[str, bool] = {}
        """The absolute folders in which a change can concern us, as of the last `find`: with their
        subfolders where the value is True."""
        self._inner: frozenset[str] = frozenset()
        self._awaited: frozenset[str] = frozenset()
        self._rest: dict[str, float] = {}
        self._pending: set[str] = set()

    @property
    def retry_at(self) -> float | None:
        """When `look` has something to do even if nothing changes; monotonic seconds."""
        times = [
            max(t.retry_at, self._rest.get(path, 0.0))
            for path, t in self._tailers.items()
            if t.retry_at is not None
        ]
        times += [self._rest[path] for path in self._pending]
        return min(times, default=None)

    @property
    def known(self) -> frozenset[str]:
        """The paths of all sources."""
        return frozenset(self._tailers)

    def find(self) -> list[Record]:
        """Look for files. The next `look` reads the new ones."""
        records: list[Record] = []
        tailers: dict[str, Tailer | FollowedFiles] = {}
        roots: dict[str, str] = {}
        trees: dict[str, Tree] = {}
        for path in self.paths:
            for member in self._members(path, trees, records):
                if member.path not in tailers:
                    tailer = self._tailers.get(member.path)
                    if tailer is None:
                        tailer = follower(member, self._gather)
                        self._pending.add(member.path)
                        self._rest[member.path] = 0.0
                    tailers[member.path] = tailer
                    roots[member.path] = path
        for path, tailer in self._tailers.items():
            if path not in tailers:
                records += tailer.withdraw()
                self._rest.pop(path, None)
                self._pending.discard(path)
        self._tailers, self._roots, self._trees = tailers, roots, trees
        self._place()
        return records

    def matters(self, path: str) -> bool:
        """Whether a change at the absolute `path`, in a wanted folder, can concern us."""
        if path in self._aliases or path in self._awaited:
            return True
        if self._in_cache(path) is not None:
            return True
        folder, name = os.path.split(path)
        if folder in self._inner and is_member(path):
            return True
        return folder in self._searched and is_searched(name) and os.path.isdir(path)  # noqa: PTH112

    def is_known(self, path: str) -> bool:
        """Whether a change at `path` concerns a file that was found already, and no other."""
        listed = path in self._aliases or self._in_cache(path) is not None
        return listed and not self._late_folder(path)

    def _in_cache(self, path: str) -> tuple[FollowedFiles, str] | None:
        """The source of many files that a changed `path` lies in, and the name of its folder
        there."""
        above, name = os.path.split(path)
        if (source := self._places.get(above)) is not None and source.concerns(name, ""):
            return source, name
        above, folder = os.path.split(above)
        if (source := self._places.get(above)) is not None and source.concerns(folder, name):
            return source, folder
        return None

    def _late_folder(self, path: str) -> bool:
        """Whether a source that was not there when it was looked for is a folder now."""
        late = self._roots.get(path) == path and isinstance(self._tailers.get(path), Tailer)
        return late and os.path.isdir(path)  # noqa: PTH112

    def look(self, paths: Iterable[str] | None = None) -> list[Record]:
        """Read what changed at `paths`, or everywhere; and what is due anyway."""
        now = time.monotonic()
        due = set(self._tailers if paths is None else map(self._source, paths))
        if any(map(self._late_folder, due)):
            self._gather(self.find())
        due |= self._pending | {
            path
            for path, tailer in self._tailers.items()
            if tailer.retry_at is not None and now >= tailer.retry_at
        }
        for path in sorted(due & self._tailers.keys()):
            if now < self._rest.get(path, 0.0):
                self._pending.add(path)
            else:
                self._gather(self._poll(path))
                if self._tailers[path].state == "waiting" and self._roots[path] != path:
                    self._drop(path)
        records, self._gathered = self._gathered, []
        return records

    def _gather(self, records: list[Record]) -> None:
        """In the order of the sources, as they would come all at once."""
        self._gathered += records
        if self._early is not None and len(self._gathered) >= EARLY:
            records, self._gathered = self._gathered, []
            self._early(records)

    def _source(self, path: str) -> str:
        """Return the source that a change at an absolute path concerns, and notify it."""
        if (place := self._in_cache(path)) is not None:
            cache, name = place
            cache.report(name)
            return cache.path
        return self._aliases.get(path, path)

    def _drop(self, path: str) -> None:
        """A file of a folder was deleted. Copies, for the other threads that look at these."""
        self._tailers = {p: tailer for p, tailer in self._tailers.items() if p != path}
        self._aliases = {alias: p for alias, p in self._aliases.items() if p != path}
        self._needs = {p: needed for p, needed in self._needs.items() if p != path}
        self._places = {at: source for at, source in self._places.items() if source.path != path}

    def look_soon(self) -> None:
        """Let the next `look` look at all files of kernels, too."""
        for source in self._places.values():
            source.look_soon()

    def uncovered(self, covers: Callable[[str], bool]) -> frozenset[str]:
        """The sources with a folder that `covers` denies."""
        folders = {folder: covers(folder) for need in self._needs.values() for folder in need}
        folders |= {root: covers(os.path.abspath(root)) for root in self._trees}  # noqa: PTH100
        return frozenset(
            [path for path, need in self._needs.items() if not all(map(folders.get, need))]
            + [root for root in self._trees if not folders[root]]
        )

    def statuses(self, uncovered: frozenset[str] | None) -> tuple[SourceStatus, ...]:
        """The state of each source, in the order of the paths; a folder comes before its files.

        `uncovered` are the sources that are polled: all of them where it is None.
        """
        statuses: list[SourceStatus] = []
        # Taken once: the thread that reads replaces them meanwhile.
        tailers, roots, trees = self._tailers, self._roots, self._trees

        def watched_by(path: str) -> Literal["inotify", "polling"]:
            return "polling" if uncovered is None or path in uncovered else "inotify"

        for root in self.paths:
            if root in trees and root not in tailers:  # a cache of Triton is one source
                bad, words = root in self._unlistable, trees[root].words
                state: SourceState = "unreadable" if bad and not words else "following"
                by = watched_by(root)
                statuses.append(SourceStatus(root, "folder", 0, 0, int(bad), by, state, words))
            for path in sorted(p for p in tailers if roots.get(p) == root):
                t = tailers[path]
                if isinstance(t, BestConfigs) and not t.size:
                    continue  # most cache dirs have none
                by = watched_by(path)
                status = SourceStatus(path, t.format, t.size, t.read, t.problems, by, t.state)
                statuses.append(status)
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

    def _members(
        self, path: str, trees: dict[str, Tree], records: list[Record]
    ) -> Sequence[SourceFile]:
        if not os.path.isdir(path):  # noqa: PTH112
            return [SourceFile(path, known_format(path))]  # late, or unreadable: the tailer says
        problem: Fault | None
        try:
            tree = self._walker.walk(path)
            problem = unsearched(path, tree)
        except OSError as error:
            tree, problem = Tree((path,)), unlistable(path, error)
        trees[path] = tree
        before = self._unlistable.pop(path, None)
        if problem is not None:
            self._unlistable[path] = problem
        if problem != before:
            records += [Gone(path)] if before is not None else []
            records += [problem] if problem is not None else []
        return members_of(tree)

    def _place(self) -> None:
        """Work out which folders to watch for which sources, and which new names matter there."""
        needs: dict[str, frozenset[str]] = {}
        folders: dict[str, bool] = {}
        awaited: set[str] = set()
        aliases: dict[str, str] = {}
        inner: set[str] = set()
        searched: set[str] = set()
        listed: set[str] = set()
        for root, tree in self._trees.items():
            folders[os.path.abspath(root)] = True  # noqa: PTH100 - keeps symlinks
            for folder in tree.folders:
                absolute = os.path.abspath(folder)  # noqa: PTH100
                listed.add(folder)
                inner.add(absolute)
                awaited.add(absolute)
                if folder not in tree.caches:
                    searched.add(absolute)
                if folder in tree.caches or folder == tree.folders[0]:
                    listed.update(inner_folders(folder))
                    awaited.update(inner_folders(absolute))
                    inner.update(inner_folders(absolute))
        self._walker.forget(frozenset(listed))
        for path, tailer in self._tailers.items():
            if isinstance(tailer, BestConfigs):
                needs[path] = frozenset({tailer.place})
                continue
            absolute = os.path.abspath(path)  # noqa: PTH100
            aliases[absolute] = path
            if isinstance(tailer, KernelConfigs):
                needs[path] = frozenset({absolute})
                continue
            folder, child = _nearest_folder(absolute)
            needed = {folder}
            if child != absolute:
                awaited.add(child)
            elif os.path.islink(path):  # noqa: PTH114
                real = os.path.realpath(path)
                aliases[real] = path
                needed.add(os.path.dirname(real))  # noqa: PTH120
            needs[path] = frozenset(needed)
            if self._roots[path] not in self._trees or len(needed) > 1:
                folders |= {each: folders.get(each, False) for each in needed}
        self._inner, self._awaited = frozenset(inner), frozenset(awaited)
        self._searched, self.folders = frozenset(searched), folders
        self._needs, self._aliases = needs, aliases
        kernels = [t for t in self._tailers.values() if isinstance(t, FollowedFiles)]
        self._places = {source.place: source for source in kernels}


def follower(
    member: SourceFile, early: Callable[[list[Record]], None] | None = None
) -> Tailer | FollowedFiles:
    """What follows a member of a folder, which may be a whole cache of Triton, or all the best
    configs of a cache dir."""
    if member.path.endswith(_ALL_BEST):
        return BestConfigs(member.path, early)
    if member.format == KernelConfigs.format and os.path.isdir(member.path):  # noqa: PTH112
        return KernelConfigs(member.path, early)
    return Tailer(member.path, member.format, member.wanted, early)


def members_of(tree: Tree) -> tuple[SourceFile, ...]:
    """The sources of a tree: what it has found, and of each cache dir the best configs."""
    best = [
        SourceFile(best_configs_path(cache), BestConfigs.format) for cache in sorted(tree.caches)
    ]
    return (*tree.members, *best)


def unsearched(path: str, tree: Tree) -> Fault | None:
    """What a bound of the search kept from being read."""
    if not tree.bounds:
        return None
    return Fault(path, f"not read below it: {', '.join(tree.bounds)}; name what is to be read")


def unlistable(path: str, error: OSError) -> Unread:
    return Unread(path, f"cannot read it: {clean(error.strerror or type(error).__name__)}")


def _nearest_folder(path: str) -> tuple[str, str]:
    """The nearest folder above `path` that exists, and what must appear in it."""
    child = path
    while True:
        folder = os.path.dirname(child) or "."  # noqa: PTH120
        if os.path.isdir(folder) or folder == child:  # noqa: PTH112
            return folder, child
        child = folder


def with_tunings(paths: Sequence[str], cache_dir: Path) -> list[str]:
    """Add the cache dir to `paths` where none of them can contain a tuning, as profiler traces.

    Triton's own cache is added where nothing else is read.
    """
    if list(paths) == [str(cache_dir)]:
        return [*paths, *_own_triton_cache(cache_dir)]
    if all(_format_of(path) == profiler_trace.FORMAT.name for path in paths):
        return [*paths, str(cache_dir), *_own_triton_cache(cache_dir)]
    return list(paths)


def _own_triton_cache(cache_dir: Path) -> list[str]:
    """Triton's cache of this environment, if there is one outside of the cache dir."""
    folder = cache_folder()
    return [str(folder)] if folder.is_dir() and not folder.is_relative_to(cache_dir) else []


def _format_of(path: str) -> str:
    """The name of a file's format; empty for what is no file that can be read."""
    try:
        with open_regular(Path(path), follow=True) as stream:
            return sniffed(stream.read(HEAD))[0]
    except (OSError, NotReadable):
        return ""


def read_sources(paths: Sequence[str]) -> list[Record]:
    """Return everything that files, folders, cache dirs and `-` (standard input) hold now.

    Never raises: what cannot be read, or does not exist, is Unread.
    """
    records: list[Record] = []
    for path in dict.fromkeys(paths):
        if path == STDIN:
            records += Stdin().read_all()
        elif os.path.isdir(path):  # noqa: PTH112
            records += _read_folder(path)
        elif os.path.exists(path):  # noqa: PTH110
            records += read_each([Tailer(path, known_format(path))])
        else:
            records.append(Unread(path, "no such file or folder"))
    return records


def _read_folder(path: str) -> list[Record]:
    try:
        tree = Walker().walk(path)
    except OSError as error:
        return [unlistable(path, error)]
    records = read_each(map(follower, members_of(tree)))
    problem = unsearched(path, tree)
    return [*records, problem] if problem else records


def read_each(followers: Iterable[Tailer | FollowedFiles]) -> list[Record]:
    """Return what sources hold up to their ends, in their order."""
    return [record for each in followers for record in (*each.poll(), *each.close())]


class Stdin:
    """Reads a descriptor to its end. Never raises."""

    def __init__(self, descriptor: int = 0) -> None:
        self.descriptor = descriptor
        self.open = True
        self._format = ""
        self._stream: StreamReader | None = None
        self._decoder: Decoder | None = None
        self._held = bytearray()
        self._read = 0
        self._problems = 0

    def read(self) -> list[Record]:
        """Read what has arrived; block if nothing has."""
        try:
            data = os.read(self.descriptor, CHUNK)
        except BlockingIOError:
            return []
        except OSError as error:
            self.open = False
            records: list[Record] = [Unread(STDIN, f"cannot read it: {clean(str(error.strerror))}")]
        else:
            self._read += len(data)
            records = self._take(data) if data else self._end()
        self._problems += sum(isinstance(record, Fault) for record in records)
        return records

    def read_all(self) -> list[Record]:
        """Take everything up to the end."""
        records: list[Record] = []
        while self.open:
            records += self.read()
        return records

    def status(self) -> SourceStatus:
        read, problems = self._read, self._problems
        return SourceStatus(STDIN, self._format, read, read, problems, "polling", "following")

    def _take(self, data: bytes) -> list[Record]:
        if self._stream is not None:
            return self._feed(self._stream, data)
        self._held += data
        if self._format in ("", EMPTY):
            self._format, self._decoder = sniffed(bytes(self._held[:HEAD]))
        format = format_named(self._format)
        if format is not None and format.stream is not None:
            self._stream = format.stream(STDIN)
            held, self._held = bytes(self._held), bytearray()
            return self._feed(self._stream, held)
        if len(self._held) > MAX_WHOLE:
            return self._refused(f"more than {MAX_WHOLE >> 20} MiB of {self._format}")
        if format is not None and format.document is None:
            return self._refused(format.refused)
        if format is not None and self._decoder is not None:
            return self._refused(packed_document(format, self._decoder))
        return []

    def _feed(self, stream: StreamReader, data: bytes) -> list[Record]:
        if self._decoder is None:
            return stream.feed(data)
        records: list[Record] = []
        try:
            for text in self._decoder.feed(data):
                records += stream.feed(text)
        except NotReadable as error:
            records += [*stream.close(), *self._refused(str(error))]
        return records

    def _refused(self, why: str) -> list[Record]:
        """Read no more: nobody needs to wait for the end of what is not read."""
        self.open = False
        return [Unread(STDIN, why)]

    def _end(self) -> list[Record]:
        self.open = False
        records: list[Record] = []
        if self._format == EMPTY:  # a line without its end, or nothing
            self._format = ANY_TEXT
            records = self._take(b"")
        if self._stream is not None:
            return records + self._stream.close()
        format = format_named(self._format)
        if format is None or format.document is None:
            return []
        try:
            return format.document(bytes(self._held), STDIN)
        except NotReadable as error:
            return [Unread(STDIN, str(error))]
