"""The events that our selector writes into the logs of sessions.

Each event of one tuning carries `n`, the tuning's number within its session, counted from 1. Times
of the day are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from backend.model.choice import CacheTime, Choice, Measurement
from backend.model.graph import Clock, Graph, Trial
from backend.model.problem import Shape
from backend.model.session import Session
from backend.model.tuning import Word

Phase = Literal["precompile", "benchmark"]


@dataclass(frozen=True, slots=True)
class SessionStarted:
    """The first line of a log. It comes again when more is known of the process: its device is not,
    before torch has loaded Inductor."""

    session: Session


@dataclass(frozen=True, slots=True)
class ActivityChanged:
    """What the process does from now on: `importing` torch, `running` (torch is imported, and
    nothing is compiled), or `compiling`. A word that a reader does not know is shown as it is."""

    when: float
    activity: str


@dataclass(frozen=True, slots=True)
class TuningStarted:
    """Inductor asks which of `choices` (hash and name known, no times) to use. `options` is what
    the op is given beside its inputs, as `options.text_of` writes it, or a call of flex attention,
    as `backend.wire.captured` does; empty: unknown.

    Of a Triton kernel that Inductor launches (`kernel.py`) `kernel` is its name in the
    graph, and `source` the file that has its text; both empty for all others."""

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
    options: str = ""
    kernel: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class ChoiceAdded:
    """One more choice takes part in a tuning that goes on: coordinate descent made it of another
    one, whose hash is `origin`, by changing `moved` (`XBLOCK 64 to 128`)."""

    n: int
    choice: Choice
    origin: str
    moved: str


@dataclass(frozen=True, slots=True)
class ChoiceCompiled:
    """A choice is ready to be timed, after `seconds` of compiling."""

    n: int
    hash: str
    seconds: float | None


@dataclass(frozen=True, slots=True)
class BenchmarkStarted:
    """The choices are compiled as far as they can be, and are timed from now on."""

    n: int
    when: float


@dataclass(frozen=True, slots=True)
class ChoiceTimed:
    """A choice was benchmarked: milliseconds."""

    n: int
    hash: str
    ms: CacheTime


@dataclass(frozen=True, slots=True)
class ChoiceFailed:
    """A choice cannot be used; `reason` is one line."""

    n: int
    hash: str
    phase: Phase
    reason: str


@dataclass(frozen=True, slots=True)
class RankAwaited:
    """From now on this rank waits for the choice of the rank `rank` of its job; None: for none."""

    n: int
    when: float
    rank: int | None


@dataclass(frozen=True, slots=True)
class RanksAsked:
    """How the choice of this rank stands to those of the other ranks of its job, told before it is
    selected. The rank `rank` has decided on `hash`, when the choices took `timings` milliseconds
    there; this one waited so many seconds. `reason` says why it chooses by itself, where it does.
    """

    n: int
    when: float
    rank: int | None
    hash: str | None
    waited: float
    timings: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ChoiceSelected:
    """The end of a tuning: what the compiled model will call, and why."""

    n: int
    when: float
    hash: str
    by: Word
    benchmark_seconds: float | None
    precompile_seconds: float | None


@dataclass(frozen=True, slots=True)
class TimesTakenOver:
    """The times of a tuning on the GPU `device` were also written for other GPUs of its kind:
    `timings` has milliseconds by the choice hashes of the GPUs `devices`."""

    n: int
    when: float
    device: int
    devices: tuple[int, ...]
    timings: Mapping[str, float] = field(default_factory=dict)


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
class GraphCompiled:
    """The process has a compiled graph, made or found in the cache: `g` numbers it, from 1.

    It comes again, with the same number, when more is known of it.
    """

    g: int
    when: float
    graph: Graph


@dataclass(frozen=True, slots=True)
class GraphCalled:
    """The graph `g` was called `calls` times since the process began; the last such event counts.

    `timed` of these calls took `ms` milliseconds in the mean.
    """

    g: int
    when: float
    calls: int
    timed: int = 0
    ms: float | None = None
    by: Clock = "host"


@dataclass(frozen=True, slots=True)
class GraphTried:
    """A graph was run with choices in place."""

    trial: Trial


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The last line; missing when the process was killed."""

    when: float


@dataclass(frozen=True, slots=True)
class ProcessExited:
    """Who started the process saw its end: `status` is its exit code, or minus the signal."""

    when: float
    status: int


@dataclass(frozen=True, slots=True)
class HooksOff:
    """The process runs unhooked, and why; nothing of its tunings is recorded."""

    when: float
    reason: str


Event = (
    SessionStarted
    | ActivityChanged
    | TuningStarted
    | ChoiceAdded
    | ChoiceCompiled
    | BenchmarkStarted
    | ChoiceTimed
    | ChoiceFailed
    | RankAwaited
    | RanksAsked
    | ChoiceSelected
    | TimesTakenOver
    | TuningFailed
    | TuningMeasured
    | GraphCompiled
    | GraphCalled
    | GraphTried
    | SessionEnded
    | ProcessExited
    | HooksOff
)
