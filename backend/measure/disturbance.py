"""What disturbed a measurement: drift, throttling, a busy neighbour, said in sentences.

The evidence is one kernel that is the same in every round, and what the machine itself tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import median

from backend.measure.change import WORTH, Change, find_change
from backend.measure.robust import quartiles

SLOW = 1.5
"""A round that took this many times as long as a quiet one was disturbed."""
SLOW_SHARE, SLOW_LEAST = 0.05, 3
"""Share and number of such rounds from which on they are told."""
CPU_SHARE = 0.9
"""A measuring thread that computes has the CPU for more of the time than this, if left alone."""
SWITCHES = 20.0
"""Involuntary context switches a second that show another process on the same core."""


@dataclass(frozen=True, slots=True)
class Signs:
    """What the machine tells of the time in which was measured; None is not known.

    `seconds` is wall-clock time and `cpu_seconds` the CPU time of the measuring thread in it (leave
    it out where that thread sleeps until a GPU is done). `load` is the load average, own work
    included, on `cores` cores. `switches` counts involuntary context switches. `clocks` are the
    device's clock in MHz, in the order of time.
    """

    seconds: float | None = None
    cpu_seconds: float | None = None
    load: float | None = None
    cores: int | None = None
    switches: int | None = None
    clocks: tuple[float, ...] = ()


def disturbances(reference: Sequence[float], signs: Signs | None = None) -> tuple[str, ...]:
    """Sentences on what disturbed a measurement, none if nothing did.

    `reference` are the milliseconds of the reference kernel, one a round, all above 0.
    """
    signs = signs or Signs()
    change = find_change([log(ms) for ms in reference])
    sentences = [_change_sentence(change)] if change else []
    if clock := _clock_sentence(signs.clocks):
        sentences.append(clock)
    after = change.after if change else None
    neighbour = _neighbour_sentence(slow_share(reference, after), signs)
    return tuple([*sentences, neighbour] if neighbour else sentences)


def slow_share(reference: Sequence[float], after: int | None = None) -> float:
    """Share of disturbed rounds; 0 where they are too few to tell.

    A quiet round is the lower quartile, before and after round `after` by itself.
    """
    parts = [reference] if after is None else [reference[:after], reference[after:]]
    slow = sum(_slow_rounds(part) for part in parts if part)
    share = slow / max(1, len(reference))
    return share if slow >= SLOW_LEAST and share >= SLOW_SHARE else 0.0


def _slow_rounds(times: Sequence[float]) -> int:
    quiet, _ = quartiles(times)
    return sum(ms > SLOW * quiet for ms in times)


def _change_sentence(change: Change) -> str:
    percent = 100 * abs(exp(change.size) - 1)
    way = "slower" if change.size > 0 else "faster"
    told = f"the reference kernel became {percent:.1f} % {way}"
    if change.after is None:
        return f"drift: {told} from start to end"
    cause = "throttling or a new neighbour" if change.size > 0 else "speed-up"
    return f"{cause}: {told} after round {change.after} and stayed so"


def _clock_sentence(clocks: Sequence[float]) -> str:
    """How the clock changed from the first to the last quarter of the time."""
    quarter = len(clocks) // 4
    if not quarter:
        return ""
    first, last = median(clocks[:quarter]), median(clocks[-quarter:])
    if first <= 0 or abs(last / first - 1) < WORTH:
        return ""
    verb = "fell" if last < first else "rose"
    return f"clock: the device's clock {verb} from {first:.0f} to {last:.0f} MHz"


def _neighbour_sentence(slow: float, signs: Signs) -> str:
    """Slow rounds or a lack of CPU time accuse; load and switches only bear witness."""
    accused, witnesses = [], []
    if slow:
        accused.append(f"{100 * slow:.0f} % of the rounds took more than {SLOW:g} x a quiet round")
    if signs.load is not None and signs.cores and signs.load > signs.cores + 1:
        witnesses.append(f"the load was {signs.load:.1f} on {signs.cores} cores")
    if signs.seconds:
        share = 1.0 if signs.cpu_seconds is None else signs.cpu_seconds / signs.seconds
        if share < CPU_SHARE:
            accused.append(f"the measuring thread had the CPU for {100 * share:.0f} % of the time")
        switches = (signs.switches or 0) / signs.seconds
        if switches > SWITCHES:
            witnesses.append(f"it was put aside {switches:.0f} times a second")
    return f"busy neighbour: {', '.join(accused + witnesses)}" if accused else ""
