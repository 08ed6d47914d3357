"""What a session's process does: as its log told it last, and whether it still lives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal[
    "starting",
    "importing",
    "running",
    "compiling",
    "precompiling",
    "tuning",
    "done",
    "died",
    "unknown",
]
"""starting: runs, and nothing of torch was seen; importing: loads torch; running: compiles nothing;
compiling: torch compiles a graph; precompiling, tuning: choices of an op are compiled, timed; done:
ended by itself; died: ended without saying so; unknown: that it lives cannot be seen from here."""

LIVE: frozenset[State] = frozenset(
    ("starting", "importing", "running", "compiling", "precompiling", "tuning")
)


@dataclass(frozen=True, slots=True)
class Activity:
    """`told` is the last that was heard; `state` is the same, unless the process has ended or may
    have. `since` and `ended` are Unix times. Of `op`, which is tuned, `done` of `total` choices are
    compiled or timed. `status` is the exit code, or minus the signal, where somebody saw it.
    """

    state: State
    told: State
    since: float | None = None
    op: str = ""
    done: int = 0
    total: int = 0
    ended: float | None = None
    status: int | None = None

    @property
    def lives(self) -> bool:
        """Whether the process runs, as far as was seen."""
        return self.state in LIVE
