"""What feeds the screens: the threads that read sources and keep pins, and the model they fill.

A thread that reads must never wait for the screen: a stalled terminal stops the event loop after
0.8 s. So it appends to an inbox below a lock that is held for microseconds and wakes the loop at
most once. Pins and timings are kept while the screen runs, since other processes write their old
copies over them.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from backend.cache.fold import CacheRestorer
from backend.disk.layout import Layout
from backend.disk.safe import exists
from backend.errors import StoreError
from backend.model.session import Fault
from backend.model.tuning import Pin
from backend.pins.file import read_pin_file
from backend.pins.graphs.index import upper_folders
from backend.pins.holders import pinned_choices
from backend.pins.state import PinStatus
from backend.pins.store import PinStore
from rocm_tui.ingest.follow.sources import with_tunings
from rocm_tui.ingest.follow.watcher import Watcher
from rocm_tui.ingest.records import STDIN, Record
from rocm_tui.session.attachments import with_torch
from rocm_tui.session.graph_rows import TextReader
from rocm_tui.session.model import Model


@dataclass(slots=True)
class Batch:
    """Everything that arrived since the last look."""

    records: list[Record] = field(default_factory=list)
    settled: bool = False
    awaited: frozenset[tuple[str, str]] | None = None
    pins: Sequence[PinStatus] | None = None
    pin_problem: Fault | None = None
    drifted: list[PinStatus] = field(default_factory=list)


class Inbox:
    """`wake` is called from any thread, when the inbox was empty; it must not block."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._batch = Batch()
        self._pins: Sequence[PinStatus] = ()
        self._woken = False

    def put_records(self, records: list[Record]) -> None:
        with self._lock:
            self._batch.records += records
        self._ring()

    def put_settled(self) -> None:
        """Put that all records that were there at the start were put."""
        with self._lock:
            self._batch.settled = True
        self._ring()

    def put_awaited(self, keys: frozenset[tuple[str, str]]) -> None:
        """The op and inputs key of each pin, before its state was read."""
        with self._lock:
            self._batch.awaited = keys
        self._ring()

    def put_pins(
        self,
        pins: Sequence[PinStatus],
        drifted: Sequence[PinStatus] = (),
        problem: Fault | None = None,
    ) -> None:
        """Put the present pins, the ones that had drifted, and why pins cannot be kept."""
        with self._lock:
            self._batch.pins = self._pins = pins
            self._batch.drifted += drifted
            self._batch.pin_problem = problem
        self._ring()

    def put_pin_problem(self, problem: Fault) -> None:
        """Put why pins cannot be kept, with the last pins that were put."""
        self.put_pins(self._pins, problem=problem)

    def take(self, most: int) -> tuple[Batch, bool]:
        """Return the records that have arrived, up to a limit, and whether more are waiting."""
        with self._lock:
            batch, self._batch = self._batch, Batch()
            self._batch.records = batch.records[most:]
            del batch.records[most:]
            self._woken = bool(self._batch.records)
            return batch, self._woken

    def _ring(self) -> None:
        with self._lock:
            if self._woken:
                return
            self._woken = True
        self._wake()


def _identity(pin: Pin) -> tuple[str, str, str]:
    """Return the identity of a pin: each cache file may have a pin of the same tuning."""
    return pin.system_hash, pin.op, pin.inputs


