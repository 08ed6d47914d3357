"""A search as it stands, and as it is kept in a file: what can be tried, and what was.

All that follows from the tries (what is kept, what comes next, what is proposed) is worked out from
them each time, see `steps`: a file that a killed process left holds nothing that contradicts it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from backend.model.choice import Verdict
from backend.model.graph import Arm, Swap, Trial, TrialArm
from backend.model.problem import TuningKey

VERSION = 1

TryKind = Literal["screen", "prune", "confirm"]
"""Which of the candidates makes the graph faster; which of those kept brings nothing; is what is
left faster in new processes?"""


@dataclass(frozen=True, slots=True)
class Alone:
    """What measuring says of a choice by itself: milliseconds, and its time over that of the choice
    that Inductor takes, `low` to `high` the interval, with the verdict on that."""

    ms: float
    ratio: float
    low: float
    high: float

    @property
    def verdict(self) -> Verdict:
        if self.low > 1:
            return "slower"
        return "faster" if self.high < 1 else "unclear"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A choice that a graph may be tried with; `maker` is ATen, a template, ..., where known."""

    hash: str
    name: str = ""
    maker: str = ""
    alone: Alone | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """A tuning that the graph uses in `count` places, `id` as everywhere, about `weight` ms of a
    pass. `current` is what Inductor takes.

    `ready` tells that its candidates are final; before that their times alone are not known well
    enough. `ruled_out` is how many measuring has ruled out, `unfit` why it cannot be tried at all.
    """

    op: str
    inputs: str
    precision: str
    id: str
    count: int = 1
    weight: float = 0.0
    current: Candidate | None = None
    candidates: tuple[Candidate, ...] = ()
    ready: bool = False
    ruled_out: int = 0
    unfit: str = ""

    @property
    def key(self) -> TuningKey:
        return TuningKey(self.op, self.inputs, self.precision)

    @property
    def taken(self) -> str:
        """The hash of the choice that Inductor takes."""
        return self.current.hash if self.current else ""

    def swap(self, candidate: Candidate) -> Swap:
        return Swap(self.op, self.inputs, self.precision, candidate.hash, candidate.name)

    def candidate(self, hash: str) -> Candidate | None:
        return next((choice for choice in self.candidates if choice.hash == hash), None)


@dataclass(frozen=True, slots=True)
class Context:
    """Digests of what a search holds for: the graph's text, the choices tuned and their times.
    Another one of them makes it void; so does another torch or device, which the trials tell."""

    text: str
    cache: str = ""


def _amount(value: float) -> str:
    return "" if 0 <= value < 1e9 else "is no number of seconds"


def _index(value: int) -> str:
    return "" if 0 <= value < 1 << 20 else "is no index"


Index = Annotated[int, _index]


@dataclass(frozen=True, slots=True)
class Try:
    """A trial of a search, or why there was none. `turn` is the sweep of a `screen`, else counts
    them; `subject` is the place of the tuning that was screened; `error` what it might spend."""

    kind: TryKind
    turn: Index
    arms: tuple[Arm, ...]
    error: float
    subject: Index = 0
    seconds: Annotated[float, _amount] = 0.0
    trial: Trial | None = None
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Search:
    """One search for a graph. `within`: how much slower alone a candidate may be; `started` is Unix
    time."""

    version: int
    graph: str
    context: Context
    subjects: tuple[Subject, ...]
    within: float = 0.1
    started: float = 0.0
    tries: tuple[Try, ...] = field(default=())

    @property
    def seconds(self) -> float:
        """What all tries took."""
        return sum(attempt.seconds for attempt in self.tries)


# What comes next.


@dataclass(frozen=True, slots=True)
class MeasureStep:
    """Measure the choices of this subject alone, for at most so many seconds."""

    subject: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TrialStep:
    """Run the graph with these arms, the first being the baseline. `fresh`: in a new process."""

    kind: TryKind
    turn: int
    subject: int
    arms: tuple[Arm, ...]
    error: float
    seconds: float
    fresh: bool = False


Step = MeasureStep | TrialStep


def same_machine(left: Trial, right: Trial) -> bool:
    """Whether two trials were made by the same torch on the same kind of device."""
    return (left.torch, left.device, left.system_hash) == (
        right.torch,
        right.device,
        right.system_hash,
    )


def results(attempt: Try) -> list[tuple[Arm, TrialArm]]:
    """The arms of a trial beside what came of them, without the baseline. They are told by what
    they swap: those that broke their worker come last in a trial."""
    known = {frozenset(arm.swaps): arm for arm in (attempt.trial.arms if attempt.trial else ())}
    rivals = [(arm, known.get(frozenset(arm))) for arm in attempt.arms[1:]]
    return [(arm, result) for arm, result in rivals if result is not None]


def agrees(arm: TrialArm) -> bool:
    """Whether its outputs are the baseline's, within what rounding explains."""
    return arm.error is not None and arm.error <= (arm.allowed or 0.0)
