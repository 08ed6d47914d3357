"""The events that our selector writes into session logs.

Each event of a tuning has `n`, the tuning's number within its session, counted from 1. Times are
Unix seconds.
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
    """The first line of a log, repeated when more becomes known, such as the device."""

    session: Session


@dataclass(frozen=True, slots=True)
class ActivityChanged:
    """The current activity of the process: `importing` torch, `running` (torch is imported, nothing
    compiles) or `compiling`. A reader shows other words unchanged."""

    when: float
    activity: str


@dataclass(frozen=True, slots=True)
class TuningStarted:
    """Inductor starts to select one of `choices` (hash and name set, no times). `options` are the
    op's arguments beside its inputs, as `options.text_of_options` writes them, or a call of flex
    attention, as `backend.wire.captured` writes it; empty if unknown.

    For a Triton kernel that Inductor launches (`inductor_kernel.py`), `kernel` is its name in the
    graph and `source` the file with its text; both are empty otherwise.
    """

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
    """A choice joins a running tuning: coordinate descent derived it from the choice with the hash
    `origin` by changing `moved` (`XBLOCK 64 to 128`)."""

    n: int
    choice: Choice
    origin: str
    moved: str


@dataclass(frozen=True, slots=True)
class ChoiceCompiled:
    """A choice is compiled, after `seconds`."""

    n: int
    hash: str
    seconds: float | None


@dataclass(frozen=True, slots=True)
class BenchmarkStarted:
    """Compilation is over, and benchmarking begins."""

    n: int
    when: float


@dataclass(frozen=True, slots=True)
class ChoiceTimed:
    """A choice was benchmarked, in milliseconds."""

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
    """This rank waits for the choice of rank `rank` of its job from now on, or for none (None)."""

    n: int
    when: float
    rank: int | None


@dataclass(frozen=True, slots=True)
class RanksAsked:
    """How this rank's choice relates to the other ranks of its job, written before the selection.
    Rank `rank` has selected `hash`, with the times `timings` in milliseconds; this rank waited
    `waited` seconds. `reason` says why it chooses alone, if it does."""

    n: int
    when: float
    rank: int | None
    hash: str | None
    waited: float
    timings: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ChoiceSelected:
    """The end of a tuning: the choice that the compiled model will call, and why."""

    n: int
    when: float
    hash: str
    by: Word
    benchmark_seconds: float | None
    precompile_seconds: float | None


@dataclass(frozen=True, slots=True)
class TimesTakenOver:
    """The times of a tuning on GPU `device` were also written for other GPUs of the same kind:
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
    """A repeated measurement of choices, outside of any tuning."""

    measurement: Measurement


@dataclass(frozen=True, slots=True)
class GraphCompiled:
    """The process has a compiled graph, newly compiled or from the cache; `g` numbers it, from 1.
    The event is repeated, with the same number, when more becomes known."""

    g: int
    when: float
    graph: Graph


@dataclass(frozen=True, slots=True)
class GraphCalled:
    """Graph `g` was called `calls` times since the process began; the last such event counts.
    `timed` of these calls took `ms` milliseconds on average."""

    g: int
    when: float
    calls: int
    timed: int = 0
    ms: float | None = None
    by: Clock = "host"


@dataclass(frozen=True, slots=True)
class GraphTried:
    """A trial of a graph was run."""

    trial: Trial


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The last line; missing if the process was killed."""

    when: float


@dataclass(frozen=True, slots=True)
class ProcessExited:
    """The parent process saw this process end: `status` is its exit code, or minus the signal."""

    when: float
    status: int


@dataclass(frozen=True, slots=True)
class HooksOff:
    """The process runs without our hooks, for `reason`; its tunings are not recorded."""

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
