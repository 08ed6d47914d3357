"""Choices that were timed again and again, outside of any tuning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from backend.model.choice import Choice
from backend.model.problem import TuningKey

Verdict = Literal["faster", "tied", "slower", "unclear"]
"""What repeated measurement says of a choice against the best one; see docs/measuring.md."""


@dataclass(frozen=True, slots=True)
class MeasuredChoice:
    """What repeated measurement says of one choice.

    `ms` is the median time of a call, `low` to `high` its own 95 % interval; `spread` is half the
    interquartile range over the median. `ratio` is its time over the best choice's, above 1 is
    slower, `ratio_low` to `ratio_high` its interval, joint with all others of the measurement; from
    0 to infinity where nothing is known. The best choice has ratio 1 and is `faster` only if every
    rival is slower.
    """

    hash: str
    ms: float
    low: float
    high: float
    spread: float
    rounds: int
    ratio: float
    ratio_low: float
    ratio_high: float
    verdict: Verdict
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One repeated measurement of choices of an (op, inputs, precision), best choice first.

    `failed` are choices that could not be run, with their reasons. `trouble` says in sentences what
    disturbed it. `reference_ms` is the median of a kernel that is the same on every run of this
    machine, measured in every round; `flushed` tells whether the caches were emptied before each
    call. `when` is Unix time in seconds, `seconds` what it took.
    """

    op: str
    inputs: str
    precision: str
    when: float
    choices: tuple[MeasuredChoice, ...]
    failed: tuple[Choice, ...] = ()
    rounds: int = 0
    seconds: float = 0.0
    flushed: bool = False
    reference_ms: float | None = None
    trouble: tuple[str, ...] = ()
    device: str | None = None
    system_hash: str | None = None
    session: str | None = None

    @property
    def key(self) -> TuningKey:
        return TuningKey(self.op, self.inputs, self.precision)

    def of(self, hash: str | None) -> MeasuredChoice | None:
        """What it says of the choice with this hash, if that was measured."""
        return next((choice for choice in self.choices if choice.hash == hash), None)
