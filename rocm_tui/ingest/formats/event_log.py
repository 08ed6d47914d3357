"""Is the process that writes an event log still there?

It holds a lock of its log, which the system lets go when it ends, however that happens. A pid would
not do: that of a container is another process's outside of it, under the same host name.

A session's event log, JSON lines, folded into tunings that progress.
"""

from __future__ import annotations

import fcntl
import math
import os
import socket
from dataclasses import dataclass, field, replace
from sys import intern

from backend.events import (
    ChoiceCompiled,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    Event,
    HooksOff,
    SessionEnded,
    SessionStarted,
    TuningFailed,
    TuningStarted,
)
from backend.records import (
    LATEST,
    Choice,
    Measurement,
    Problem,
    Seconds,
    Session,
    State,
    Tuning,
    sort_choices,
)
from backend.store.errors import EventInvalid
from backend.store.event_codec import decode, decode_timed
from rocm_tui.harmless import clean
from rocm_tui.ingest.records import MeasurementSeen, Record, Seen, SessionSeen, uid_of


def can_be_told(session: Session | None) -> bool:
    """Of another host's writer nothing can be told: its lock may not reach here."""
    return session is not None and session.locked and session.host == socket.gethostname()


def is_gone(path: str) -> bool:
    """Whether nobody holds the lock of the log `path`; False where that cannot be seen."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # held, or this file system has no locks
        return False
    finally:
        os.close(descriptor)
    return True


MAX_PROBLEMS = 20
MAX_LINE = 16 << 20


_Outcome = ChoiceTimed | ChoiceFailed
_OfTuning = ChoiceTimed | ChoiceCompiled | ChoiceSelected | ChoiceFailed | TuningFailed


@dataclass(slots=True)
class _Fold:
    """A running tuning: as it started, with `choices` by hash, and what has come of them since."""

    started: Tuning
    choices: dict[str, Choice]
    outcomes: dict[str, _Outcome] = field(default_factory=dict)
    state: State = "running"
    compiled: int = 0
    timed: int = 0
    selected: ChoiceSelected | None = None

    @classmethod
    def again(cls, ended: Tuning) -> _Fold:
        """Of a tuning that had ended, should more be told of it."""
        choices = {choice.hash or choice.label: choice for choice in ended.choices}
        return cls(ended, choices, {}, ended.state, ended.compiled, ended.timed)

    def take(self, event: _OfTuning) -> None:
        if isinstance(event, _Outcome):
            self.timed += isinstance(event, ChoiceTimed) or event.phase == "benchmark"
            self.outcomes[_text(event.hash)] = event
        elif isinstance(event, ChoiceCompiled):
            self.compiled += 1
        else:
            self.state = "done"
            if isinstance(event, ChoiceSelected):
                self.selected = event

    def result(self) -> Tuning:
        known = dict(self.choices)
        for key, event in self.outcomes.items():
            known[key] = _after(known.get(key) or Choice(hash=key), event)
        now = replace(
            self.started,
            choices=sort_choices(list(known.values())),
            state=self.state,
            compiled=self.compiled,
            timed=self.timed,
        )
        end = self.selected
        if end is None:
            return now
        seconds = Seconds(_known(end.benchmark_seconds), _known(end.precompile_seconds))
        return replace(now, selected=_text(end.hash), selected_by=end.by, seconds=seconds)


class EventLog:
    """A streaming reader; a torn last line waits for its rest."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._carry = b""
        self._line = 0
        self._session: Session | None = None
        self._folds: dict[int, _Fold] = {}
        self._ended: dict[int, Tuning] = {}
        self._changed: dict[int, None] = {}
        self._found: list[Record] = []
        self._bad = 0

    def feed(self, data: bytes) -> list[Record]:
        """Take the next bytes of the log."""
        *lines, self._carry = (self._carry + data).split(b"\n")
        for line in lines:
            self._line += 1
            self._read(line)
        if len(self._carry) > MAX_LINE:
            self._problem("a line of more than 16 MiB")
            self._carry = b""
        return self._take()

    def close(self) -> list[Record]:
        """The log has ended: what was not selected by now is cut off."""
        if self._carry:
            self._line += 1
            self._read(self._carry, torn=True)
            self._carry = b""
        self._cut()
        return self._take()

    @property
    def waits(self) -> bool:
        """Whether a tuning is running, and `settle` can tell if it never ends."""
        return bool(self._folds) and can_be_told(self._session)

    def settle(self) -> list[Record]:
        """A quiet process may be compiling: nothing is cut while it lives."""
        if self.waits and is_gone(self.source):
            self._cut()
        return self._take()

    def _read(self, line: bytes, torn: bool = False) -> None:
        if not line.strip():
            return
        try:
            event = decode_timed(line) or decode(line.decode("utf-8", "replace"))
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
                    self._problem(f"an event of tuning {event.n}, which did not start")
                    return
                fold = self._folds[event.n] = _Fold.again(self._ended[event.n])
            if isinstance(event, TuningFailed):
                self._problem(f"tuning {fold.started.op} failed: {clean(event.reason)}")
            fold.take(event)
            self._changed[event.n] = None
        elif isinstance(event, TuningStarted):
            self._start(event)
        elif isinstance(event, SessionStarted):
            self._session = _clean_session(event.session)
            self._found.append(SessionSeen(self._session))
        elif isinstance(event, SessionEnded):
            self._cut()
        elif isinstance(event, HooksOff):
            self._problem(f"nothing is recorded: {clean(event.reason)}")
        else:
            measurement = _clean_measurement(event.measurement)
            if _can_be(measurement):
                self._found.append(MeasurementSeen(self.source, measurement))
            else:
                self._problem(f"a measurement of {measurement.op[:60]} whose numbers cannot be")

    def _start(self, event: TuningStarted) -> None:
        session = self._session
        choices = {_text(c.hash or c.label): _clean_choice(c) for c in event.choices}
        tuning = Tuning(
            op=_text(event.op),
            shapes=event.shapes,
            strides=event.strides,
            dtypes=tuple([_text(dtype) for dtype in event.dtypes]),
            device=_text(event.device),
            precision=_text(event.precision),
            inputs_key=_text(event.inputs),
            num_choices=len(event.choices),
            state="running",
            rank=session.rank if session else None,
            session=session.id if session else None,
            when=_known(event.when),
            sources=(self.source,),
            threads=session.threads if session else None,
        )
        self._ended.pop(event.n, None)
        self._folds[event.n] = _Fold(tuning, choices)
        self._changed[event.n] = None

    def _cut(self) -> None:
        for n, fold in self._folds.items():
            if fold.state == "running":
                fold.state = "cut"
                self._changed[n] = None

    def _problem(self, what: str) -> None:
        self._bad += 1
        if self._bad <= MAX_PROBLEMS:
            self._found.append(Problem(self.source, what[:300], self._line))
        elif self._bad == MAX_PROBLEMS + 1:
            self._found.append(Problem(self.source, "more problems are not listed", self._line))

    def _take(self) -> list[Record]:
        found = self._found
        for n in self._changed:
            fold = self._folds[n]
            tuning = fold.result()
            found.append(Seen(uid_of(self.source, n), tuning))
            if fold.state != "running":
                self._ended[n] = tuning
                del self._folds[n]
        self._found, self._changed = [], {}
        return found


