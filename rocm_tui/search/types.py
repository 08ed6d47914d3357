"""The state of a search, as it is kept in its file, and the proof of pins by stock processes.

What follows from the tries (what is kept, what comes next, what is proposed) is derived from them
each time, see `steps`: the file of a killed process holds nothing that contradicts it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf, log
from typing import Annotated, Literal

from backend.model.choice import Verdict
from backend.model.graph import Arm, CompileOption, Swap, Trial, TrialArm
from backend.model.problem import TuningKey
from backend.pins.state import PinStatus
from rocm_tui.session.refusals import WRONG

VERSION = 1

TryKind = Literal["screen", "prune", "confirm"]
"""Which of the candidates makes the graph faster; which of those kept brings nothing; is what is
left faster in new processes?"""


@dataclass(frozen=True, slots=True)
class Alone:
    """The measurement of a choice alone: milliseconds, and its time over that of the choice that
    Inductor takes, with the interval `low` to `high`."""

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
    """A tuning that the graph uses in `count` places, about `weight` ms of a pass.

    `id` is the tuning's id, `current` is what Inductor takes. Its candidates are final if it is
    `ready`; before that their times alone are not known well enough. Measuring has ruled out
    `ruled_out` candidates; `unfit` says why the tuning cannot be tried at all.

    A subject may be the graph's compilation instead of a tuning: its candidates are `options`, our
    kernels or those of Inductor, each of which may be kept beside the others.
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
    options: tuple[CompileOption, ...] = ()

    @property
    def key(self) -> TuningKey:
        return TuningKey(self.op, self.inputs, self.precision)

    @property
    def taken(self) -> str:
        """The hash of the choice that Inductor takes."""
        return self.current.hash if self.current else ""

    def change(self, candidate: Candidate) -> Swap | CompileOption:
        """Return what an arm with the candidate changes."""
        option = next((option for option in self.options if option.label == candidate.hash), None)
        if option is not None:
            return option
        return Swap(self.op, self.inputs, self.precision, candidate.hash, candidate.name)

    def candidate(self, hash: str) -> Candidate | None:
        return next((choice for choice in self.candidates if choice.hash == hash), None)


@dataclass(frozen=True, slots=True)
class Context:
    """Digests of what a search is valid for: the graph's text, the tuned choices and their times.

    If one changes, the search is void; so it is with another torch or device, which the trials
    record.
    """

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
    """One search for a graph.

    A candidate may be `within` slower alone; `started` is Unix time.
    """

    version: int
    graph: str
    context: Context
    subjects: tuple[Subject, ...]
    within: float = 0.1
    started: float = 0.0
    tries: tuple[Try, ...] = field(default=())

    @property
    def seconds(self) -> float:
        """The duration of all tries."""
        return sum(attempt.seconds for attempt in self.tries)


# What comes next.


@dataclass(frozen=True, slots=True)
class MeasureStep:
    """Measure the choices of this subject alone, for at most `seconds`."""

    subject: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TrialStep:
    """Run the graph with these arms, the first being the baseline. `fresh`: in new processes, of
    which `processes` are wanted before the next look."""

    kind: TryKind
    turn: int
    subject: int
    arms: tuple[Arm, ...]
    error: float
    seconds: float
    fresh: bool = False
    processes: int = 1


Step = MeasureStep | TrialStep


def same_machine(left: Trial, right: Trial) -> bool:
    """Whether two trials were made by the same torch on the same kind of device."""
    return (left.torch, left.device, left.system_hash) == (
        right.torch,
        right.device,
        right.system_hash,
    )


def trouble_of(trials: Iterable[Trial]) -> tuple[str, ...]:
    """Return what disturbed trials: of each kind (`busy neighbour: ...`) what the last one says."""
    return tuple({text.partition(":")[0]: text for t in trials for text in t.trouble}.values())


def results(attempt: Try) -> list[tuple[Arm, TrialArm]]:
    """Return the arms of a trial with their results, without the baseline.

    They are matched by what they change: arms that broke their worker come last in a trial.
    """
    by_arm = {frozenset(arm.swaps): arm for arm in (attempt.trial.arms if attempt.trial else ())}
    rivals = [(arm, by_arm.get(frozenset(arm))) for arm in attempt.arms[1:]]
    return [(arm, result) for arm, result in rivals if result is not None]


def agrees(arm: TrialArm) -> bool:
    """Whether its outputs are the baseline's, within what rounding explains."""
    return arm.error is not None and arm.error <= (arm.allowed or 0.0)


def differs(arm: TrialArm) -> bool:
    """Whether its outputs were compared with the baseline's, and rounding does not explain the
    difference."""
    return arm.failed.startswith(WRONG) or (arm.error is not None and not agrees(arm))


def half_width(arm: TrialArm) -> float:
    """Half the width of the interval of the log of its ratio; infinite without an interval."""
    if not arm.ratio_low or not arm.ratio_high:
        return inf
    return log(arm.ratio_high / arm.ratio_low) / 2


def best_result(trial: Trial) -> TrialArm | None:
    """Return the fastest of the arms that make the graph faster, also than a new tuning does, with
    the same outputs; None if there are none."""
    better = (arm for arm in trial.rivals if trial.is_faster(arm) and agrees(arm))
    return min(better, key=lambda arm: arm.ratio or 1.0, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphGain:
    """The time of a graph's pass with a change over that without, from several processes.

    `low` to `high` is its interval; `before` and `after` are medians in milliseconds.
    """

    ratio: float
    low: float
    high: float
    verdict: Verdict
    before: float
    after: float
    kernels_before: int | None = None
    kernels_after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphProof(GraphGain):
    """The gain by the pins of a graph, from `pairs` of processes.

    `pins` have their states after all processes ran. `contradicted` are the pins that a compiled
    graph of the stock processes does not call.
    """

    graph: str
    pins: tuple[PinStatus, ...]
    pairs: int

    @property
    def contradicted(self) -> tuple[PinStatus, ...]:
        return tuple(status for status in self.pins if status.state != "active")


_OURS = re.compile(r"(improve|prove): graph (\w+) ")


def note_with(note: str, graph: str, figure: str, clear: bool = True) -> str:
    """Return the note with this figure instead of an older one of the same graph.

    What a person wrote stays; so does the figure of the search unless this one is `clear`.
    """
    parts = [part for part in note.split("; ") if part]
    old = [(kind, graph) for kind in (("improve", "prove") if clear else ("prove",))]
    others = [part for part in parts if not ((m := _OURS.match(part)) and m.groups() in old)]
    return "; ".join([*others, figure])
