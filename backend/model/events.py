"""What our selector writes into a session's event log, one event a line.

Each event of one tuning carries `n`, the tuning's number within its session, counted from 1. Times
of the day are Unix seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from backend.model.choice import Choice, Measurement
from backend.model.problem import Shape
from backend.model.session import Session
from backend.model.tuning import Selection

Phase = Literal["precompile", "benchmark"]


@dataclass(frozen=True, slots=True)
class SessionStarted:
    """The first line of a log."""

    session: Session


@dataclass(frozen=True, slots=True)
class TuningStarted:
    """Inductor asks which of `choices` (hash and name known, no times) to use."""

    n: int
    when: float
    op: str
    inputs: str
    precision: str
    shapes: tuple[Shape, ...]
    strides: tuple[Shape, ...]
    dtypes: tuple[str, ...]
    device: str
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class ChoiceCompiled:
    """A choice is ready to be timed, after `seconds` of compiling."""

    n: int
    hash: str
    seconds: float | None


@dataclass(frozen=True, slots=True)
class ChoiceTimed:
    """A choice was benchmarked: milliseconds."""

    n: int
    hash: str
    ms: float


@dataclass(frozen=True, slots=True)
class ChoiceFailed:
    """A choice cannot be used; `reason` is one line."""

    n: int
    hash: str
    phase: Phase
    reason: str


@dataclass(frozen=True, slots=True)
class ChoiceSelected:
    """The end of a tuning: what the compiled model will call, and why."""

    n: int
    when: float
    hash: str
    by: Selection
    benchmark_seconds: float | None
    precompile_seconds: float | None


@dataclass(frozen=True, slots=True)
class TuningFailed:
    """The end of a tuning without a choice."""

    n: int
    when: float
    reason: str


@dataclass(frozen=True, slots=True)
class TuningMeasured:
    """Choices of a key were measured again and again, outside of any tuning."""

    measurement: Measurement


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The last line; missing when the process was killed."""

    when: float


@dataclass(frozen=True, slots=True)
class HooksOff:
    """The process runs unhooked, and why; nothing of its tunings is recorded."""

    when: float
    reason: str


Event = (
    SessionStarted
    | TuningStarted
    | ChoiceCompiled
    | ChoiceTimed
    | ChoiceFailed
    | ChoiceSelected
    | TuningFailed
    | TuningMeasured
    | SessionEnded
    | HooksOff
)
