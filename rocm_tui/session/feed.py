"""What feeds the screens: the threads that read and reconcile, and the model they fill.

A thread that reads must never wait for the screen: a stalled terminal stops the event loop after
0.8 s. So it appends to an inbox below a lock that is held for microseconds and wakes the loop at
most once.

Imported after the first screen stands, so that start-up does not pay for it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from backend.disk.layout import Layout
from backend.model.session import Fault
from rocm_tui.ingest.follow.reading import with_tunings
from rocm_tui.ingest.follow.watcher import Watcher
from rocm_tui.ingest.records import STDIN
from rocm_tui.session.inbox import Inbox
from rocm_tui.session.model import Model
from rocm_tui.session.proofs import with_torch
from rocm_tui.session.reconciler import Reconciler

if TYPE_CHECKING:
    from backend.pins.state import PinStatus
    from rocm_tui.session.graph_texts import TextReader

_BITE = 2000
"""Records taken in one go, so that keys work while a big log is read."""
_SLICE = 0.015
"""Seconds for which rows are made in one go; one problem is always done."""
_REST = 1.0
"""Rows are left alone for so many times what making them took last, until all that was there at the
start has come: a problem that a thousand sessions tuned is joined anew each time that one more
tells of it."""
_OLD = 1.5
"""Seconds after the start within which what is found counts as having been there before."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Whether more is waiting, and what was there at the start is all `settled`; how many tunings
    are held, and which pins had drifted."""

    more: bool
    settled: bool
    held: int
    drifted: Sequence[PinStatus]


class Feed:
    """Those who read at one end, the model at the other. `wake` must not block."""

    def __init__(
        self,
        paths: Sequence[str],
        layout: Layout,
        wake: Callable[[], None],
        *,
        polling: bool,
    ) -> None:
        self.layout = layout
        self.model = Model()
        self.pins: tuple[PinStatus, ...] = ()
        self._statuses: tuple[PinStatus, ...] | None = None
        self._sessions = 0
        self.pin_problem: Fault | None = None
        self.drifts = 0
        self.inbox = Inbox(wake)
        self._settled = self._whole = False
        self._pinned = self._unread = layout.pins.exists()
        self._watched = with_tunings(paths, layout.root)
        sink = self.inbox.put_records
        self.watcher = Watcher(self._watched, sink, polling=polling, settled=self._settle)
        self._reconciler = Reconciler(layout, self.inbox)
        self._followed: dict[str, Watcher] = {}
        self._started = 0.0
        self._spent = self._rested = 0.0

    def start(self) -> None:
        self._started = time.monotonic()
        self.watcher.start()
        self._reconciler.start()

    def _settle(self) -> None:
        """All that was there at the start is in the inbox."""
        self._settled = True
        self.inbox.put_records([])

    @property
    def read(self) -> bool:
        """Whether all that was there at the start is in the model."""
        return self._whole

    @property
    def read_only(self) -> bool:
        """Whether drifted pins and lost timings are left as they are."""
        return self._reconciler.read_only

    @read_only.setter
    def read_only(self, value: bool) -> None:
        self._reconciler.read_only = value

    def stop(self) -> None:
        """End the threads; what they are writing is finished first."""
        for log in list(self._followed):
            self.leave(log)
        self.watcher.stop()
        self._reconciler.stop()

    def follow(self, log: str) -> None:
        """Read the log of a job as well, unless it lies where everything is watched."""
        where = {log, os.path.dirname(log), str(self.layout.root)}  # noqa: PTH120
        watched = (os.path.abspath(path) for path in self._watched if path != STDIN)  # noqa: PTH100
        if log in self._followed or where.intersection(watched):
            return
        watcher = self._followed[log] = Watcher([log], self.inbox.put_records)
        watcher.start()

    def leave(self, log: str) -> None:
        """The job is over: what was read of its log stays."""
        watcher = self._followed.pop(log, None)
        if watcher is not None:
            watcher.stop()

    def look(self) -> None:
        """The pins were just changed by us."""
        self._reconciler.poke()

    def take(self) -> Taken:
        """Bring the model up to date with what arrived, in a few hundredths of a second."""
        came = self._settled  # asked before: what comes between the two is of a later take
        batch, more = self.inbox.take(_BITE)
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
            return Taken(more, False, 0, batch.drifted)
        if now >= self._rested or (came and not self._whole and not more):
            self._join()
        waiting = more or self.model.unjoined
        if not waiting:
            self._read_texts()
        settled = came and not waiting
        if settled and not self._whole and self._pinned:
            self._reconciler.poke()  # the rows are there: now whether their pins hold
        self._whole = self._whole or settled
        return Taken(waiting, settled, self.model.held, batch.drifted)

    def _join(self) -> None:
        begun = time.monotonic()
        self.model.join(_SLICE)
        self._spent += time.monotonic() - begun
        if not self.model.unjoined:
            self._rested, self._spent = time.monotonic() + _REST * self._spent, 0.0

    def _read_texts(self) -> None:
        if self.model.profiled_graphs:
            self._texts.look(self.model)

    @cached_property
    def _texts(self) -> TextReader:
        from rocm_tui.session.graph_texts import TextReader  # few logs are a profiler's

        return TextReader(self.layout, self.inbox.put_records)
