"""The events of a session's log, folded into what is known by then: of its process, of each tuning,
of its compiled graphs and their trials.
"""

from __future__ import annotations

import math
import os
import re
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from sys import intern
from typing import Any

from backend.model.choice import Choice, sort_choices
from backend.model.events import (
    ActivityChanged,
    BenchmarkStarted,
    ChoiceAdded,
    ChoiceCompiled,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    GraphCalled,
    GraphCompiled,
    GraphTried,
    ProcessExited,
    RankAwaited,
    RanksAsked,
    SessionEnded,
    TuningFailed,
    TuningStarted,
)
from backend.model.graph import Graph, GraphTimes, Trial, TrialArm
from backend.model.ops import is_flex
from backend.model.options import Options, options_of_text
from backend.model.origin import provider
from backend.model.session import Activity, ActivityState, Session
from backend.model.tuning import LATEST, Seconds, State, Tuning, is_word
from rocm_tui.harmless import clean
from rocm_tui.ingest.devices import hashes_of_log
from rocm_tui.ingest.formats.reader import clean_hash
from rocm_tui.ingest.records import ActivitySeen, GraphSeen, Record, TrialSeen

_REPORTED = ("importing", "running", "compiling")
"""The states that a process reports itself."""
MOST_STATUS = 255


@dataclass(frozen=True, slots=True)
class TuningProgress:
    """How far a running tuning is."""

    state: ActivityState
    op: str
    since: float | None
    done: int
    total: int
    rank: int | None = None


def _doing(word: str) -> str | None:
    """Return what a process does: a state, or the word of a later version, as it is. None for a
    text that is no such word, and for a state that a process does not report, like its death."""
    if word in typing.get_args(ActivityState):
        return word if word in _REPORTED else None
    return None if is_word(word) else word


