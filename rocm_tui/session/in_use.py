"""What a row is about: the choice that every later program takes, its time, how it stands.

That is the pinned one while its pin holds, else the one with the smallest time. Pure functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backend.model.choice import Choice
from backend.model.inductor_kernel import is_kernel
from backend.model.tuning import Tuning
from rocm_tui.session import stats
from rocm_tui.session.model import Row

if TYPE_CHECKING:  # types only: the first rows are shown before what needs them is loaded
    from backend.model.pin import PinState

_HOLDS: frozenset[PinState] = frozenset(("active", "unproven", "drifted"))
"""The states of a pin whose choice is taken, or is taken again as soon as it is applied."""


def pinned_choice(row: Row) -> tuple[int, Choice] | None:
    """The choice that the row's pin asks for and its place, counted from 1; None if it was not
    offered or is unknown."""
    if row.pin is None:
        return None
    pinned = row.pin.pin.hashes
    for place, choice in enumerate(row.tuning.choices, start=1):
        if choice.hash in pinned and choice.offered:
            return place, choice
    return None


_LAST: list[tuple[Row | None, Choice | None]] = [(None, None)]
"""The row that was asked about last: who draws one asks for each of its cells."""


def in_use(row: Row) -> Choice | None:
    """The pinned choice, if its pin holds and it has not failed, else the fastest, of a kernel what
    its file names; None while it is not known whether its pin holds."""
    last, choice = _LAST[0]
    if last is not row:
        choice = _in_use(row)
        _LAST[0] = row, choice
    return choice


def _in_use(row: Row) -> Choice | None:
    if row.awaits_pin:
        return None
    if row.pin is not None and row.pin.state in _HOLDS:
        pinned = pinned_choice(row)
        if pinned is not None and not pinned[1].failed:
            return pinned[1]
    return taken(row.tuning)


def taken(tuning: Tuning) -> Choice | None:
    """What a program takes that knows of no pin: the winner, of a kernel what its file names, of
    an entry of another tuner's table what that has. Where it has several without times, as a
    perf-db of MIOpen, it does not tell which."""
    if tuning.entry is not None:
        told = len(tuning.choices) == 1 or any(c.ms is not None for c in tuning.choices)
        return tuning.choices[0] if told else None
    if is_kernel(tuning.op) and tuning.selected is not None:
        named = (c for c in tuning.choices if c.hash == tuning.selected and not c.failed)
        return next(named, stats.winner(tuning))
    return stats.winner(tuning)


def time_ms(row: Row) -> float | None:
    """Milliseconds of one call of what is in use."""
    return None if row.awaits_pin else stats.time_ms(row.tuning, in_use(row))


def gain(row: Row) -> float | None:
    """ATen's time over that of what is in use."""
    return None if row.awaits_pin else stats.gain(row.tuning, in_use(row))


def lead(row: Row) -> float | None:
    """How far the nearest rival lies behind what is in use; negative where one is faster."""
    return None if row.awaits_pin else stats.lead(row.tuning, in_use(row))
