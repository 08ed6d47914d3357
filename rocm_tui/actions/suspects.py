"""Which tunings have times that are not to be believed, and can be measured, in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from backend.counted import counted
from backend.model.choice import Choice
from backend.model.ops import OPS
from rocm_tui.actions.measure import choices_to_measure, measure_job
from rocm_tui.errors import RocmTuiError
from rocm_tui.jobs.tune import problem_of
from rocm_tui.session import stats
from rocm_tui.session.model import Row

AROUND = 15.0
"""Seconds that the measurement of one tuning takes, the start of a worker with it, seen on CPUs and
GPUs: 10 to 20. Its budget may be longer."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A tuning and its choices that are to be measured."""

    row: Row
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class Suspects:
    """What is to be measured, that which matters most first. Of tunings with one key one is
    measured, which tells of all. `others` cannot be measured here."""

    suspects: tuple[Suspect, ...]
    others: int = 0

    @property
    def seconds(self) -> float:
        """About how long it takes."""
        return AROUND * len(self.suspects)

    @property
    def missing(self) -> str:
        """A sentence about those that cannot be measured; empty if there are none."""
        if not self.others:
            return ""
        suspects = counted(self.others, "suspect is", "suspects are")
        return f"{suspects} known from logs alone, or of an op that cannot be made again."


def time_of(row: Row) -> float:
    """The time of the winner, which stands for how much of a program it is."""
    return stats.time_ms(row.tuning, stats.winner(row.tuning)) or 0.0


def find_suspects(rows: Iterable[Row], share: Callable[[Row], float] = time_of) -> Suspects:
    """The suspects among `rows`, those with the largest `share` first."""
    suspects: dict[object, Suspect] = {}
    others = 0
    for row in sorted((row for row in rows if row.suspect), key=share, reverse=True):
        try:
            choices = _choices(row)
        except RocmTuiError:
            others += 1
        else:
            suspects.setdefault((row.tuning.key, row.tuning.device), Suspect(row, choices))
    return Suspects(tuple(suspects.values()), others)


def _choices(row: Row) -> tuple[Choice, ...]:
    """Raises RocmTuiError for what cannot be measured."""
    row_of_op = OPS.get(row.tuning.op)
    told = problem_of(row.tuning).told
    if not told and (row_of_op is None or not row_of_op.buildable):
        raise RocmTuiError(f"{row.tuning.op} cannot be made again")
    tuning, near = row.tuning, choices_to_measure(row)
    timed = [choice for choice in stats.ranked(tuning) if choice.hash is not None]
    blurred = [choice for choice in timed[:MOST] if stats.near(tuning, timed[0], choice)]
    choices = (*near, *(choice for choice in blurred if choice not in near))
    measure_job(tuning, choices)
    return choices


MOST = 8
"""Of choices that whole ticks cannot tell from the best, so many are measured."""
