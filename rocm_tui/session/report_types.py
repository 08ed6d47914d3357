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

    `matters` tells that one of them found its choice and another's to differ by more than a tie.
    """

    id: str
    row: Row
    parties: tuple[Party, ...]
    matters: bool


@dataclass(frozen=True, slots=True)
class Reason:
    """Why there is nothing of a backend: `count` choices failed like this one.

    A reason that was known before any choice was made has the count 0.
    """

    text: str
    count: int


@dataclass(frozen=True, slots=True)
class Absent:
    """A backend that was asked for and of which no usable choice appeared.

    `ops` are the ops of which that is true, in `tunings` tunings; `everywhere` tells that it is
    true of all. `failed` choices appeared there and none of them could be used. `sessions` are
    those that asked for it.
    """

    backend: str
    ops: tuple[str, ...]
    tunings: int
    everywhere: bool
    failed: int
    reasons: tuple[Reason, ...]
    sessions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gain:
    """What tuning one problem saves a call against ATen, and what it cost.

    `choice` is the one that most of its tunings use, `row` the latest of those. `saved_ms` is the
    median of what they save with it: None where ATen has no time, and 0 where ATen itself is used.
    `tied` tells that the difference is within what can be told. `calls` is how often one run calls
    it, None where no session tells. `seconds` sums up all its tunings.
    """

    row: Row
    choice: Choice
    saved_ms: float | None
    tied: bool
    calls: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Bought:
    """What tuning bought, by problem, most first.

    `saved_ms` is what one run saves that is not a tie, each problem as often as it is called, or
    once. `seconds` is what all tunings took, on all of the job's `ranks` together; `unknown`
    tunings tell no duration.
    """

    gains: tuple[Gain, ...]
    saved_ms: float
    seconds: float
    ranks: int
    unknown: int

    @property
    def runs_to_pay(self) -> float | None:
        """After how many runs of everything tuning is paid for; None if nothing is saved.

        Ranks tune side by side, so each pays its part.
        """
        return self.seconds / self.ranks * 1e3 / self.saved_ms if self.saved_ms > 0 else None


@dataclass(frozen=True, slots=True)
class Repeated:
    """A problem that was tuned again and again.

    `times` is how often, in `processes` processes, where they are known; `seconds` is what it took
    beyond the first time. `winners` are the labels of the choices that won, with how often, most
    often first.
    """

    row: Row
    times: int
    processes: int | None
    seconds: float
    winners: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The report of one job. `told` is False where no session says which backends it asked for."""

    disagreements: tuple[Disagreement, ...]
    absent: tuple[Absent, ...]
    told: bool
    bought: Bought
    repeated: tuple[Repeated, ...]
