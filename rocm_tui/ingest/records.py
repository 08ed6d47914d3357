"""What readers make of the bytes of a source: upserts, withdrawals, problems."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from backend.model.session import Fault

if TYPE_CHECKING:  # types only: few sources have all, and the first rows wait for imports
    from backend.model.choice import Measurement
    from backend.model.graph import Graph, GraphTimes, Trial, TuningUse
    from backend.model.problem import TuningKey
    from backend.model.session import Activity, Session
    from backend.model.tuning import Tuning


@dataclass(frozen=True, slots=True)
class Seen:
    """A tuning as its source has it now; the same `uid` again replaces the earlier version.

    `uid` is `<source>#<n>` and stays the same while the source only grows. `id` is the tuning's,
    where it was computed already.
    """

    uid: str
    tuning: Tuning
    id: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Dropped:
    """The tuning of this `uid` is no longer in its source."""

    uid: str


@dataclass(frozen=True, slots=True)
class Gone:
    """Nothing that `source` said before holds any more: tunings, measurements and problems. With
    `anew` what comes from that source later is something else: another run's log, perhaps."""

    source: str
    anew: bool = False


@dataclass(frozen=True, slots=True)
class SessionSeen:
    """The process that wrote a source; the same `session.id` again replaces it."""

    session: Session


@dataclass(frozen=True, slots=True)
class ActivitySeen:
    """What the process of `session` does, says `source`; the same pair again replaces it."""

    source: str
    session: str
    activity: Activity


@dataclass(frozen=True, slots=True)
class MeasurementSeen:
    """A repeated measurement, from a source."""

    source: str
    measurement: Measurement


@dataclass(frozen=True, slots=True)
class KernelTime:
    """A kernel of a graph: how often a call of the graph runs it, and the milliseconds of such a
    call that it takes, in the mean.

    A library's kernel is identified by the op that launched it: `op` is `mm` of `aten::mm`, `nth`
    counts its calls within one call of the graph, from 1.
    """

    name: str
    count: float
    ms: float
    op: str = ""
    nth: int = 0


@dataclass(frozen=True, slots=True)
class GraphSeen:
    """A compiled graph as its source has it now; the same source and number `g` replace it.

    `session` is the process that called it; where None, the source is the log of one process.
    `when` is Unix time. Without `times`, no call is recorded. `kernels` are the kernels that a
    profiler saw in the graph.
    """

    source: str
    g: int
    graph: Graph
    session: str | None = None
    times: GraphTimes | None = None
    when: float | None = None
    kernels: tuple[KernelTime, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphTold:
    """The cache dir has the text of the graph that Inductor's cache calls `key`: the tunings that
    it holds, which of them the kernels of a name compute, and of each call of a library's kernel,
    in order, the op's name and the tuning, where that is known."""

    key: str
    tunings: tuple[TuningUse, ...] = ()
    kernels: tuple[tuple[str, TuningKey], ...] = ()
    externs: tuple[tuple[str, TuningKey | None], ...] = ()


@dataclass(frozen=True, slots=True)
class TrialSeen:
    """A trial, from a source."""

    source: str
    trial: Trial


@dataclass(frozen=True, slots=True)
class Unread(Fault):
    """A source is not there, or nothing at all could be read from it."""


Record = (
    Seen
    | Dropped
    | Gone
    | SessionSeen
    | ActivitySeen
    | MeasurementSeen
    | GraphSeen
    | GraphTold
    | TrialSeen
    | Fault
)

STDIN = "-"
"""The source that is standard input."""

SourceState = Literal["waiting", "reading", "following", "not read", "unreadable"]
"""waiting: does not exist yet; not read: it is there, and its format is none that is read;
unreadable: the last attempt failed, and why is a problem."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """How far a source has been read. `size` and `read` are bytes, `problems` a count.

    `format` is the name of a known format, or `folder`; `empty` is too short to be recognised yet,
    `` is unknown. The `words` of a folder say how much is read, and what is left out.
    """

    path: str
    format: str
    size: int
    read: int
    problems: int
    watched_by: Literal["inotify", "polling"]
    state: SourceState
    words: str = ""


def uid_of(source: str, n: int) -> str:
    """The uid of the `n`th tuning of `source`."""
    return f"{source}#{n}"


def source_of(uid: str) -> str:
    """The source that a uid belongs to."""
    return uid.rpartition("#")[0]
