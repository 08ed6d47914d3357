"""Times that were taken once and that no kernel can have had, or hardly.

Three kinds are known. A call on a busy CPU waits for its neighbour's time slice, so that its time
is a multiple of 4 ms, a tick of Linux's scheduler at its usual 250 Hz (8.0 and 16.0 ms in real
logs, of kernels that took 0.8 ms when measured). A kernel cannot be faster than its device
computes, nor, if its operands come from memory, than that gives them; on a CPU the operands of one
call are in the caches after the call before, so that only the arithmetic counts. And where the
next choice or ATen takes 50 times as long, one of both times is wrong more often than not: 578
times became 1.9 times when measured.

A measurement settles it, also one in which the choice could not be run. Limits: one time of a
hundred is a multiple of 4 ms by chance, and a CPU has no published peak.
"""

from __future__ import annotations

from collections.abc import Sequence

from backend.model.choice import Choice
from backend.model.ops import flops, traffic
from backend.model.origin import device_kind
from backend.model.tuning import Tuning
from rocm_tui.session import clock, stats
from rocm_tui.session import numbers as fmt
from rocm_tui.session.peaks import Peak, fastest, math_kind

SCHEDULER_TICK = 4.0
"""Milliseconds."""
OFF = 50.0
"""How many times as long as the fastest a rival takes that is not believed."""
ROOM = 1.1
"""How much faster than the published peak a time may be: clocks are boosted, sizes rounded."""


def suspicion(tuning: Tuning, peak: Peak | None = None) -> str | None:
    """Why the times that decide a tuning are not to be believed, in a sentence; else None.

    Those are the winner's, its nearest rival's and ATen's, as far as they were taken once. `peak`
    is what the device can do at best, where that is known.
    """
    timed = stats.ranked(tuning) if tuning.state != "running" else ()
    if not timed:
        return None
    best, slowest = timed[0].ms or 0.0, timed[-1].ms or 0.0
    on_cpu = slowest > SCHEDULER_TICK / 2 and device_kind(tuning) == "cpu"  # else none waited
    impossible = _too_fast(tuning, best, peak) if peak is not None or best <= 0 else None
    if impossible or on_cpu or slowest >= OFF * best:
        deciding = _deciding(tuning, timed)
        if impossible and not _settled(tuning, timed[0]):
            return impossible
        return (_ticks(tuning, deciding) if on_cpu else None) or _off(tuning, deciding)
    return None


def _deciding(tuning: Tuning, timed: Sequence[Choice]) -> list[Choice]:
    """The winner, its nearest rival, and ATen's best, each once."""
    choices = list(timed[:2])
    library = stats.aten(tuning)
    return choices if library is None or library in choices else [*choices, library]


def _settled(tuning: Tuning, choice: Choice) -> bool:
    if tuning.measured is None or choice.hash is None:
        return False
    failed = any(known.hash == choice.hash for known in tuning.measured.failed)
    return failed or tuning.measured.of(choice.hash) is not None


def _too_fast(tuning: Tuning, best: float, peak: Peak | None) -> str | None:
    if best <= 0:
        return "its time is not above 0"
    if peak is None:
        return None
    for least, what in (
        (_computing_ms(tuning, peak), "its arithmetic takes there at least"),
        (_moving_ms(tuning, peak), "memory takes to give its operands at least"),
    ):
        if least is not None and best * ROOM < least:
            name = peak.name.removesuffix(" (one die)")
            return (
                f"{fmt.duration(best)} is beyond the roofline of {name}: {what} "
                f"{fmt.duration(least)}"
            )
    return None


def _computing_ms(tuning: Tuning, peak: Peak) -> float | None:
    work, kind = flops(tuning), math_kind(tuning)
    if not work or kind is None:
        return None
    flat = peak.tflops.get(kind if kind in peak.tflops or kind != "tf32" else "fp32")
    return work / flat / 1e9 if flat else None


def _moving_ms(tuning: Tuning, peak: Peak) -> float | None:
    """None on a CPU, and where nobody knows how fast a cache gives them."""
    moved = traffic(tuning) if device_kind(tuning) == "gpu" else None
    gbs = fastest(peak, moved) if moved else None
    return moved / gbs / 1e6 if moved and gbs else None


def _ticks(tuning: Tuning, deciding: Sequence[Choice]) -> str | None:
    for choice in deciding:
        ms = choice.ms
        if ms is not None and is_wait(ms) and not _settled(tuning, choice):
            whose = "" if choice is deciding[0] else f" of {choice.label}"
            text = f"{fmt.duration(ms)}{whose} is a multiple of {SCHEDULER_TICK:.0f} ms"
            return f"{text}, as of a call that waits on a busy CPU"
    return None


def is_wait(ms: float) -> bool:
    """Whether a time is a multiple of the scheduler's tick."""
    if not SCHEDULER_TICK / 2 < ms < clock.LONGEST:
        return False
    return abs(ms - round(ms / SCHEDULER_TICK) * SCHEDULER_TICK) <= clock.NEAR_SLICE


def _off(tuning: Tuning, deciding: Sequence[Choice]) -> str | None:
    best, *rivals = deciding
    for rival in rivals:
        if not best.ms or best.ms < 0 or rival.ms is None or rival.ms < OFF * best.ms:
            continue
        if not (_settled(tuning, best) and _settled(tuning, rival)):
            return f"{rival.label} took {fmt.factor(rival.ms / best.ms)} as long, which is rare"
    return None
