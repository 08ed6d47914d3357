"""A measured time in units of what was measured beside it.

A machine is now slower, now faster: its clocks, its neighbours. What was run in the same rounds
felt that too, so that it is a unit in which another day's time can be told. docs/comparing.md says
how well that works.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Literal

from backend.records import MeasuredChoice, Measurement
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
    if not _one_system([*then, *now]):
        return ()
    found = []
    others = _others({a, b}, [*then, *now])
    if all(_reference(one) is not None for one in [*then, *now]):
        found.append(_told("reference", a, b, then, now, ()))
    if others:
        found.append(_told("others", a, b, then, now, others))
    return tuple(found)


def _told(
    unit: Unit,
    a: str,
    b: str,
    then: Sequence[Measurement],
    now: Sequence[Measurement],
    others: Collection[str],
) -> InUnit:
    def of(one: Measurement) -> float:
        return _reference(one) or 1.0 if unit == "reference" else _mean(one, others)

    def least(hash: str, measurements: Sequence[Measurement]) -> float:
        return min(_ms(one, hash) / of(one) for one in measurements)

    moved = min(map(of, now)) / min(map(of, then))
    return InUnit(unit, least(b, now) / least(a, then), moved)


def _one_system(measurements: Sequence[Measurement]) -> bool:
    return len({one.system_hash for one in measurements if one.system_hash}) < 2


def _others(known: Collection[str], measurements: Sequence[Measurement]) -> frozenset[str]:
    """The choices besides that every measurement has."""
    timed = [{one.hash for one in each.choices if usable(one)} for each in measurements]
    return frozenset(set.intersection(*timed)) - set(known)


def _reference(one: Measurement) -> float | None:
    ms = one.reference_ms or 0.0
    return ms if SHORTEST < ms < LONGEST else None


def _mean(one: Measurement, hashes: Collection[str]) -> float:
    return geometric_mean(_ms(one, hash) for hash in hashes)


def _ms(one: Measurement, hash: str) -> float:
    choice = one.of(hash)
    if choice is None:
        raise KeyError(hash)
    return choice.ms


def usable(choice: MeasuredChoice) -> bool:
    """Whether its figures are times at all: a log may say anything."""
    times = (choice.low, choice.ms, choice.high, choice.ratio_low, choice.ratio, choice.ratio_high)
    return all(SHORTEST < time < LONGEST for time in times)