def _after(choice: Choice, event: _Outcome) -> Choice:
    name, hash_, text = choice.name, choice.hash, choice.description
    if isinstance(event, ChoiceFailed):
        return Choice(name, hash_, None, text, failed=True, reason=clean(event.reason) or None)
    if 0 <= event.ms < math.inf:
        return Choice(name, hash_, event.ms, text)
    return Choice(name, hash_, None, text, failed=True)


def _text(text: str) -> str:
    """Clean, and kept once however often it comes: a model's tunings share hashes and keys."""
    return intern(clean(text))


def _known(seconds: float | None) -> float | None:
    """What is not finite, or a date that no calendar has, is not known."""
    return seconds if seconds is not None and 0 <= seconds <= LATEST else None


def _can_be(measurement: Measurement) -> bool:
    """Whether the numbers of a measurement are some that can be measured: an interval may have no
    end above, all else is finite."""
    told = [(one.ms, one.spread, one.ratio, one.low, one.ratio_low) for one in measurement.choices]
    seconds = measurement.when, measurement.seconds, measurement.reference_ms or 0.0
    ends = [end for one in measurement.choices for end in (one.high, one.ratio_high)]
    return (
        all(0 <= number < math.inf for numbers in told for number in numbers)
        and all(one.ms > 0 and one.ratio > 0 for one in measurement.choices)
        and all(0 <= number <= LATEST for number in seconds)
        and all(end >= 0 for end in ends)
    )


def _tidy(text: str | None) -> str | None:
    return None if text is None else _text(text)


def _clean_choice(choice: Choice) -> Choice:
    name, hash_, reason = _tidy(choice.name), _tidy(choice.hash), _tidy(choice.reason)
    return Choice(name, hash_, choice.ms, clean(choice.description), choice.failed, reason)


def _clean_measurement(measurement: Measurement) -> Measurement:
    return replace(
        measurement,
        op=clean(measurement.op),
        inputs=clean(measurement.inputs),
        precision=clean(measurement.precision),
        choices=tuple(
            replace(choice, hash=clean(choice.hash), name=_tidy(choice.name))
            for choice in measurement.choices
        ),
        failed=tuple(_clean_choice(choice) for choice in measurement.failed),
        trouble=tuple(clean(text) for text in measurement.trouble),
        device=_tidy(measurement.device),
        system_hash=_tidy(measurement.system_hash),
        session=_tidy(measurement.session),
    )


def _clean_session(session: Session) -> Session:
    return replace(
        session,
        started=_known(session.started) or 0.0,
        id=clean(session.id),
        host=clean(session.host),
        argv=tuple(clean(arg) for arg in session.argv),
        python=clean(session.python),
        torch=clean(session.torch),
        device=_tidy(session.device),
        arch=_tidy(session.arch),
        cache_dir=clean(session.cache_dir),
        system_hash=_tidy(session.system_hash),
        backends=tuple(clean(name) for name in session.backends),
        absent=tuple(clean(reason) for reason in session.absent),
    )