class ActivityFold:
    """The process of one log."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._session: Session | None = None
        self._activity: Activity | None = None
        self._ended = self._seen_from_here = False
        self._missed = self._gone = False
        self._sent: Activity | None = None

    def begin(self, session: Session) -> None:
        """The log is of this process."""
        self._session = session
        self._seen_from_here = self._lives() is not None
        if self._activity is None:
            state: ActivityState = "running" if session.torch else "starting"
            self._activity = Activity(state, state, session.started or None)

    def take(self, event: ActivityChanged | SessionEnded | ProcessExited) -> None:
        """Take an event in."""
        activity = self._activity
        if activity is None:
            return
        when = event.when if 0 <= event.when <= LATEST else None
        if isinstance(event, ActivityChanged):
            word = _doing(event.activity)
            if word is not None:
                self._activity = replace(activity, state=word, last_state=word, since=when)
            return
        self._ended, self._gone = True, False
        state = "done"
        status = event.status if isinstance(event, ProcessExited) else None
        if status is not None and not -MOST_STATUS <= status <= MOST_STATUS:
            status = None
        if status is not None and status < 0:
            state = "died"
        self._activity = replace(activity, state=state, ended=when, status=status)

    @property
    def waits(self) -> bool:
        """Whether it can be seen from here when the process dies, and it has not."""
        return self._seen_from_here and not self._ended

    def settle(self, final: bool = False) -> bool:
        """Look whether the process is gone without saying so; return whether it is.

        It may have written its end since the log was read. So one that is missed is gone only at
        the next look, before which the log is read again, or if this one is `final`.
        """
        if self.waits and self._lives() is False:
            self._gone = self._ended = self._missed or final
            self._missed = True
        return self._gone

    def _lives(self) -> bool | None:
        """Return whether the process lives, None where that is unknown.

        Older logs say only that their writer holds a lock, which a helper that it left behind holds
        too. A pid would not do: outside of a container its pid is another process's, under the same
        host name.
        """
        session = self._session
        if session is None or session.host != os.uname().nodename:
            return None
        from backend.disk.sessions import is_released  # few logs are of this machine's processes
        from backend.processes.tree import lives

        alive = lives(session.process)
        if alive is not None or not session.locked:
            return alive
        return not is_released(self._source)

    def changed(self, running: TuningProgress | None) -> list[ActivitySeen]:
        """What the process does now, if that is news; `running` is what it tunes."""
        now = self._now(running)
        if now is None or now == self._sent or self._session is None:
            return []
        self._sent = now
        return [ActivitySeen(self._source, self._session.id, now)]

    def _now(self, running: TuningProgress | None) -> Activity | None:
        activity = self._activity
        if activity is None:
            return None
        if running is not None:
            activity = replace(
                activity,
                last_state=running.state,
                since=running.since,
                op=running.op,
                done=running.done,
                total=running.total,
                rank=running.rank,
            )
            if not self._ended:
                activity = replace(activity, state=running.state)
        if self._gone:
            return replace(activity, state="died")
        if not self._ended and not self._seen_from_here:
            return replace(activity, state="unknown")
        return activity


OfTuning = (
    ChoiceTimed
    | ChoiceAdded
    | ChoiceCompiled
    | BenchmarkStarted
    | ChoiceSelected
    | RankAwaited
    | RanksAsked
    | ChoiceFailed
    | TuningFailed
)


@dataclass(slots=True)
class TuningFold:
    """A running tuning: its `choices` by hash, and their outcomes so far: milliseconds, or how they
    failed. `make` builds the tuning as it started, with the arguments that are given
    besides."""

    op: str
    when: float | None
    make: Callable[..., Tuning]
    choices: Mapping[str, Choice]
    outcomes: dict[str, float | ChoiceFailed] = field(default_factory=dict)
    state: State = "running"
    compiled: int = 0
    timed: int = 0
    benchmarking: bool = False
    selected: ChoiceSelected | None = None
    awaited: RankAwaited | None = None

    @classmethod
    def begun(
        cls,
        event: TuningStarted,
        session: Session | None,
        sources: tuple[str, ...],
    ) -> TuningFold:
        """A tuning of `session` that begins."""
        choices = {kept_hash(c.hash or c.label): clean_choice(c) for c in event.choices}
        op, when = kept(event.op), finite(event.when)
        options, call = given(op, event.options)
        make = partial(
            Tuning,
            op=op,
            shapes=event.shapes,
            strides=event.strides,
            dtypes=tuple([kept(dtype) for dtype in event.dtypes]),
            device=kept(event.device),
            precision=kept(event.precision),
            inputs_key=kept(event.inputs),
            num_choices=len(event.choices),
            rank=session.rank if session else None,
            session=session.id if session else None,
            when=when,
            sources=sources,
            threads=session.threads if session else None,
            options=options,
            call=call,
            kernel=kept(event.kernel),
            code=kept(event.source),
            device_index=_device(sources, choices),
        )
        return cls(op, when, make, choices)

    @classmethod
    def reopened(cls, ended: Tuning) -> TuningFold:
        """Return the fold of a tuning that had ended, to take more events."""
        choices = {choice.hash or choice.label: choice for choice in ended.choices}
        make = partial(replace, ended)
        return cls(
            ended.op, ended.when, make, choices, {}, ended.state, ended.compiled, ended.timed
        )

    def take(self, event: OfTuning) -> None:
        if isinstance(event, ChoiceTimed):
            self.time(kept_hash(event.hash), event.ms)
        elif isinstance(event, ChoiceFailed):
            self.timed += event.phase == "benchmark"
            self.outcomes[kept_hash(event.hash)] = event
        elif isinstance(event, ChoiceCompiled):
            self.compiled += 1
        elif isinstance(event, ChoiceAdded):
            self.add(event)
        elif isinstance(event, BenchmarkStarted):
            self.benchmarking = True
        elif isinstance(event, RankAwaited):
            self.awaited = event if event.rank is not None else None
            self.make = partial(self.make, awaited=event.rank)
        elif isinstance(event, RanksAsked):
            self.make = partial(self.make, decided=event.rank, apart=clean(event.reason))
        else:
            self.state = "done"
            if isinstance(event, ChoiceSelected):
                self.selected = event

    def add(self, event: ChoiceAdded) -> None:
        origin = kept_hash(event.origin), clean(event.moved)
        choice = replace(clean_choice(event.choice), origin=origin[0], moved=origin[1])
        self.choices = {**self.choices, choice.hash or choice.label: choice}
        self.make = partial(self.make, num_choices=len(self.choices))

    def time(self, hash: str, ms: float) -> None:
        self.timed += 1
        self.outcomes[hash] = ms

    def progress(self) -> TuningProgress | None:
        """How far it is; None where all is done but to say what was selected."""
        op, when = self.op, self.when
        if self.awaited is not None:
            return TuningProgress("waiting", op, finite(self.awaited.when), 0, 0, self.awaited.rank)
        if self.benchmarking or self.timed:
            done, total = len(self.outcomes), len(self.choices)
            return TuningProgress("tuning", op, when, done, total) if done < total else None
        compiled = [choice for choice in self.choices.values() if provider(choice) != "aten"]
        done = self.compiled + len(self.outcomes)
        return TuningProgress("precompiling", op, when, min(done, len(compiled)), len(compiled))

    def result(self) -> Tuning:
        ends = self.outcomes
        choices = [_after(choice, ends.get(key)) for key, choice in self.choices.items()]
        choices += [
            _after(Choice(hash=key), end) for key, end in ends.items() if key not in self.choices
        ]
        selection: dict[str, Any] = {}
        if end := self.selected:
            seconds = Seconds(finite(end.benchmark_seconds), finite(end.precompile_seconds))
            selection = {"selected": kept_hash(end.hash), "selected_by": end.by, "seconds": seconds}
        return self.make(
            choices=sort_choices(choices),
            state=self.state,
            compiled=self.compiled,
            timed=self.timed,
            **selection,
        )


def given(op: str, text: str) -> tuple[Options, str]:
    """What a convolution was given besides, and how flex attention was called."""
    return ((), text) if is_flex(op) else (options_of_text(text), "")


def _device(sources: Sequence[str], choices: Iterable[str]) -> int | None:
    hashes = hashes_of_log(sources[0]) if sources else None
    return None if hashes is None else hashes.device(choices)


def _after(choice: Choice, outcome: float | ChoiceFailed | None) -> Choice:
    """Return the choice with its outcome."""
    if outcome is None:
        return choice
    ms, reason = None, None
    if isinstance(outcome, ChoiceFailed):
        reason = clean(outcome.reason) or None
    elif 0 <= outcome < math.inf:
        ms = outcome
    return replace(choice, ms=ms, failed=ms is None, reason=reason)


def kept(text: str) -> str:
    """Clean, and kept once however often it comes: a model's tunings share hashes and keys."""
    return intern(clean(text))


