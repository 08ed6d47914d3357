"""Sources followed live, in a thread, by the changes that watchdog reports below their folders; and
the file systems where it sees none, which are polled.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psutil
from watchdog import events
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch

from backend.model.session import Fault
from rocm_tui.ingest.follow.sources import SourceSet, Stdin
from rocm_tui.ingest.records import STDIN, Record, SourceStatus

MOST_WATCHES = 64
"""Watches; each has a thread of watchdog."""
MOST_FOLDERS = 20_000
"""Folders that one watch may contain: each takes 1 KB of the kernel and as much of ours."""

_EVENTS: list[type[events.FileSystemEvent]] = [
    *(events.DirCreatedEvent, events.DirDeletedEvent, events.DirMovedEvent),
    *(events.FileCreatedEvent, events.FileDeletedEvent, events.FileMovedEvent),
    events.FileModifiedEvent,
]
"""Opening and closing are left out: our own reading would cause events without end."""

# File systems whose changes happen on another machine, where this one sees no event
_REMOTE = frozenset(
    "9p afs beegfs ceph cifs glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2 orangefs panfs smb2 smb3 "
    "smbfs virtiofs wekafs".split()
)

# watchdog logs each overflow of its queue, which would be printed across the screen. Nothing is
# lost by it: every source is looked at now and then, whatever is reported.
logging.getLogger("watchdog").addHandler(logging.NullHandler())
logging.getLogger("watchdog").propagate = False
# It also warns where folders are created while it adds watches, which is harmless.
warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"watchdog\.")


def mounted() -> list[tuple[str, str]]:
    """The mount points of this machine, and the type of each file system."""
    try:
        return [(each.mountpoint, each.fstype) for each in psutil.disk_partitions(all=True)]
    except OSError:
        return []


def is_remote(path: str, mounts: Iterable[tuple[str, str]]) -> bool:
    """Whether `path` is on a network file system, by the longest mount point above it."""
    real = os.path.realpath(path)
    kind, longest = "", -1
    for mount, fstype in mounts:
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= longest:
            kind, longest = fstype, len(mount)
    return kind in _REMOTE or kind.startswith("fuse.")


class _Reporter(events.FileSystemEventHandler):
    """Reports each changed path by the names that the sources use for the watched folder."""

    def __init__(
        self, real: str, names: Iterable[str], report: Callable[[list[str]], None]
    ) -> None:
        self._real, self._names, self._report = real, tuple(names), report
        self.ended = False
        """Whether the folder was deleted; watchdog then reports no more changes in it."""

    def on_any_event(self, event: events.FileSystemEvent) -> None:
        paths = [os.fsdecode(path) for path in (event.src_path, event.dest_path) if path]
        if isinstance(event, events.DirDeletedEvent) and paths[0] == self._real:
            self.ended = True
        inside = [p for p in paths if p == self._real or p.startswith(self._real.rstrip("/") + "/")]
        self._report([name + path[len(self._real) :] for path in inside for name in self._names])


@dataclass(frozen=True, slots=True)
class _Watch:
    """A folder that watchdog watches, and the file that it was when that began."""

    inode: tuple[int, int]
    names: frozenset[str]
    wants_subfolders: bool
    has_subfolders: bool
    reporter: _Reporter
    observed: ObservedWatch


class FolderEvents:
    """Watches folders for one thread, and calls `wake` from another when there is a change.

    Folders that cannot be watched are not covered: the caller polls there.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self._watches: dict[str, _Watch] = {}
        self._mounts = mounted()
        self._observer: BaseObserver | None = None
        self._threadless = False

    def sync(self, wanted: Mapping[str, bool]) -> bool:
        """Watch these absolute folders and no others: with their subfolders where the value is
        True. Returns whether a new watch began."""
        names: dict[str, set[str]] = {}
        subfolders: dict[str, bool] = {}
        for folder, recursive in list(wanted.items())[:MOST_WATCHES]:
            real = os.path.realpath(folder)
            names.setdefault(real, set()).add(folder)
            subfolders[real] = subfolders.get(real, False) or recursive
        for real, watch in list(self._watches.items()):
            kept = real in names and watch.names == frozenset(names[real])
            kept = kept and watch.wants_subfolders == subfolders[real]
            if not kept or watch.reporter.ended or watch.inode != _inode(real):
                self._unwatch(real)
        began = False
        for real in names.keys() - self._watches.keys():
            began = self._watch(real, frozenset(names[real]), subfolders[real]) or began
        return began

    def covers(self, folder: str) -> bool:
        """Whether a change in this absolute folder is reported."""
        if is_remote(folder, self._mounts):
            return False
        for watch in self._watches.values():
            for name in watch.names:
                inside = folder == name or (
                    watch.has_subfolders and folder.startswith(name.rstrip("/") + "/")
                )
                if inside and not watch.reporter.ended:
                    return True
        return False

    def take(self) -> set[str]:
        """The paths that changed since the last call."""
        with self._lock:
            changed, self._changed = self._changed, set()
        return changed

    def stop(self) -> None:
        """Watch nothing any more, and end all threads of watchdog."""
        self._watches.clear()
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.stop()
            if observer.is_alive():  # not if there was no thread to start it
                observer.join()

    def _report(self, paths: list[str]) -> None:
        with self._lock:
            first = not self._changed
            self._changed.update(paths)
        if first:
            self._wake()

    def _watch(self, real: str, names: frozenset[str], subfolders: bool) -> bool:
        inode = _inode(real)
        if inode is None or self._threadless or is_remote(real, self._mounts):
            return False
        reporter = _Reporter(real, names, self._report)
        recursive = subfolders and _has_few_folders(real)
        try:
            if self._observer is None:
                self._observer = Observer()
                self._observer.start()
            observed = self._observer.schedule(
                reporter, real, recursive=recursive, event_filter=_EVENTS
            )
        except OSError:  # the system has no more watches for us
            return False
        except RuntimeError:  # nor threads: each attempt leaves descriptors of watchdog behind
            self._threadless = True
            self.stop()
            return False
        self._watches[real] = _Watch(inode, names, subfolders, recursive, reporter, observed)
        return True

    def _unwatch(self, real: str) -> None:
        watch = self._watches.pop(real)
        if self._observer is not None:
            with suppress(KeyError):  # it has ended already
                self._observer.unschedule(watch.observed)


