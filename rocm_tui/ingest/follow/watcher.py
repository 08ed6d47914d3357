"""Sources followed live, in a thread: `Watcher`."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from backend.model.session import Fault
from rocm_tui.ingest.follow.reading import Stdin
from rocm_tui.ingest.follow.sources import SourceSet
from rocm_tui.ingest.records import STDIN, Record, SourceStatus

if TYPE_CHECKING:  # loaded late, see below
    from rocm_tui.ingest.follow.folder_events import FolderEvents

SWEEP = 2.0
"""Seconds between two looks at everything, at least: an event can be missed, a look cannot."""
REST = 1000.0
"""A look is followed by a pause of this many times the processor time that it took,"""
REST_WAITED = 20.0
"""and of this many times the wall time, since files may be on a slow file system,"""
LONGEST_SWEEP, LONGEST_POLL = 30.0, 2.0
"""but of no more seconds than this, of everything or of what is polled."""
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
        self._lock = threading.Lock()
        self._stopping = False
        self._settled = settled
        self._wake_read, self._wake_write = -1, -1
        self._thread: threading.Thread | None = None
        self._next_sweep = 0.0
        self._next_poll = 0.0

    def start(self) -> None:
        """Begin. The first batch is what the sources hold already."""
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._thread = threading.Thread(target=self._run, name="rocm-tui-watch", daemon=True)
        self._thread.start()

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
        with self._lock:
            os.close(self._wake_read)
            os.close(self._wake_write)
            self._wake_read = self._wake_write = -1

    def sources(self) -> tuple[SourceStatus, ...]:
        """The state of each source, in the order given; a folder is followed by its files."""
        statuses = list(self._set.statuses(self._uncovered))
        statuses += [self._stdin.status()] if self._stdin is not None else []
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
            if not self._polling:
                self._events = self._folder_events()
            if not self._stopping:
                self._put(self._sweep())
            while not self._stopping:
                stdin = self._wait()
                if not self._stopping:
                    self._put(self._step(stdin))
        except Exception as error:  # the thread's outermost boundary: say that it ended
            self._put([Fault("", f"watching stopped: {type(error).__name__}: {error}")])
        finally:
            if self._events is not None:
                self._events.stop()

    def _folder_events(self) -> FolderEvents:
        from rocm_tui.ingest.follow.folder_events import FolderEvents  # the first rows come first

        return FolderEvents(self._wake)

    def _put(self, batch: list[Record]) -> None:
        if batch and not self._stopping:
            self._sink(batch)

    def _wait(self) -> bool:
        """Sleep until there is something to do; return whether standard input is part of it."""
        descriptors = [self._wake_read]
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
        """Read what changed."""
        batch = self._stdin.read() if stdin and self._stdin else []
        now = time.monotonic()
        changed = self._events.take() if self._events is not None else set()
        dirty = {path for path in changed if self._set.matters(path)}
        if now >= self._next_sweep:
            return batch + self._sweep()
        if not all(map(self._set.is_known, dirty)):
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
        batch = self._set.find()
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
