"""A session's event log, JSON lines, folded into tunings that progress."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from sys import intern

from backend.errors import EventInvalid
from backend.model.choice import Choice, MeasuredChoice, Measurement, sort_choices
from backend.model.convolution import of_text
from backend.model.events import (
    ActivityChanged,
    BenchmarkStarted,
    ChoiceCompiled,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
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
from backend.model.origin import provider
from backend.model.session import LATEST, Session
from backend.model.tuning import Seconds, State, Tuning
from backend.wire.events import Offer, decode, decode_selected, decode_started, decode_timed
from rocm_tui.harmless import clean
from rocm_tui.ingest.formats.graph_events import GraphFolds, cleaned
from rocm_tui.ingest.formats.reader import DOCUMENTS, LOGS, Complaints, Format, WholeLines
from rocm_tui.ingest.formats.session_events import ActivityFold, Progress
from rocm_tui.ingest.records import MeasurementSeen, Record, Seen, SessionSeen, uid_of

MAX_PROBLEMS = 20
MAX_LINE = 16 << 20
_LATE = 1000
"""Tunings that ended last, of which more may be told: threads that compiled for them may be late.
"""


_OfTuning = (
    ChoiceTimed | ChoiceCompiled | BenchmarkStarted | ChoiceSelected | ChoiceFailed | TuningFailed
)
_Known = Choice | Offer
"""A choice as far as it is known before it is timed."""


@dataclass(slots=True)
class _Fold:
    """A running tuning: its `choices` by hash, and what has come of them since: milliseconds, or
    how they failed. `told` makes the tuning as it started, with what is given besides."""

    op: str
    when: float | None
    told: Callable[..., Tuning]
    choices: Mapping[str, _Known]
    outcomes: dict[str, float | ChoiceFailed] = field(default_factory=dict)
    state: State = "running"
    compiled: int = 0
    timed: int = 0
    benchmarking: bool = False
    selected: ChoiceSelected | None = None

    @classmethod
    def reopened(cls, ended: Tuning) -> _Fold:
        """Of a tuning that had ended, should more be told of it."""
        choices = {choice.hash or choice.label: choice for choice in ended.choices}
        told = partial(replace, ended)
        return cls(
            ended.op, ended.when, told, choices, {}, ended.state, ended.compiled, ended.timed
        )

    def take(self, event: _OfTuning) -> None:
        if isinstance(event, ChoiceTimed):
            self.time(_text(event.hash), event.ms)
        elif isinstance(event, ChoiceFailed):
            self.timed += event.phase == "benchmark"
            self.outcomes[_text(event.hash)] = event
        elif isinstance(event, ChoiceCompiled):
            self.compiled += 1
        elif isinstance(event, BenchmarkStarted):
            self.benchmarking = True
        else:
            self.state = "done"
            if isinstance(event, ChoiceSelected):
                self.selected = event

    def time(self, hash: str, ms: float) -> None:
        self.timed += 1
        self.outcomes[hash] = ms

    def progress(self) -> Progress | None:
        """How far it is; None where all is done but to say what was selected."""
        op, when = self.op, self.when
        if self.benchmarking or self.timed:
            done, total = len(self.outcomes), len(self.choices)
            return Progress("tuning", op, when, done, total) if done < total else None
        choices = map(_after, self.choices.values())
        compiled = [choice for choice in choices if provider(choice) != "aten"]
        done = self.compiled + len(self.outcomes)
        return Progress("precompiling", op, when, min(done, len(compiled)), len(compiled))

    def result(self) -> Tuning:
        ends = self.outcomes
        choices: list[Choice] = []
        for key, known in self.choices.items():
            ms = ends.get(key)
            if known.__class__ is tuple and ms.__class__ is float and 0 <= ms < math.inf:
                name, hash_, text = known  # as below, for most of them
                choices.append(Choice(intern(name), intern(hash_), ms, text))
            else:
                choices.append(_after(known, ms))
        choices += [
            _after(Choice(hash=key), end) for key, end in ends.items() if key not in self.choices
        ]
        now = partial(
            self.told,
            choices=sort_choices(choices),
            state=self.state,
            compiled=self.compiled,
            timed=self.timed,
        )
        end = self.selected
        if end is None:
            return now()
        seconds = Seconds(_known(end.benchmark_seconds), _known(end.precompile_seconds))
        return now(selected=_text(end.hash), selected_by=end.by, seconds=seconds)


class EventLog:
    """A streaming reader; a torn last line waits for its rest."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._sources = (source,)
        self._lines = WholeLines(MAX_LINE)
        self._line = 0
        self._session: Session | None = None
        self._folds: dict[int, _Fold] = {}
        self._ended: dict[int, Tuning] = {}
        self._changed: dict[int, None] = {}
        self._graphs = GraphFolds(source)
        self._activity = ActivityFold(source)
        self._records: list[Record] = []
        self._complaints = Complaints(source, MAX_PROBLEMS)

    def feed(self, data: bytes) -> list[Record]:
        """Take the next bytes of the log."""
        dropped = self._lines.dropped
        folds = self._folds
        for line in self._lines.feed(data):
            self._line += 1
            timed = decode_timed(line)
            if timed is None:
                self._read(line)
            elif fold := folds.get(timed[0]):
                fold.time(intern(timed[1]), timed[2])
                self._changed[timed[0]] = None
            else:
                self._fold(ChoiceTimed(*timed))
        if self._lines.dropped > dropped:
            self._problem("a line of more than 16 MiB")
        return self._take()

    def close(self) -> list[Record]:
        """The log has ended: what was not selected by now is cut off."""
        self._line += 1
        self._read(self._lines.rest(), torn=True)
        self._activity.settle()
        records = self._activity.changed(self._progress())
        self._cut()
        return records + self._take()

    @property
    def waits(self) -> bool:
        """Whether the process may die without a word, and `settle` can tell."""
        return self._activity.waits

    def settle(self) -> list[Record]:
        """A quiet process may be compiling: nothing is cut while it lives."""
        if self._activity.settle():
            self._cut()
        return self._take()

    def _read(self, line: bytes, torn: bool = False) -> None:
        event: Event | None
        if started := decode_started(line):
            event, offers = started
            self._start(event, {offer[1]: offer for offer in offers}, len(offers))
            return
        if not line.strip():
            return
        try:
            event = decode_selected(line) or decode(line.decode("utf-8", "replace"))
        except EventInvalid as error:
            if not torn:
                self._problem(clean(str(error)))
            return
        if event is not None:
            self._fold(event)

    def _fold(self, event: Event) -> None:
        if isinstance(event, _OfTuning):
            fold = self._folds.get(event.n)
            if fold is None:
                if event.n not in self._ended:
                    self._problem(f"an event of tuning {event.n}, of which no start is known")
                    return
                fold = self._folds[event.n] = _Fold.reopened(self._ended[event.n])
            if isinstance(event, TuningFailed):
                self._problem(f"tuning {fold.op} failed: {clean(event.reason)}")
            fold.take(event)
            self._changed[event.n] = None
        elif isinstance(event, TuningStarted):
            choices = {_text(c.hash or c.label): _clean_choice(c) for c in event.choices}
            self._start(event, choices, len(event.choices))
        elif isinstance(event, SessionStarted):
            self._session = replace(
                cleaned(event.session), started=_known(event.session.started) or 0.0
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
        elif isinstance(event, HooksOff):
            self._problem(f"nothing is recorded: {clean(event.reason)}")
        elif isinstance(event, TuningMeasured):
            measurement = cleaned(event.measurement)
            if _can_be(measurement):
                self._records.append(MeasurementSeen(self.source, measurement))
            else:
                self._problem(f"a measurement of {measurement.op[:60]} whose numbers cannot be")

    def _start(self, event: TuningStarted, choices: Mapping[str, _Known], count: int) -> None:
        session = self._session
        op, when = _text(event.op), _known(event.when)
        told = partial(
            Tuning,
            op=op,
            shapes=event.shapes,
            strides=event.strides,
            dtypes=tuple([_text(dtype) for dtype in event.dtypes]),
            device=_text(event.device),
            precision=_text(event.precision),
            inputs_key=_text(event.inputs),
            num_choices=count,
            rank=session.rank if session else None,
            session=session.id if session else None,
            when=when,
            sources=self._sources,
            threads=session.threads if session else None,
            options=of_text(event.options) if event.options else (),
        )
        self._ended.pop(event.n, None)
        self._folds[event.n] = _Fold(op, when, told, choices)
        self._changed[event.n] = None

    def _cut(self) -> None:
        for n, fold in self._folds.items():
            if fold.state == "running":
                fold.state = "cut"
                self._changed[n] = None

    def _problem(self, what: str) -> None:
        self._records += self._complaints.about(what, self._line)

    def _take(self) -> list[Record]:
        records = self._records
        for n in self._changed:
            fold = self._folds[n]
            tuning = fold.result()
            records.append(Seen(uid_of(self.source, n), tuning))
            if fold.state != "running":
                self._ended[n] = tuning
                del self._folds[n]
        for n in list(self._ended)[:-_LATE]:
            del self._ended[n]
        self._records, self._changed = [], {}
        return [*records, *self._graphs.changed(), *self._activity.changed(self._progress())]

    def _progress(self) -> Progress | None:
        """Of the latest tuning that goes on."""
        running = (fold for fold in reversed(self._folds.values()) if fold.state == "running")
        return next((found for fold in running if (found := fold.progress())), None)


FORMAT = Format(
    "event log",
    begins=re.compile(rb'\{"event"\s*:\s*"'),
    place=re.compile(r"(?:\A|/)rocm_tui/sessions/[^/]*\.jsonl\Z"),
    suffixes=LOGS | DOCUMENTS,
    stream=EventLog,
)


def _after(known: _Known, outcome: float | ChoiceFailed | None = None) -> Choice:
    if isinstance(known, Choice):
        if outcome is None:
            return known
        name, hash_, text = known.name, known.hash, known.description
    else:
        name, hash_, text = intern(known[0]), intern(known[1]), known[2]
    if outcome is None or (outcome.__class__ is float and 0 <= outcome < math.inf):
        return Choice(name, hash_, outcome, text)
    reason = clean(outcome.reason) if isinstance(outcome, ChoiceFailed) else None
    return Choice(name, hash_, None, text, failed=True, reason=reason or None)


def _text(text: str) -> str:
    """Clean, and kept once however often it comes: a model's tunings share hashes and keys."""
    return intern(clean(text))


def _known(seconds: float | None) -> float | None:
    """What is not finite, or a date that no calendar has, is not known."""
    return seconds if seconds is not None and 0 <= seconds <= LATEST else None


def _can_be(measurement: Measurement) -> bool:
    """Whether the numbers of a measurement are some that can be measured: an interval may have no
    end above, all else is finite."""
    told = measurement.when, measurement.seconds, *_told_perhaps(measurement)
    return all(0 <= (number or 0.0) <= LATEST for number in told) and all(
        choice.ms > 0
        and choice.ratio > 0
        and choice.high >= 0
        and choice.ratio_high >= 0
        and all(0 <= number < math.inf for number in _finite(choice))
        for choice in measurement.choices
    )


def _told_perhaps(measurement: Measurement) -> tuple[float | None, ...]:
    return (
        measurement.reference_ms,
        measurement.resolution_ms,
        measurement.clock_mhz,
        measurement.power_w,
        measurement.temperature_c,
        measurement.throttled,
    )


def _finite(choice: MeasuredChoice) -> tuple[float, ...]:
    return choice.ms, choice.spread, choice.ratio, choice.low, choice.ratio_low


def _clean_choice(choice: Choice) -> Choice:
    """Written out: a log has very many of them."""
    name = None if choice.name is None else _text(choice.name)
    hash_ = None if choice.hash is None else _text(choice.hash)
    reason = None if choice.reason is None else clean(choice.reason)
    return Choice(name, hash_, choice.ms, clean(choice.description), choice.failed, reason)
