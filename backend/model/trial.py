"""Whole passes of a graph with choices in place, against the same graph without them."""

from __future__ import annotations

from dataclasses import dataclass

from backend.model.choice import Verdict
from backend.model.graph import Arm, Clock


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
