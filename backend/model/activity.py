"""What a session's process does: as its log told it last, and whether it still lives."""

from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import Literal

from backend.model.word import Word

State = Literal[
    "starting",
    "importing",
    "running",
    "compiling",
    "precompiling",
    "tuning",
    "waiting",
    "done",
    "died",
    "unknown",
]
"""starting: runs, and nothing of torch was seen; importing: loads torch; running: compiles nothing;
compiling: torch compiles a graph; precompiling, tuning: choices of an op are compiled, timed;
waiting: another rank of the job is to choose; done: ended by itself; died: ended without saying so;
unknown: that it lives cannot be seen from here. Of another host, whose program may be a later one,
it may be any other word: something that a process does."""

LIVE: frozenset[State] = frozenset(
    ("starting", "importing", "running", "compiling", "precompiling", "tuning", "waiting")
)
_OVER = frozenset(typing.get_args(State)) - LIVE


@dataclass(frozen=True, slots=True)
class Activity:
    """`told` is the last that was heard; `state` is the same, unless the process has ended or may
    have. `since` and `ended` are Unix times. Of `op`, which is tuned, `done` of `total` choices are
    compiled or timed. `rank` is the one that is waited for, to choose for `op`. `status` is the
    exit code, or minus the signal, where somebody saw it.
    """

    state: Word
    told: Word
    since: float | None = None
    op: str = ""
    done: int = 0
    total: int = 0
    ended: float | None = None
    status: int | None = None
    rank: int | None = None

    @property
    def lives(self) -> bool:
        """Whether the process runs, as far as was seen."""
        return self.state not in _OVER
