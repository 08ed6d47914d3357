"""What can be said of one job: its ranks, its backends, what tuning bought and cost."""

from __future__ import annotations

from dataclasses import dataclass

from backend.records import Choice
from rocm_tui.session.model import Row


@dataclass(frozen=True, slots=True)
class Party:
    """One rank, host or log of a job and what it uses for a problem.

    `ms` is its own time for its choice; `rivals_ms` its own time for each choice of the others, by
    label, where it timed that.
    """

    who: str
    row: Row
    choice: Choice
    ms: float | None
    rivals_ms: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Ranks or hosts that use different choices for the same problem, the slowest first.

    `matters` tells that somebody timed two of the choices further apart than a tie.
    """

    id: str
    row: Row
    parties: tuple[Party, ...]
    matters: bool


@dataclass(frozen=True, slots=True)
class Reason:
    """A failure as it happened once, and how many choices failed like it."""

    text: str
    count: int


@dataclass(frozen=True, slots=True)
class Absent:
    """A backend that was asked for and of which no usable choice appeared.

    `ops` are the ops of which that is true and `tunings` how many tunings those are; `everywhere`
    tells that there are no others. `offered` choices appeared, and all of them failed. `sessions`
    are those that asked for it.
    """

    backend: str
    ops: tuple[str, ...]
    tunings: int
    everywhere: bool
    offered: int
    reasons: tuple[Reason, ...]
    sessions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gain:
    """What tuning one problem saves a call against ATen, and what it cost.

    `saved_ms` is None where ATen has no time, and 0 where ATen itself is used; `tied` tells that
    the difference is within what a single number cannot tell. `calls` is how often one run calls
    it, None where no session tells. `seconds` sums up all its tunings.
    """

    row: Row
    saved_ms: float | None
    tied: bool
    calls: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Bought:
    """What tuning bought, by problem, most first.

    `saved_ms` is what one run of everything saves that is not a tie, each problem as often as it is
    called. `seconds` is what all tunings took, `unknown` of them tell no duration.
    """

    gains: tuple[Gain, ...]
    saved_ms: float
    seconds: float
    unknown: int

    @property
    def runs_to_pay(self) -> float | None:
        """After how many runs the time saved is that spent; None if nothing is saved."""
        return self.seconds * 1e3 / self.saved_ms if self.saved_ms > 0 else None


@dataclass(frozen=True, slots=True)
class Repeated:
    """A problem that was tuned again and again.

    `times` is how often; `seconds` is what it took beyond the first time. `winners` are the labels
    of the choices that won, with how often, most often first.
    """

    row: Row
    times: int
    seconds: float
    winners: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The report of one job."""

    disagreements: tuple[Disagreement, ...]
    absent: tuple[Absent, ...]
    bought: Bought
    repeated: tuple[Repeated, ...]
