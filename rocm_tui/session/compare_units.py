"""A measured time in units of what was measured beside it.

A machine is now slower, now faster: its clocks, its neighbours. What was run in the same rounds
felt that too, so that it is a unit in which another day's time can be told. docs/comparing.md says
how well that works.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Literal

from backend.model.measurement import MeasuredChoice, Measurement
from rocm_tui.session.compare_choices import LONGEST, SHORTEST

Unit = Literal["clock", "reference", "others"]
"""Milliseconds, the reference kernel, or the geometric mean of the other choices."""


@dataclass(frozen=True, slots=True)
class InUnit:
    """B's time over A's, both in a unit, and what became of that unit: its B over its A."""

    unit: Unit
    ratio: float
    moved: float = 1.0


def in_units(
    a: str, b: str, then: Sequence[Measurement], now: Sequence[Measurement]
) -> tuple[InUnit, ...]:
    """What choice `b` takes `now` over what `a` took `then`, in each unit that both sides have.

    Of several measurements the least disturbed one counts, which is another one for each unit.
    Empty where there is no unit but milliseconds: other systems are told apart by those.
    """
    every = [*then, *now]
    if not _one_system(every):
        return ()
    units: dict[Unit, Callable[[Measurement], float]] = {}
    if all(SHORTEST < _reference(one) < LONGEST for one in every):
        units["reference"] = _reference
    if others := _others({a, b}, every):
        units["others"] = lambda one: geometric_mean(_ms(one, hash) for hash in others)

    def least(hash: str, side: Sequence[Measurement], of: Callable[[Measurement], float]) -> float:
        return min(_ms(one, hash) / of(one) for one in side)

    return tuple(
        InUnit(unit, least(b, now, of) / least(a, then, of), min(map(of, now)) / min(map(of, then)))
        for unit, of in units.items()
    )


def _one_system(measurements: Sequence[Measurement]) -> bool:
    return len({one.system_hash for one in measurements if one.system_hash}) < 2


def _others(known: Collection[str], measurements: Sequence[Measurement]) -> frozenset[str]:
    """The choices besides that every measurement has."""
    timed = [{one.hash for one in each.choices if usable(one)} for each in measurements]
    return frozenset(set.intersection(*timed)) - set(known)


def _reference(one: Measurement) -> float:
    return one.reference_ms or 0.0


def _ms(one: Measurement, hash: str) -> float:
    choice = one.of(hash)
    if choice is None:
        raise KeyError(hash)
    return choice.ms


def usable(choice: MeasuredChoice) -> bool:
    """Whether its figures are times at all: a log may say anything."""
    times = (choice.low, choice.ms, choice.high, choice.ratio_low, choice.ratio, choice.ratio_high)
    return all(SHORTEST < time < LONGEST for time in times)
