"""Compiled graphs: contents, calls and times; and trials of whole passes under several arms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from backend.model.choice import Choice, Verdict
from backend.model.problem import TuningKey

GraphKind = Literal["inference", "forward", "backward"]

Clock = Literal["device", "host"]
"""The clock that timed a call: events on the GPU's stream, or the host's clock."""


@dataclass(frozen=True, slots=True)
class TuningUse:
    """The selected choice `hash` of a tuning, and the `count` nodes of a graph that call it."""

    op: str
    inputs: str
    precision: str
    count: int = 1
    hash: str | None = None

    @property
    def key(self) -> TuningKey:
        return TuningKey(self.op, self.inputs, self.precision)


@dataclass(frozen=True, slots=True)
class Graph:
    """A compiled FX graph.

    `id` is seven hex digits of a hash of its text and its inputs' shapes, strides and dtypes, and
    is the same in every process. `key` is its name in Inductor's cache of compiled graphs and in
    profiler traces. `title` is its location in the program, `nodes` its number of ops. `tunings`
    are the known tunings whose choices it calls. `captured` is True if its text is stored, see
    `Layout.graphs`; otherwise `uncaptured` is the reason. `max_autotune` is whether tuning was on
    when it was compiled, if that was seen.
    """

    id: str
    kind: GraphKind = "inference"
    key: str | None = None
    title: str = ""
    device: str | None = None
    nodes: int = 0
    tunings: tuple[TuningUse, ...] = ()
    captured: bool = False
    uncaptured: str = ""
    max_autotune: bool | None = None


@dataclass(frozen=True, slots=True)
class GraphTimes:
    """The number of calls of a graph, and the mean milliseconds of the `timed` ones."""

    calls: int
    timed: int = 0
    ms: float | None = None
    by: Clock = "host"

    @property
    def total_ms(self) -> float | None:
        """The milliseconds of all calls, extrapolated from the timed ones."""
        return None if self.ms is None else self.calls * self.ms


@dataclass(frozen=True, slots=True)
class Swap:
    """The choice `hash` that an arm uses for a tuning key."""

    op: str
    inputs: str
    precision: str
    hash: str
    name: str = field(default="", compare=False)

    @property
    def key(self) -> TuningKey:
        return TuningKey(self.op, self.inputs, self.precision)

    @property
    def label(self) -> str:
        return Choice(self.name or None, self.hash).label

    @property
    def identity(self) -> str:
        """What names the change if compiling or running it ends the worker."""
        return self.hash


@dataclass(frozen=True, slots=True)
class CompileOption:
    """An option of Inductor to compile a graph with.

    `value` is written as in Python (`True`, `1`) or is a word (`EXHAUSTIVE`).
    """

    name: str
    value: str

    @property
    def key(self) -> str:
        return self.name

    @property
    def label(self) -> str:
        return f"{self.name}={self.value}"

    @property
    def identity(self) -> str:
        return self.label


Arm = tuple[Swap | CompileOption, ...]
"""A way to compile a graph: these choices and options, otherwise Inductor's selection without pins
and the program's options."""


TEMPLATES = CompileOption("rocm_tui.templates", "True")
"""No option of Inductor: the arm also offers our kernels, as `activate(templates=True)` does."""


RETUNED = CompileOption("rocm_tui.tuned_again", "True")
"""No option of Inductor: the arm benchmarks all choices again, which changes of an arm that are
part of the kernels' source make Inductor do. A graph may be faster by that alone, where the first
tuning was disturbed or close."""


def control_of(arm: Arm) -> Arm:
    """Return the arm with its choices benchmarked again."""
    return (*arm, RETUNED)


CONTROL_MARGIN = 0.005
"""By how much an arm must be faster than the control: equal programs differ by up to that within
one process (`backend.measure.trial`)."""


def offers_templates(arm: Arm) -> bool:
    return TEMPLATES in arm