class Keeper:
    """Compares them with the files, and puts every change into the inbox."""

    def __init__(self, layout: Layout, inbox: Inbox, *, awaited: bool) -> None:
        """`awaited`: the states of pins are waited for and reported even if no pin is left."""
        self._layout = layout
        self._inbox = inbox
        self._store = PinStore(layout)
        self._recaller = CacheRestorer(layout, pinned_choices)
        self._drifts: dict[tuple[str, str, str], int] | None = None
        self._last: list[PinStatus] | None = None if awaited else []

    def reconcile(self, *, read_only: bool) -> None:
        """Apply drifted pins again; without write access they are only reported."""
        if not read_only:
            with contextlib.suppress(StoreError):  # whoever tunes next does it, and gets the reason
                self._recaller.recall()
        try:
            if not exists(self._layout.pins):
                self._report([])
                return
            if self._drifts is None:
                self._drifts = {_identity(pin): pin.drifts for pin in self._store.pins()}
            statuses = self._store.status() if read_only else self._store.reconcile()
        except StoreError as error:
            problem = Fault(str(self._layout.pins), str(error))
            self._inbox.put_pins(self._readable(), problem=problem)
            self._last = None
            return
        before = self._drifts
        pins = [(_identity(status.pin), status) for status in statuses]
        self._drifts = {identity: status.pin.drifts for identity, status in pins}
        drifted = [s for identity, s in pins if s.pin.drifts > before.get(identity, s.pin.drifts)]
        self._report(statuses, drifted)

    def _report(self, statuses: list[PinStatus], drifted: Sequence[PinStatus] = ()) -> None:
        if statuses != self._last or drifted:
            self._last = statuses
            self._inbox.put_pins(statuses, drifted)

    def _readable(self) -> list[PinStatus]:
        """The pins where they can be read but not be kept."""
        try:
            return self._store.status()
        except StoreError:
            return []

    def stamps(self) -> tuple[object, ...]:
        """Names, sizes and times of the persistent cache's files and of the pins, and, if
        something is pinned, the signs of a new compiled graph."""
        stamps: list[object] = []
        with contextlib.suppress(OSError), os.scandir(self._layout.autotune) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                stamps.append((entry.name, status.st_size, status.st_mtime_ns, status.st_ino))
        try:
            status = self._layout.pins.stat()
            stamps.append((status.st_mtime_ns, status.st_ino))
        except OSError as error:
            stamps.append(error.errno)
        else:
            stamps.append(upper_folders(self._layout))
        return tuple(stamps)


_LOOK = 1.0
"""Seconds between two looks at the files' times: a few system calls."""
_PAINT = 0.3
"""Seconds for the screen to paint what was there at the start: what knows of pins is large."""
_RECONCILE = 20.0
"""Seconds after which the pins are compared with the files even if none seems to have changed."""
_SHARE = 0.0015
"""The most that these comparisons may take of a core, while they are made more often than that."""


def _may_be_pinned(layout: Layout) -> bool:
    """Return whether there are pins, or the file system does not say: `Keeper` reports why."""
    try:
        return layout.pins.exists()
    except OSError:
        return True


