"""Sources, read once (`read_sources`) or followed live (`Watcher`); standard input is `-`."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from backend.model.session import Fault
from rocm_tui.harmless import clean
from rocm_tui.ingest.follow.gathered import Gathered
from rocm_tui.ingest.follow.notify import Notifier
from rocm_tui.ingest.follow.sources import (
    SourceSet,
    follower,
    members_of,
    unlistable,
    unsearched,
)
from rocm_tui.ingest.follow.tailer import CHUNK, MAX_WHOLE, Tailer
from rocm_tui.ingest.follow.tree import Walker
from rocm_tui.ingest.formats.reader import NotReadable, StreamReader
from rocm_tui.ingest.formats.registry import (
    ANY_TEXT,
    EMPTY,
    HEAD,
    format_named,
    known_format,
    sniff,
)
from rocm_tui.ingest.records import STDIN, Record, SourceStatus, Unread
from rocm_tui.ssh.address import is_far

if TYPE_CHECKING:  # most read what is here
    from rocm_tui.ingest.far.source import FarSource


class Stdin:
    """Reads a descriptor to its end. Never raises."""

    def __init__(self, descriptor: int = 0) -> None:
        self.descriptor = descriptor
        self.open = True
        self._format = ""
        self._stream: StreamReader | None = None
        self._held = bytearray()
        self._read = 0
        self._problems = 0

    def read(self) -> list[Record]:
        """Take what is there; blocks if nothing is."""
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
            return self._stream.feed(data)
        self._held += data
        if self._format in ("", EMPTY):
            self._format = sniff(bytes(self._held[:HEAD]))
        if self._started():
            held, self._held = bytes(self._held), bytearray()
            return self._take(held)
        if len(self._held) > MAX_WHOLE:
            self.open = False
            return [Unread(STDIN, f"more than {MAX_WHOLE >> 20} MiB of {self._format}")]
        return []

    def _started(self) -> bool:
        """Whether there is a reader that takes what comes."""
        format = format_named(self._format)
        if format is not None and format.stream is not None:
            self._stream = format.stream(STDIN)
        return self._stream is not None

    def _end(self) -> list[Record]:
        self.open = False
        records: list[Record] = []
        if self._format == EMPTY:  # a line without its end, or nothing
            self._format = ANY_TEXT
            records = self._take(b"")
        if self._stream is not None:
            return records + self._stream.close()
        format = format_named(self._format)
        if format is None:
            return []
        if format.document is None:
            return [Unread(STDIN, format.refused)]
        try:
            return format.document(bytes(self._held), STDIN)
        except NotReadable as error:
            return [Unread(STDIN, str(error))]


SWEEP = 2.0
"""Seconds between looks at everything that inotify watches: it can miss, a look cannot."""
_DEPTH = 8
"""Folders below each other that can appear between two sweeps and still be watched at once."""
_PATIENCE = 1.0
"""Seconds that the end of the program waits for a read."""
_LEISURE = 1000.0
"""A look may take one part of this of the time between two;"""
_QUIET, _BUSY = 3.0, 30.0
"""a poll one part of so many times that, once nothing has come for so many seconds."""
_HASTE = 20.0
"""The same where something appeared: folders may come by the hundred."""


def read_sources(paths: Sequence[str]) -> list[Record]:
    """Everything that files, folders, cache dirs and `-` (standard input) hold now.

    Never raises: what cannot be read, or does not exist, is Unread.
    """
    records: list[Record] = []
    for path in dict.fromkeys(paths):
        if path == STDIN:
            records += Stdin().read_all()
        elif is_far(path):
            from rocm_tui.ingest.far.source import read_far  # most read what is here

            records += read_far(path)
        elif os.path.isdir(path):  # noqa: PTH112
            records += _read_folder(path)
        elif os.path.exists(path):  # noqa: PTH110
            records += _read_to_end(Tailer(path, known_format(path)))
        else:
            records.append(Unread(path, "no such file or folder"))
    return records


def _read_folder(path: str) -> list[Record]:
    try:
        tree = Walker().walk(path)
    except OSError as error:
        return [unlistable(path, error)]
    followers = map(follower, members_of(tree))
    records = [record for each in list(followers) for record in _read_to_end(each)]
    problem = unsearched(path, tree)
    return [*records, problem] if problem else records


def _read_to_end(source: Tailer | Gathered) -> list[Record]:
    return [*source.poll(), *source.close()]


def _far_sources(
    texts: Sequence[str], sink: Callable[[list[Record]], None], *, polling: bool
) -> Sequence[FarSource]:
    from rocm_tui.ingest.far.source import FarSource  # see `read_sources`

    return [FarSource(text, sink, polling=polling) for text in texts]


_MANY, _ALONE = 1000, 0.3
"""After a beginning of so many records whoever takes them has so many seconds for himself."""


class Watcher:
    """Follows sources in a thread of its own and hands what changed to `sink`, batch by batch.

    `sink` is called from that thread, and for each source `ssh://...` from one of its own. So is
    `settled`, when all that the sources here held at the start was handed over. A path may not
    exist yet. `interval` is the seconds between two looks at a source that inotify cannot watch, or
    at all of them with `polling`.
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
        far = [path for path in dict.fromkeys(paths) if is_far(path)]
        files = [path for path in dict.fromkeys(paths) if path != STDIN and path not in far]
        self._far = _far_sources(far, sink, polling=polling) if far else ()
        self._set = SourceSet(files, self._put)
        self._handed = 0
        self._stdin = Stdin() if STDIN in paths else None
        self._sink = sink
        self._polling = polling
        self._interval = interval
        self._notifier = Notifier()
        self._watched: frozenset[str] = frozenset()
        self._asked: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        self._stopping = False
        self._settled = settled
        self._wake_read, self._wake_write = -1, -1
        self._thread: threading.Thread | None = None
        self._next_sweep = 0.0
        self._next_poll = 0.0
        self._swept = self._came = 0.0

    def start(self) -> None:
        """Begin. The first batch is what the sources hold already."""
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._thread = threading.Thread(target=self._run, name="rocm-tui-watch", daemon=True)
        self._thread.start()
        for far in self._far:
            far.start()

    def stop(self) -> None:
        """End: no thread and no descriptor is left, and `sink` is not called any more. A read that
        takes long is not waited for; the thread ends after it, or with the process."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stopping = True
        for far in self._far:
            far.stop()
        self._wake()
        thread.join(_PATIENCE)
        if thread.is_alive():  # in the middle of a read, which a slow disk may hold up
            return
        with self._lock:
            os.close(self._wake_read)
            os.close(self._wake_write)
            self._wake_read = self._wake_write = -1

    def sources(self) -> tuple[SourceStatus, ...]:
        """The state of each source, in the order given; a folder is followed by its files."""
        statuses = list(self._set.statuses(self._watched))
        statuses += [self._stdin.status()] if self._stdin is not None else []
        for far in self._far:
            statuses += far.statuses()
        return tuple(statuses)

    def _wake(self) -> None:
        with self._lock:
            if self._wake_write >= 0:
                try:
                    os.write(self._wake_write, b"!")
                except BlockingIOError:
                    return  # full: it will wake

    # In our own thread

    def _run(self) -> None:
        try:
            self._put(self._set.find())
            self._put(self._set.look())
            self._settled()
            if self._handed > _MANY:  # rows are made of them before what watches is loaded
                select.select([self._wake_read], [], [], _ALONE)
            if not self._stopping:
                self._put(self._sweep())
            while not self._stopping:
                stdin = self._wait()
                if not self._stopping:
                    self._put(self._step(stdin))
        except Exception as error:  # the thread's outermost boundary: say that it ended
            self._put([Fault("", f"watching stopped: {type(error).__name__}: {error}")])
        finally:
            self._notifier.stop()

    def _put(self, batch: list[Record]) -> None:
        if batch and not self._stopping:
            self._handed += len(batch)
            self._sink(batch)

    def _wait(self) -> bool:
        """Sleep until something is to be done; True if standard input is part of it."""
        descriptors = [self._wake_read]
        if self._notifier.descriptor >= 0:
            descriptors.append(self._notifier.descriptor)
        if self._stdin is not None and self._stdin.open:
            descriptors.append(self._stdin.descriptor)
        times = [self._next_sweep, self._next_poll]
        retry = self._set.retry_at
        if retry is not None:
            times.append(retry)
        ready, _, _ = select.select(descriptors, [], [], max(0.0, min(times) - time.monotonic()))
        if self._wake_read in ready:
            os.read(self._wake_read, 1 << 16)
        return self._stdin is not None and self._stdin.descriptor in ready

    def _step(self, stdin: bool) -> list[Record]:
        """One waking: read what changed."""
        batch = self._stdin.read() if stdin and self._stdin else []
        now = time.monotonic()
        changed = self._notifier.take()
        if changed is None:
            self._next_sweep = now
        dirty = {path for path in changed or () if self._set.matters(path)}
        if not all(self._set.is_known(path) for path in dirty):
            self._next_sweep = min(self._next_sweep, self._swept)
        if now >= self._next_sweep:
            return batch + self._sweep()
        if polled := now >= self._next_poll:
            batch += self._set.find()
            dirty.update(self._set.unwatched(self._watched))
        batch += self._set.look(dirty)
        if batch:
            self._came = now
        if polled:  # a look that found something is no measure of the next
            quiet = 1.0 if now - self._came < _BUSY else _QUIET
            rest = 0.0 if batch else (time.monotonic() - now) * _LEISURE * quiet
            self._next_poll = now + max(self._interval, min(rest, SWEEP))
        if not self._polling and (wanted := self._set.wanted_folders) != self._asked:
            self._asked = wanted
            if self._notifier.sync(wanted):
                new = self._notifier.folders - self._watched
                self._watched = self._notifier.folders
                self._set.hear(self._watched)
                batch += self._set.look(new)  # what came before it was watched
        return batch

    def _sweep(self) -> list[Record]:
        """Find sources, watch what must be watched, look at everything."""
        start = time.monotonic()
        batch = self._set.find()
        if not self._polling:
            for _ in range(_DEPTH):
                if not self._notifier.sync(self._set.wanted_folders):
                    break
                batch += self._set.find()  # what appeared before it was watched
        self._watched = self._notifier.folders
        self._set.hear(self._watched)
        found = time.monotonic() - start
        batch += self._set.look()
        end = time.monotonic()
        self._next_sweep = end + max(SWEEP, (end - start) * _LEISURE)
        self._swept = end + found * _HASTE
        blind = bool(self._set.unwatched(self._watched)) or self._polling
        self._next_poll = end + self._interval if blind else float("inf")
        return batch