def _has_few_folders(root: str) -> bool:
    count = 0
    for _, folders, _ in os.walk(root):
        count += len(folders)
        if count > MOST_FOLDERS:
            return False
    return True


def _inode(folder: str) -> tuple[int, int] | None:
    try:
        status = os.stat(folder)  # noqa: PTH116
    except OSError:
        return None
    return (status.st_dev, status.st_ino)


SWEEP = 2.0
"""Seconds between two looks at everything, at least: an event can be missed, a look cannot."""
REST = 1000.0
"""A look is followed by a pause of this many times the processor time that it took,"""
REST_WAITED = 20.0
"""and of this many times the wall time, since files may be on a slow file system,"""
LONGEST_SWEEP, LONGEST_POLL = 30.0, 2.0
"""but of no more seconds than this, of everything or of what is polled."""
_REST_SEARCH = 10.0
"""A search for new files is followed by a pause of this many times the processor time that it took:
a folder of thousands is searched as a whole, however many of them are new."""
_PATIENCE = 1.0
"""Seconds that the end of the program waits for a read."""
_DEPTH = 8
"""Folders below each other that can appear between two sweeps and are still watched at once."""


class _Spent:
    """The time that a look takes, from now on."""

    def __init__(self) -> None:
        self._processor, self._wall = time.thread_time(), time.monotonic()

    def pause(self) -> float:
        """Return the seconds to wait before the next one."""
        processor, wall = time.thread_time() - self._processor, time.monotonic() - self._wall
        return max(processor * REST, wall * REST_WAITED)