def kept_hash(text: str) -> str:
    """Return the hash of a choice, clean, and kept once."""
    return intern(clean_hash(text))


def finite(seconds: float | None) -> float | None:
    """What is not finite, below 0, or a date that no calendar has, is not known."""
    return seconds if seconds is not None and 0 <= seconds <= LATEST else None


def clean_choice(choice: Choice) -> Choice:
    """Return the choice with clean texts, each kept once."""
    name = None if choice.name is None else kept(choice.name)
    hash_ = None if choice.hash is None else kept_hash(choice.hash)
    reason = None if choice.reason is None else clean(choice.reason)
    return Choice(name, hash_, choice.ms, kept(choice.description), choice.failed, reason)


GRAPH_ID = re.compile(r"[0-9a-f]{7}")
"""What an id must be: files are named by it."""
MOST = 1 << 53
"""More calls, nodes or kernels than this nobody has."""


class GraphFolds:
    """The graphs of one log as they are known by now."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._graphs: dict[int, GraphSeen] = {}
        self._changed: dict[int, None] = {}
        self._trials: list[TrialSeen] = []

    def take(self, event: GraphCompiled | GraphCalled | GraphTried, session: Session | None) -> str:
        """Take an event in; why it cannot be used, or nothing."""
        if isinstance(event, GraphTried):
            trial = cleaned(event.trial)
            if not trial_can_be(trial):
                return "a trial of a graph whose numbers cannot be"
            self._trials.append(TrialSeen(self._source, trial))
            return ""
        if isinstance(event, GraphCompiled):
            graph = cleaned(event.graph)
            if not graph_can_be(graph):
                return f"graph {event.g}, whose id or numbers cannot be"
            before = self._graphs.get(event.g)
            times = before.times if before else None
            seen = GraphSeen(self._source, event.g, graph, session.id if session else None, times)
        else:
            before = self._graphs.get(event.g)
            if before is None:
                return f"calls of graph {event.g}, of which nothing else is recorded"
            if not (0 <= event.timed <= event.calls < MOST and _amount(event.ms)):
                return f"calls of graph {event.g} whose numbers cannot be"
            seen = replace(before, times=GraphTimes(event.calls, event.timed, event.ms, event.by))
        when = event.when if 0 <= event.when <= LATEST else None
        self._graphs[event.g] = replace(seen, when=when)
        self._changed[event.g] = None
        return ""

    def changed(self) -> list[Record]:
        """What became known since the last call."""
        records: list[Record] = [self._graphs[g] for g in self._changed]
        records += self._trials
        self._changed, self._trials = {}, []
        return records


def graph_can_be(graph: Graph) -> bool:
    """Whether the id is one, and the numbers are some that a graph can have."""
    return (
        GRAPH_ID.fullmatch(graph.id) is not None
        and 0 <= graph.nodes < MOST
        and all(0 < use.count < MOST for use in graph.tunings)
    )


def trial_can_be(trial: Trial) -> bool:
    """Whether its numbers are some that can be measured; an interval may have no end above."""
    return (
        GRAPH_ID.fullmatch(trial.graph) is not None
        and bool(trial.arms)
        and all(0 <= time <= LATEST for time in (trial.when, trial.seconds))
        and 0 <= trial.rounds < MOST
        and all(map(_arm_can_be, trial.arms))
    )


def _arm_can_be(arm: TrialArm) -> bool:
    ends = (end for end in (arm.high, arm.ratio_high) if end is not None)
    amounts = arm.ms, arm.low, arm.ratio, arm.ratio_low
    return (
        all(map(_amount, amounts))
        and all(end >= 0 for end in ends)
        and 0 <= arm.passes < MOST
        and 0 <= (arm.kernels or 0) < MOST
        # An error may be infinite, or no number: what was computed may be.
        and not any(number is not None and number < 0 for number in (arm.error, arm.allowed))
    )


def _amount(number: float | None) -> bool:
    return number is None or 0 <= number < math.inf


def cleaned(value: Any) -> Any:
    """Return the value with every text in it clean; a field `hash` has the hash of a choice."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, tuple):
        return tuple(map(cleaned, value))
    if is_dataclass(value) and not isinstance(value, type):
        items = {field.name: cleaned(getattr(value, field.name)) for field in fields(value)}
        if isinstance(hash := getattr(value, "hash", None), str):
            items["hash"] = clean_hash(hash)
        return replace(value, **items)
    return value
