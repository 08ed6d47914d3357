"""How the work of a function grows with its input: a ratio within one run, which no load changes by
the factor that separates a linear function from a quadratic one."""

from __future__ import annotations

import time
from collections.abc import Callable

TIMES = 16


def is_linear(work: Callable[[int], object], size: int) -> bool:
    """Return whether 16 times the size takes far less than 256 times the CPU time, as the square
    would."""
    return _seconds(work, size * TIMES) < _seconds(work, size) * TIMES * 4


def _seconds(work: Callable[[int], object], size: int) -> float:
    """CPU time of this thread, the least of three."""
    taken = list[float]()
    for _ in range(3):
        begin = time.thread_time()
        work(size)
        taken.append(time.thread_time() - begin)
    return min(taken)
