"""A session's event log, JSON lines, folded into tunings that progress."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from operator import attrgetter

from backend.errors import EventInvalid
from backend.model.choice import Measurement
from backend.model.events import (
    ActivityChanged,
    Event,
    GraphCalled,
    GraphCompiled,
    GraphTried,
    HooksOff,
    ProcessExited,
    SessionEnded,
    SessionStarted,
    TuningFailed,
    TuningMeasured,
    TuningStarted,
)
from backend.model.session import Session
from backend.model.tuning import LATEST, Tuning
from backend.wire.events import BEGINS, decode
from rocm_tui.harmless import clean
from rocm_tui.ingest.formats.event_folds import (
    ActivityFold,
    GraphFolds,
    OfTuning,
    TuningFold,
    TuningProgress,
    cleaned,
    finite,
)
from rocm_tui.ingest.formats.reader import DOCUMENTS, LOGS, Complaints, Format, WholeLines
from rocm_tui.ingest.records import MeasurementSeen, Record, Seen, SessionSeen, uid_of

MAX_PROBLEMS = 20
MAX_LINE = 16 << 20
_LATE = 1000
"""Tunings that ended last, which more events may concern: threads that compiled for them may be
late. The end of the session is the last word on all of them."""


class EventLog:
    """A streaming reader; a torn last line waits for its rest."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._sources = (source,)
        self._lines = WholeLines(MAX_LINE)
        self._line = 0
        self._session: Session | None = None
        self._folds: dict[int, TuningFold] = {}
        self._ended: dict[int, Tuning] = {}
        self._changed: dict[int, None] = {}
        self._graphs = GraphFolds(source)
        self._activity = ActivityFold(source)
        self._records: list[Record] = []
        self._complaints = Complaints(source, MAX_PROBLEMS)

    def feed(self, data: bytes) -> list[Record]:
        """Take the next bytes of the log."""
        dropped = self._lines.dropped
        for line in self._lines.feed(data):
            self._line += 1
            self._read(line)
        if self._lines.dropped > dropped:
            what = "a line of more than 16 MiB"
            self._records += self._complaints.about(what, self._line + 1)
        return self._take()

    def close(self) -> list[Record]:
        """The log has ended: what was not selected by now is cut off, or its process lives."""
        self._line += 1
        self._read(self._lines.rest(), torn=True)
        self._activity.settle(final=True)
        progress = self._progress()
        if not self.waits:
            self._cut()
        return [*self._take_changed(), *self._activity.changed(progress)]

    @property
    def waits(self) -> bool:
        """Whether the process may die without an event, which `settle` would notice."""
        return self._activity.waits

    def settle(self) -> list[Record]:
        """A quiet process may be compiling: nothing is cut while it lives."""
        if self._activity.settle():
            self._cut()
        return self._take()

    def _read(self, line: bytes, torn: bool = False) -> None:
        if not line.strip():
            return
        try:
            event = decode(line.decode("utf-8", "replace"))
        except EventInvalid as error:
            if not torn:
                self._problem(clean(str(error)))
            return
        if event is not None:
            self._fold(event)

    def _fold(self, event: Event) -> None:
        if isinstance(event, OfTuning):
            fold = self._going(event.n)
            if fold is None:
                self._problem(f"an event of tuning {event.n}, of which no start is known")
                return
            if isinstance(event, TuningFailed):
                self._problem(f"tuning {fold.op} failed: {clean(event.reason)}")
            fold.take(event)
            self._changed[event.n] = None
        elif isinstance(event, TuningStarted):
            self._forget(event.n)
            self._folds[event.n] = TuningFold.begun(event, self._session, self._sources)
        elif isinstance(event, SessionStarted):
            self._session = replace(
                cleaned(event.session), started=finite(event.session.started) or 0.0
            )
            self._records.append(SessionSeen(self._session))
            self._activity.begin(self._session)
        elif isinstance(event, GraphCompiled | GraphCalled | GraphTried):
            problem = self._graphs.take(event, self._session)
            if problem:
                self._problem(problem)
        elif isinstance(event, ActivityChanged):
            self._activity.take(event)
        elif isinstance(event, SessionEnded | ProcessExited):
            self._activity.take(event)
            self._cut()
            self._records += self._changed_tunings()
            self._ended.clear()  # nothing more comes for them: a thousand logs would hold all
        elif isinstance(event, HooksOff):
            self._problem(f"nothing is recorded: {clean(event.reason)}")
        elif isinstance(event, TuningMeasured):
            measurement = cleaned(event.measurement)
            if _can_be(measurement):
                self._records.append(MeasurementSeen(self.source, measurement))
            else:
                self._problem(f"a measurement of {measurement.op[:60]} whose numbers cannot be")

    def _going(self, n: int) -> TuningFold | None:
        """Return the tuning of this number, to take more events; None where no start is known."""
        if n in self._ended and n not in self._folds:
            self._folds[n] = TuningFold.reopened(self._ended[n])
        return self._folds.get(n)

    def _forget(self, n: int) -> None:
        """Another tuning has this number from now on."""
        self._ended.pop(n, None)
        self._folds.pop(n, None)
        self._changed[n] = None

    def _cut(self) -> None:
        for n, fold in self._folds.items():
            if fold.state == "running":
                fold.state = "cut"
                self._changed[n] = None

    def _problem(self, what: str) -> None:
        self._records += self._complaints.about(what, self._line)

    def _take(self) -> list[Record]:
        return [*self._take_changed(), *self._activity.changed(self._progress())]

    def _take_changed(self) -> list[Record]:
        records = self._records + self._changed_tunings()
        self._records = []
        return [*records, *self._graphs.changed()]

    def _changed_tunings(self) -> list[Record]:
        """Return the tunings that changed since the last time."""
        records: list[Record] = []
        for n in self._changed:
            fold = self._folds[n]
            tuning = fold.result()
            records.append(Seen(uid_of(self.source, n), tuning))
            if fold.state != "running":
                self._ended[n] = tuning
                del self._folds[n]
        for n in list(self._ended)[:-_LATE]:
            del self._ended[n]
        self._changed = {}
        return records

    def _progress(self) -> TuningProgress | None:
        """Return how far the latest running tuning is."""
        running = (fold for fold in reversed(self._folds.values()) if fold.state == "running")
        return next((progress for fold in running if (progress := fold.progress())), None)


FORMAT = Format(
    "event log",
    begins=re.compile(BEGINS.encode()),
    place=re.compile(r"(?:\A|/)rocm_tui/sessions/[^/]*\.jsonl\Z"),
    suffixes=LOGS | DOCUMENTS,
    stream=EventLog,
)


def _can_be(measurement: Measurement) -> bool:
    """Whether the numbers of a measurement are some that can be measured: an interval may have no
    end above, all else is finite."""
    return all(0 <= (number or 0.0) <= LATEST for number in _BOUNDED(measurement)) and all(
        choice.ratio > 0
        and choice.high >= 0
        and choice.ratio_high >= 0
        and all(0 <= number < math.inf for number in _FINITE(choice))
        for choice in measurement.choices
    )


_BOUNDED = attrgetter(
    *("when", "seconds", "reference_ms", "resolution_ms", "clock_mhz", "power_w"),
    *("temperature_c", "throttled"),
)
_FINITE = attrgetter("ms", "spread", "ratio", "low", "ratio_low")
