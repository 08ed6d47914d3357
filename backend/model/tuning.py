"""One autotuning: its problem, its choices, their times.

The words are Inductor's own: an *op* with an *inputs key* and a *precision* is tuned by timing its
*choices*; a choice is known by its *hash*. Times are milliseconds unless a name says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Literal

from backend.model.choice import Choice, Measurement
from backend.model.problem import Problem

State = Literal["running", "done", "cut"]
"""A tuning is running, done, or cut off (its source ended in the middle of it)."""

Selection = Literal["timing", "cache", "pin", "only", "deterministic"]
"""Why a choice was selected: fastest now, fastest in the cache, pinned, no rival, deterministic."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """Wall-clock seconds that one tuning took, by phase."""

    benchmark: float | None = None
    precompile: float | None = None
    prescreen: float | None = None


@dataclass(frozen=True, slots=True)
class Tuning(Problem):
    """One autotuning of a problem, as one source or several joined tell it.

    `num_choices` is what the source says was tried; `choices` may hold fewer (only the best ten
    are printed) and is sorted: fastest first, then not yet timed, then failed.
    `timed` and `compiled` count the progress of a running one. `selected` is a choice hash.
    `rank` is the process rank of a distributed job; `when` is Unix time in seconds. `measured` is
    the latest repeated measurement of the same key.
    """

    choices: tuple[Choice, ...] = ()
    num_choices: int | None = None
    seconds: Seconds = field(default_factory=Seconds)
    state: State = "done"
    compiled: int = 0
    timed: int = 0
    selected: str | None = None
    selected_by: Selection | None = None
    rank: int | None = None
    session: str | None = None
    when: float | None = None
    sources: tuple[str, ...] = ()
    measured: Measurement | None = None

    @property
    def problem(self) -> Problem:
        """What was tuned, without what came of it."""
        return Problem(**{field.name: getattr(self, field.name) for field in fields(Problem)})

    @property
    def borrowed(self) -> bool:
        """Whether its choice was taken from a cache or a pin, and nothing tells a time of it."""
        reused = self.session is not None and self.selected_by in ("cache", "pin")
        return reused and all(choice.ms is None for choice in self.choices)