class Watcher:
    """Follows sources in a thread of its own and hands what changed to `sink`, batch by batch.

    `sink` is called from that thread. So is `settled`, when everything that the sources held at
    the start was handed over. A path may not exist yet. `interval` is the seconds between two looks
    at a source of which no events come, or at all of them with `polling`.
    """

    def __init__(
        self,
        paths: Sequence[str],
        sink: Callable[[list[Record]], None],
        *,
        polling: bool = False,
        interval: float = 0.25,
        settled: Callable[[], None] = lambda: None,
    ) -> None:
        files = [path for path in dict.fromkeys(paths) if path != STDIN]
        self._set = SourceSet(files, self._put)
        self._stdin = Stdin() if STDIN in paths else None
        self._sink = sink
        self._polling = polling
        self._interval = interval
        self._events: FolderEvents | None = None
        self._uncovered: frozenset[str] | None = None
        self._stopping = self._finishing = False
        self._settled = settled
        self._wake_read, self._wake_write = -1, -1
        self._pipe_lock = threading.Lock()  # no other thread writes to what was closed
        self._thread: threading.Thread | None = None
        self._next_sweep = 0.0
        self._next_poll = 0.0
        self._next_search = 0.0
        self._unsearched = False
        """Whether something came since the last search that may be a new source."""

    def start(self) -> None:
        """Begin. The first batch is what the sources hold already. Raises OSError without a free
        descriptor, RuntimeError without a free thread."""
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        thread = threading.Thread(target=self._run, name="rocm-tui-watch", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self._close()
            raise
        self._thread = thread

    def stop(self) -> None:
        """End: no thread and no descriptor is left, and `sink` is not called any more. A read that
        takes long is not waited for; the thread ends after it, or with the process."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stopping = True
        self._wake()
        thread.join(_PATIENCE)
        if thread.is_alive():  # in the middle of a read, which a slow disk may hold up
            return
        self._close()

    def finish(self) -> None:
        """End after one more look at everything, which is not waited for."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._finishing = True
        self._wake()
        if not thread.is_alive():  # an error ended it before
            self._close()

    def sources(self) -> tuple[SourceStatus, ...]:
        """The state of each source, in the order given; a folder is followed by its files."""
        statuses = list(self._set.statuses(self._uncovered))
        statuses += [self._stdin.status()] if self._stdin is not None else []
        return tuple(statuses)

    def _close(self) -> None:
        with self._pipe_lock:
            if self._wake_write >= 0:
                os.close(self._wake_read)
                os.close(self._wake_write)
            self._wake_read = self._wake_write = -1

    def _wake(self) -> None:
        with self._pipe_lock, suppress(BlockingIOError):  # the pipe is full, so it will wake
            if self._wake_write >= 0:
                os.write(self._wake_write, b"!")

    # In our own thread

    def _run(self) -> None:
        try:
            self._put(self._set.find())
            self._put(self._set.look())
            self._settled()
            if not self._polling:
                self._events = FolderEvents(self._wake)
            if not self._stopping:
                self._put(self._sweep())
            while not (self._stopping or self._finishing):
                stdin = self._wait()
                if not self._stopping:
                    self._put(self._step(stdin))
            if self._finishing:
                self._put(self._set.look())
        except Exception as error:  # the thread's outermost boundary: say that it ended
            self._put([Fault("", f"watching stopped: {type(error).__name__}: {error}")])
        finally:
            if self._events is not None:
                self._events.stop()
            if self._finishing:
                self._close()

    def _put(self, batch: list[Record]) -> None:
        if batch and not self._stopping:
            self._sink(batch)

    def _wait(self) -> bool:
        """Sleep until there is something to do; return whether standard input has data."""
        descriptors = [self._wake_read]
        if self._stdin is not None and self._stdin.open:
            descriptors.append(self._stdin.descriptor)
        times = [self._next_sweep, self._next_poll]
        times += [self._next_search] if self._unsearched else []
        retry = self._set.retry_at
        if retry is not None:
            times.append(retry)
        ready, _, _ = select.select(descriptors, [], [], max(0.0, min(times) - time.monotonic()))
        if self._wake_read in ready:
            os.read(self._wake_read, 1 << 16)
        return self._stdin is not None and self._stdin.descriptor in ready

    def _step(self, stdin: bool) -> list[Record]:
        """Read what changed."""
        batch = self._stdin.read() if stdin and self._stdin else []
        now = time.monotonic()
        changed = self._events.take() if self._events is not None else set()
        dirty = {path for path in changed if self._set.matters(path)}
        if now >= self._next_sweep:  # which looks at all files of a cache now and then alone
            return batch + self._set.look(dirty) + self._sweep()
        self._unsearched = self._unsearched or not all(map(self._set.is_known, dirty))
        if self._unsearched and now >= self._next_search:
            batch += self._find()
        if now >= self._next_poll:
            spent = _Spent()
            polled = self._set.find()
            dirty.update(self._polled())
            polled += self._set.look(dirty)
            # A look that read something says nothing of the cost of the next one.
            rest = 0.0 if polled else min(spent.pause(), LONGEST_POLL)
            self._next_poll = time.monotonic() + max(self._interval, rest)
            return batch + polled
        return batch + self._set.look(dirty)

    def _sweep(self) -> list[Record]:
        """Find sources, watch what must be watched, look at everything."""
        batch = self._find()
        spent = _Spent()
        batch += self._set.find() + self._set.look()
        end = time.monotonic()
        self._next_sweep = end + max(SWEEP, min(spent.pause(), LONGEST_SWEEP))
        self._next_poll = end + self._interval if self._polled() else float("inf")
        return batch

    def _find(self) -> list[Record]:
        """Find sources, and watch their folders. What came before a folder was watched is read."""
        begun = time.thread_time()
        batch = self._set.find()
        self._unsearched = False
        self._next_search = time.monotonic() + (time.thread_time() - begun) * _REST_SEARCH
        if self._events is None:
            return batch
        for _ in range(_DEPTH):
            if not self._events.sync(self._set.folders):
                break
            batch += self._set.find()
            self._set.look_soon()
            batch += self._set.look()
        self._uncovered = self._set.uncovered(self._events.covers)
        return batch

    def _polled(self) -> frozenset[str]:
        """The sources of which no events come."""
        if self._events is None:
            return self._set.known
        return self._uncovered or frozenset()
