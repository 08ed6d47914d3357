"""What the clock of a tuning could not tell: ticks, rounding, and a CPU's scheduler.

Times that are whole ticks are known to a tick only: two that are one tick apart may be of equally
fast kernels, two that are two ticks apart are not. The ticks known here are 1.024 µs, in which
events of several NVIDIA GPUs come (in public logs of an A10G and an L20), and 1 µs, the update
interval of a GPU's global timer. AUTOTUNE rows round to 0.1 µs. On a busy CPU a call waits for its
neighbour's time slice, so that its time is whole milliseconds (8, 10, 12, 16 ms in real logs) and
says nothing of the kernel.

Limits: a tick is seen from the times of one tuning alone, so it takes three different ones, or two
in full, or two that many choices share. Calls that wait now and then, beside others that do not,
are not recognised.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

from backend.records import Tuning
from rocm_tui.session.providers import device_kind

TICKS = (1.024e-3, 1e-3)
"""Milliseconds."""
PLACES = 4
ROUNDED = 10.0**-PLACES
"""Decimals of a time in an AUTOTUNE row, and the last one's unit."""
APART = 1.5
"""Ticks between one, which says nothing, and two, which do, with room for rounding."""
SLICE = 1.0
NEAR_SLICE = 0.02
LONGEST_WAIT = 32.0
"""Milliseconds: what a scheduler counts in, how near to it a time lies that waited, and what two
such times may differ by without a cause in the kernels. Both cases are from logs of busy CPUs."""
LONGEST = 1e4
"""Milliseconds beyond which no tick is looked for: a log may say anything."""
_CHANCE = 0.01
"""How often times that have no tick may look as if they had."""
_FLOAT = 2e-7
"""Relative error of a single-precision number, in which events are told."""


def indistinct(tuning: Tuning, one: float, two: float) -> bool:
    """Whether the clock cannot tell two of a tuning's times apart."""
    gap = abs(one - two)
    if gap >= LONGEST_WAIT or (gap >= APART * max(TICKS) and min(one, two) < SLICE / 2):
        return False  # neither ticks nor waits: the usual case
    return gap < blur(tuning)


def blur(tuning: Tuning) -> float:
    """Milliseconds below which a difference of two times says nothing; 0 for an exact clock."""
    timed = (c.ms for c in tuning.choices if c.ms is not None and not c.failed and c.offered)
    times = [ms for ms in timed if 0 < ms < LONGEST]
    if len(times) > 1 and device_kind(tuning) == "cpu" and waited(times):
        return LONGEST_WAIT
    rounded = ROUNDED if times and all(round(ms, PLACES) == ms for ms in times) else 0.0
    return APART * max(tick_of(times), rounded)


def tick_of(times: Sequence[float]) -> float:
    """The tick in which times come, in milliseconds; 0 where none is seen."""
    return next((tick for tick in TICKS if _come_in(times, tick)), 0.0)


def _come_in(times: Sequence[float], tick: float) -> bool:
    """A quarter may lie between ticks: the median of an even number of times does."""
    distinct = {ms for ms in times if tick / 2 < ms < LONGEST}
    fits, chance = 0, len(TICKS) * len(distinct) / max(1, len(times))
    for ms in distinct:
        error = _FLOAT * ms + (ROUNDED / 2 if round(ms, PLACES) == ms else 0.0)
        if abs(ms - round(ms / tick) * tick) <= error * 1.01:
            fits += 1
            chance *= min(1.0, 2 * error / tick)
    enough = fits > 1 and fits * 4 >= len(distinct) * 3
    return enough and comb(len(distinct), fits) * chance <= _CHANCE


def waited(times: Sequence[float]) -> bool:
    """Whether all are whole milliseconds, as times of calls that waited for a neighbour are."""
    return all(SLICE / 2 < ms < LONGEST and abs(ms - round(ms)) <= NEAR_SLICE for ms in times)
