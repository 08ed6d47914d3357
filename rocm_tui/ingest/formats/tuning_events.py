"""The events of one tuning, folded into the tuning as it is by then."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from sys import intern
from typing import Any

from backend.model.choice import Choice, sort_choices
from backend.model.events import (
    BenchmarkStarted,
    ChoiceAdded,
    ChoiceCompiled,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    RankAwaited,
    RanksAsked,
    TuningFailed,
    TuningStarted,
)
from backend.model.ops import is_flex
from backend.model.options import Options, of_text
from backend.model.origin import provider
from backend.model.session import LATEST, Session
from backend.model.tuning import Seconds, State, Tuning
from backend.wire.events import Offer, Start
from rocm_tui.harmless import clean
from rocm_tui.ingest.devices import hashes_of_log
from rocm_tui.ingest.formats.reader import clean_hash
from rocm_tui.ingest.formats.session_events import Progress

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
Known = Choice | Offer
"""A choice as far as it is known before it is timed."""


@dataclass(slots=True)
class TuningFold:
    """A running tuning: its `choices` by hash, and what has come of them since: milliseconds, or
    how they failed. `told` makes the tuning as it started, with what is given besides."""

    op: str
    when: float | None
    told: Callable[..., Tuning]
    choices: Mapping[str, Known]
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
        choices: Mapping[str, Known],
        count: int,
        session: Session | None,
        sources: tuple[str, ...],
    ) -> TuningFold:
        """Of a tuning of `session` that begins with so many choices."""
        op, when = kept(event.op), finite(event.when)
        options, call = given(op, event.options)
        told = partial(
            Tuning,
            op=op,
            shapes=event.shapes,
            strides=event.strides,
            dtypes=tuple([kept(dtype) for dtype in event.dtypes]),
            device=kept(event.device),
            precision=kept(event.precision),
            inputs_key=kept(event.inputs),
            num_choices=count,
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
        return cls(op, when, told, choices)

    @classmethod
    def reopened(cls, ended: Tuning) -> TuningFold:
        """Of a tuning that had ended, should more be told of it."""
        choices = {choice.hash or choice.label: choice for choice in ended.choices}
        told = partial(replace, ended)
        return cls(
            ended.op, ended.when, told, choices, {}, ended.state, ended.compiled, ended.timed
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
            self.told = partial(self.told, awaited=event.rank)
        elif isinstance(event, RanksAsked):
            self.told = partial(self.told, decided=event.rank, apart=clean(event.reason))
        else:
            self.state = "done"
            if isinstance(event, ChoiceSelected):
                self.selected = event

    def add(self, event: ChoiceAdded) -> None:
        made = kept_hash(event.origin), clean(event.moved)
        choice = replace(clean_choice(event.choice), origin=made[0], moved=made[1])
        self.choices = {**self.choices, choice.hash or choice.label: choice}
        self.told = partial(self.told, num_choices=len(self.choices))

    def time(self, hash: str, ms: float) -> None:
        self.timed += 1
        self.outcomes[hash] = ms

    def progress(self) -> Progress | None:
        """How far it is; None where all is done but to say what was selected."""
        op, when = self.op, self.when
        if self.awaited is not None:
            return Progress("waiting", op, finite(self.awaited.when), 0, 0, self.awaited.rank)
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
        told: dict[str, Any] = {}
        if end := self.selected:
            seconds = Seconds(finite(end.benchmark_seconds), finite(end.precompile_seconds))
            told = {"selected": kept_hash(end.hash), "selected_by": end.by, "seconds": seconds}
        return self.told(
            choices=sort_choices(choices),
            state=self.state,
            compiled=self.compiled,
            timed=self.timed,
            **told,
        )


def given(op: str, text: str) -> tuple[Options, str]:
    """What a convolution was given besides, and how flex attention was called."""
    if not text:
        return (), ""
    return ((), text) if is_flex(op) else (of_text(text), "")


def by_hash(start: Start) -> dict[str, Offer]:
    """What is offered."""
    return {offer[1]: offer for offer in start.offers}


def _device(sources: Sequence[str], choices: Iterable[str]) -> int | None:
    hashes = hashes_of_log(sources[0]) if sources else None
    return None if hashes is None else hashes.device(choices)


def _after(known: Known, outcome: float | ChoiceFailed | None = None) -> Choice:
    if isinstance(known, Choice):
        if outcome is None:
            return known
        name, hash_, text = known.name, known.hash, known.description
        made = known.origin, known.moved
    else:
        name, hash_, text = intern(known[0]), intern(known[1]), known[2]
        made = None, None
    if outcome is None or (outcome.__class__ is float and 0 <= outcome < math.inf):
        return Choice(name, hash_, outcome, text, origin=made[0], moved=made[1])
    reason = clean(outcome.reason) if isinstance(outcome, ChoiceFailed) else None
    failed = Choice(name, hash_, None, text, failed=True, reason=reason or None)
    return replace(failed, origin=made[0], moved=made[1])


def kept(text: str) -> str:
    """Clean, and kept once however often it comes: a model's tunings share hashes and keys."""
    return intern(clean(text))


def kept_hash(text: str) -> str:
    """The same of the hash of a choice."""
    return intern(clean_hash(text))


def finite(seconds: float | None) -> float | None:
    """What is not finite, or a date that no calendar has, is not known."""
    return seconds if seconds is not None and 0 <= seconds <= LATEST else None


def clean_choice(choice: Choice) -> Choice:
    """Written out: a log has very many of them."""
    name = None if choice.name is None else kept(choice.name)
    hash_ = None if choice.hash is None else kept_hash(choice.hash)
    reason = None if choice.reason is None else clean(choice.reason)
    return Choice(name, hash_, choice.ms, clean(choice.description), choice.failed, reason)
