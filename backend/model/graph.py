"""Compiled graphs: what they contain, how often a program calls them, how long that takes, and
trials: whole passes of a graph with choices in place, against the same graph without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from backend.model.choice import Verdict
from backend.model.problem import TuningKey

GraphKind = Literal["inference", "forward", "backward"]

Clock = Literal["device", "host"]
"""What timed a call: events on the GPU's stream, or the host's clock around it."""


@dataclass(frozen=True, slots=True)
class TuningUse:
    """`count` nodes of a graph call what the tuning of this key selected, the choice `hash`."""

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
    """One compiled FX graph.

    `id` is seven hex digits of a hash of its text with the shapes, strides and dtypes of its
    inputs: the same graph has it in every process. `key` is what Inductor's cache of compiled
    graphs and profiler traces call it. `title` says where in the program it comes from, `nodes`
    how many ops it has. `tunings` are those whose choices it calls, as far as they are known.
    `captured` tells that its text is kept, see `Layout.graphs`; `uncaptured` why it is not.
    `max_autotune` is whether tuning was on when it was compiled, if that was seen.
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
    """How often a program has called a graph; of `timed` of these calls the mean milliseconds."""

    calls: int
    timed: int = 0
    ms: float | None = None
    by: Clock = "host"

    @property
    def total_ms(self) -> float | None:
        """What all calls took, if those that were timed are like the others."""
        return None if self.ms is None else self.calls * self.ms


@dataclass(frozen=True, slots=True)
class Swap:
    """In the graph, the tuning of a key is to take the choice `hash`."""

    op: str
    inputs: str
    precision: str
    hash: str
    name: str = field(default="", compare=False)

    @property
    def key(self) -> TuningKey:
        return TuningKey(self.op, self.inputs, self.precision)


Arm = tuple[Swap, ...]
"""One way to compile a graph: with these choices in place, else as Inductor would without pins."""


def hashes_of(arm: Arm) -> Mapping[TuningKey, str]:
    """The choice of each key that an arm puts in place."""
    return {swap.key: swap.hash for swap in arm}


@dataclass(frozen=True, slots=True)
class TrialArm:
    """What repeated passes say of one arm.

    `ms` is the median time of a pass, `low` to `high` its own 95 % interval. `ratio` is its time
    over that of the trial's first arm, above 1 is slower, `ratio_low` to `ratio_high` its interval,
    joint with all other arms. The `verdict` is about the graph, against the first arm: it is
    `faster`, `tied`, `slower`, or `unclear`; the first arm's is `tied`.

    `kernels` is how many kernels a pass calls, `gone` and `added` name those that the first arm
    alone has, and those that this one alone has. `error` is the largest difference of an output
    from the first arm's, over the largest value there (0: the same bits); `allowed` what the type's
    rounding explains. `failed` says why it could not be run: then it has no times.
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


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial of a graph, `id` of a `Graph`: its arms, of which the first one is the baseline.

    `when` is Unix time in seconds, `seconds` what the passes took, `by` which clock timed them;
    `trouble` says in sentences what disturbed it.
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