class Reconciler:
    """A thread that applies drifted pins again and puts every change into the inbox. The first look
    waits for `poke`, or a second."""

    def __init__(self, layout: Layout, inbox: Inbox) -> None:
        self._layout = layout
        self._inbox = inbox
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self.read_only = False
        """Nothing is written: drifted pins are only reported."""
        self._thread = threading.Thread(target=self._run, name="reconciler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def poke(self) -> None:
        """Look now: a pin was just set or removed."""
        self._wake.set()

    def stop(self) -> None:
        """Ask the thread to end and wait for what it is writing."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)

    def _run(self) -> None:
        again = False
        while not self._stopping.is_set():
            try:
                self._keep(again)
            except Exception as error:  # the thread's outermost boundary: rows wait for the pins
                what = f"{type(error).__name__}: {error}"
                self._inbox.put_pin_problem(Fault(str(self._layout.pins), what))
                again = True

    def _keep(self, again: bool) -> None:
        """Keep the pins until the end. `again`: it was tried before, and the problem is shown."""
        pinned = again or _may_be_pinned(self._layout)
        if pinned and not again:
            self._inbox.put_awaited(self._keys())
        self._wake.wait(_LOOK)  # the first rows come before what is loaded here
        if self._stopping.wait(_PAINT):
            return
        keeper, due = Keeper(self._layout, self._inbox, awaited=pinned), 0.0
        seen: object = None
        while not self._stopping.is_set():
            # What changes while we reconcile is seen by the next look, and so is what we change.
            poked = self._wake.is_set()
            if poked:  # else a poke that comes just now would be cleared unseen
                self._wake.clear()
            now = keeper.stamps()
            if poked or now != seen or time.monotonic() >= due:
                begin = time.thread_time()
                keeper.reconcile(read_only=self.read_only)
                pause = (time.thread_time() - begin) / _SHARE
                seen, due = now, time.monotonic() + min(pause, _RECONCILE)
            self._wake.wait(_LOOK)

    def _keys(self) -> frozenset[tuple[str, str]]:
        """What is pinned, read before it is known whether that holds, which takes the caches and
        compiled graphs. None where that cannot be read: `Keeper` says why."""
        try:
            pins = read_pin_file(self._layout.pins).pins
        except (StoreError, OSError):
            return frozenset()
        return frozenset((record.op, record.inputs) for record in pins)


_BITE = 2000
"""Records taken in one go, so that keys work while a big log is read."""
_SLICE = 0.015
"""Seconds for which rows are made in one go; one problem is always done."""
_REST = 1.0
"""Rows are left alone for this multiple of the time that joining them took last, until all that was
there at the start has come: a problem that a thousand sessions tuned is joined anew for each."""
_OLD = 1.5
"""Seconds after the start within which what is found counts as having been there before."""


@dataclass(frozen=True, slots=True)
class FeedState:
    """Whether more is waiting, and what was there at the start is all `settled`; how many tunings
    are held, and which pins had drifted."""

    more: bool
    settled: bool
    held: int
    drifted: Sequence[PinStatus]


class Feed:
    """The threads that read at one end, the model at the other. `wake` must not block."""

    def __init__(
        self, paths: Sequence[str], layout: Layout, wake: Callable[[], None], *, polling: bool
    ) -> None:
        self.layout = layout
        self.model = Model()
        self.pins: tuple[PinStatus, ...] = ()
        self._statuses: tuple[PinStatus, ...] | None = None
        self._sessions = 0
        self.pin_problem: Fault | None = None
        self.drifts = 0
        self.inbox = Inbox(wake)
        self._settled = False
        self.read = False
        """Whether all that was there at the start is in the model."""
        self._pinned = self._unread = _may_be_pinned(layout)
        self._watched = with_tunings(paths, layout.root)
        sink = self.inbox.put_records
        self.watcher = Watcher(self._watched, sink, polling=polling, settled=self.inbox.put_settled)
        self.reconciler = Reconciler(layout, self.inbox)
        self._texts = TextReader(layout, self.inbox.put_records)
        self._followed: dict[str, tuple[int, Watcher]] = {}
        """The logs of jobs, each with the id of its latest job."""
        self._started = 0.0
        self._spent = self._rested = 0.0

    def start(self) -> None:
        self._started = time.monotonic()
        self.watcher.start()
        self.reconciler.start()

    def stop(self) -> None:
        """End the threads; what they are writing is finished first."""
        for _, watcher in self._followed.values():
            watcher.stop()
        self._followed.clear()
        self.watcher.stop()
        self.reconciler.stop()

    def follow(self, log: str, job: int) -> None:
        """Read a log of a job as well, unless it is where everything is watched. Each worker of a
        job has a log, and a worker may do several jobs."""
        where = {log, os.path.dirname(log), str(self.layout.root)}  # noqa: PTH120
        watched = (os.path.abspath(path) for path in self._watched if path != STDIN)  # noqa: PTH100
        if where.intersection(watched):
            return
        if log in self._followed:
            self._followed[log] = job, self._followed[log][1]
            return
        watcher = Watcher([log], self.inbox.put_records)
        try:
            watcher.start()
        except (OSError, RuntimeError):  # no descriptor or thread is free: the next update tries
            return
        self._followed[log] = job, watcher

    def leave(self, job: int) -> None:
        """Read the logs of a job to their ends, and no further. What was read stays."""
        for log, (latest, watcher) in list(self._followed.items()):
            if latest == job:
                del self._followed[log]
                watcher.finish()

    def take(self) -> FeedState:
        """Bring the model up to date with what arrived, in a few hundredths of a second."""
        batch, more = self.inbox.take(_BITE)
        self._settled = self._settled or batch.settled
        now = time.monotonic()
        old = now - self._started < _OLD
        self.model.put(batch.records, now=None if old else time.time())
        if batch.awaited is not None:
            self._unread = False
            self.model.await_pins(batch.awaited)
        if batch.pins is not None:
            self._unread = False
            self._statuses, self.pin_problem = tuple(batch.pins), batch.pin_problem
            self.drifts += len(batch.drifted)
        sessions = len(self.model.sessions)
        if self._statuses is not None and (batch.pins is not None or sessions != self._sessions):
            self._sessions = sessions
            self.pins = with_torch(self._statuses, self.model.sessions)
            self.model.set_pins(self.pins)
        if self._unread:  # a row would say that what is not pinned is in use
            return FeedState(more, False, 0, batch.drifted)
        if now >= self._rested or (self._settled and not self.read and not more):
            self._join()
        waiting = more or self.model.unjoined
        if not waiting:
            self._texts.look(self.model)
        settled = self._settled and not waiting
        if settled and not self.read and self._pinned:
            self.reconciler.poke()  # the rows are there: now whether their pins hold
        self.read = self.read or settled
        return FeedState(waiting, settled, self.model.held, batch.drifted)

    def _join(self) -> None:
        begun = time.monotonic()
        self.model.join(_SLICE)
        self._spent += time.monotonic() - begun
        if not self.model.unjoined:
            self._rested, self._spent = time.monotonic() + _REST * self._spent, 0.0
