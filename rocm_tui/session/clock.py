"""What the clock could not tell of the times of one tuning.

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

from collections import Counter
from collections.abc import Sequence
from math import comb, prod

from backend.model.origin import device_kind
from backend.model.tuning import Tuning
from rocm_tui.session.merge import PLACES

TICKS = (1.024e-3, 1e-3)
"""Milliseconds."""
ROUNDED = 10.0**-PLACES
"""The unit of the last decimal of a time in an AUTOTUNE row."""
APART = 1.5
"""Ticks between one, which says nothing, and two, which do, with room for rounding."""
_TICKS_APART = APART * max(TICKS)
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


def indistinct(tuning: Tuning, left: float, right: float) -> bool:
    """Whether the clock cannot tell two of a tuning's times apart."""
    gap = abs(left - right)
    if gap >= LONGEST_WAIT or (gap >= _TICKS_APART and min(left, right) < SLICE / 2):
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
    """A quarter may lie between ticks, of the times or of those that differ: the median of an even
    number of times does. The more choices share a time, the less it is by chance."""
    distinct = {ms for ms in times if tick / 2 < ms < LONGEST}
    fits = [ms for ms in distinct if abs(ms - round(ms / tick) * tick) <= _error(ms) * 1.01]
    if len(fits) < 2:
        return False
    if len(fits) * 4 < len(distinct) * 3:
        counts = Counter(times)
        if sum(counts[ms] for ms in fits) * 4 < len(times) * 3:
            return False
    chance = len(TICKS) * (len(distinct) / len(times)) ** 2
    chance *= prod(min(1.0, 2 * _error(ms) / tick) for ms in fits)
    return comb(len(distinct), len(fits)) * chance <= _CHANCE


def _error(ms: float) -> float:
    """How far a time may lie from the tick that it is."""
    return _FLOAT * ms + (ROUNDED / 2 if round(ms, PLACES) == ms else 0.0)


def waited(times: Sequence[float]) -> bool:
    """Whether all are whole milliseconds, as times of calls that waited for a neighbour are."""
    return all(SLICE / 2 < ms < LONGEST and abs(ms - round(ms)) <= NEAR_SLICE for ms in times)