def swaps_of(arm: Arm) -> tuple[Swap, ...]:
    """Return the choices that an arm puts in place."""
    return tuple(change for change in arm if isinstance(change, Swap))


def options_of(arm: Arm) -> tuple[CompileOption, ...]:
    """Return Inductor's options that an arm sets."""
    changes = (change for change in arm if isinstance(change, CompileOption))
    return tuple(change for change in changes if change not in (TEMPLATES, RETUNED))


def hashes_of(arm: Arm) -> Mapping[TuningKey, str]:
    """Return the choice of each key that an arm puts in place."""
    return {swap.key: swap.hash for swap in swaps_of(arm)}


@dataclass(frozen=True, slots=True)
class TrialArm:
    """The result of repeated passes for one arm.

    `ms` is the median time of a pass, `low` to `high` its own 95 % interval. `ratio` is its time
    over that of the trial's first arm (above 1 is slower); `ratio_low` to `ratio_high` is its
    interval, joint with all other arms. The `verdict` compares with the first arm: `faster`,
    `tied`, `slower` or `unclear`; the first arm's is `tied`.

    `kernels` counts the kernels of a pass; `gone` names kernels that only the first arm has,
    `added` kernels that only this arm has. `error` is the largest difference of an output from the
    first arm's, over the largest value there (0: identical bits); `allowed` is the tolerance for
    rounding. `failed` is why the arm could not run; it then has no times. `same`: its code is that
    of the first arm, so it was not timed. `retuned`: choices were benchmarked again for it.
    """

    swaps: Arm
    ms: float | None = None
    low: float | None = None
    high: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    verdict: Verdict = "unclear"
    passes: int = 0
    kernels: int | None = None
    gone: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    error: float | None = None
    allowed: float | None = None
    failed: str = ""
    same: bool = False
    retuned: bool = False


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial of a graph, `id` of a `Graph`: its arms, with the baseline first.

    `when` is Unix time in seconds, `seconds` the duration of the passes, `by` the clock that timed
    them; `trouble` has a sentence for each disturbance.
    """

    graph: str
    when: float
    arms: tuple[TrialArm, ...]
    rounds: int = 0
    seconds: float = 0.0
    by: Clock = "host"
    trouble: tuple[str, ...] = ()
    device: str | None = None
    system_hash: str | None = None
    session: str | None = None
    torch: str = ""

    @property
    def control(self) -> TrialArm | None:
        """The first arm with its choices benchmarked again, if it was timed and its outputs agree
        with the first arm's."""
        for arm in self.arms[1:]:
            right = arm.error is not None and arm.error <= (arm.allowed or 0.0)
            if arm.swaps == control_of(self.arms[0].swaps) and arm.ratio and right:
                return arm
        return None

    @property
    def rivals(self) -> tuple[TrialArm, ...]:
        """The arms that somebody wanted to compare with the first one: all but the control."""
        rest = self.arms[1:]
        return tuple(arm for arm in rest if arm.swaps != control_of(self.arms[0].swaps))

    def is_faster(self, arm: TrialArm) -> bool:
        """Whether the arm is faster than the first one because of what it changes. If choices were
        benchmarked again for it, it must be clearly faster than the control, too; if that
        failed or computed something else, the arm does not count as faster."""
        if arm.verdict != "faster" or arm.failed:
            return False
        if not arm.retuned:
            return True
        control = self.control
        if control is None:  # if one was wanted, the cause of the gain is unknown
            return self.rivals == self.arms[1:]
        slowest = (arm.ratio_high or inf) * (1 + CONTROL_MARGIN)
        return slowest < (control.ratio_low or 0.0)

    def verdict(self, arm: TrialArm) -> str:
        """The verdict on an arm; `as retuned` if it is faster, but not clearly more so than the
        control, and `unclear` if the control failed."""
        gained = arm.verdict != "faster" or arm.failed or self.is_faster(arm)
        return arm.verdict if gained else "as retuned" if self.control else "unclear"
