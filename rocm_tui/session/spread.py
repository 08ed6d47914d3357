"""How far cold tunings of one program by stock PyTorch differ: each ran in a new process with empty
caches, so PyTorch compiled and timed everything anew. Pure functions; times are milliseconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from backend.model.problem import Problem, TuningKey
from rocm_tui.session.in_use import in_use
from rocm_tui.session.model import Row

LEAST = 3
"""Two cold tunings may be alike by chance."""


@dataclass(frozen=True, slots=True)
class ColdTuning:
    """One of them: the median of its `steps`, the seconds of the whole run, and what it tuned."""

    ms: float
    steps: int
    seconds: float
    rows: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True)
class DifferingWinner:
    """A problem with several winners: their labels, each with the number of cold tunings."""

    problem: Problem
    winners: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """The cold tunings of a program; `trouble` has sentences on what makes them doubtful."""

    command: tuple[str, ...]
    tunings: tuple[ColdTuning, ...]
    trouble: tuple[str, ...] = ()

    @property
    def times(self) -> tuple[float, ...]:
        return tuple(tuning.ms for tuning in self.tunings)

    @property
    def ms(self) -> float:
        """The median."""
        return median(self.times)

    @property
    def ratio(self) -> float:
        return ratio_of(self.times)

    @property
    def differing(self) -> tuple[DifferingWinner, ...]:
        """The problems that not all cold tunings gave the same winner."""
        labels: dict[TuningKey, dict[str, str]] = {}
        counts: dict[TuningKey, Counter[str]] = {}
        problems: dict[TuningKey, Problem] = {}
        for row in (row for tuning in self.tunings for row in tuning.rows):
            key, choice = row.tuning.key, in_use(row)
            if key is not None and choice is not None and choice.hash:
                problems[key] = row.tuning.problem
                counts.setdefault(key, Counter())[choice.hash] += 1
                labels.setdefault(key, {})[choice.hash] = choice.label
        return tuple(
            DifferingWinner(
                problems[key],
                tuple((labels[key][hash], count) for hash, count in winners.most_common()),
            )
            for key, winners in counts.items()
            if len(winners) > 1
        )


def ratio_of(times: Sequence[float]) -> float:
    """Return the longest time over the shortest: 1.12 means that they differ by up to 12 %."""
    return max(times) / min(times)
