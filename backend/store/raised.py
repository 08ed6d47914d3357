"""Times raised out of reach: how a pin lets its choice win without breaking another program.

Inductor takes the smallest number among the choices that a program offers, and a program that is
left with nothing but `Infinity` fails to compile. So the rivals of a pinned choice keep their
order: each number is multiplied by 2^40. That is exact in binary floating point, so it can be
undone from the number alone, and no kernel takes the three hours from which on a number counts as
raised.
"""

from __future__ import annotations

import math

FACTOR = 2.0**40
LEAST = 1e7
"""Milliseconds. A kernel of 10 ns, raised, is above; no real time comes near."""
_HIGHEST = 2.0**1000
"""What stands for a number that has no order (NaN) or no place left above it."""

INFINITY = "Infinity"


def is_raised(ms: float) -> bool:
    """Whether a number of a cache file was raised by a pin. A failed choice's infinity was not."""
    return LEAST <= ms < math.inf


def raise_ms(ms: float) -> float:
    """The number that stands for `ms` while a rival is pinned; failed and raised ones stay."""
    if ms == math.inf or is_raised(ms):
        return ms
    if math.isnan(ms):
        return _HIGHEST
    return min(max(ms * FACTOR, LEAST), _HIGHEST)


def measured_ms(ms: float) -> float:
    """The measured milliseconds that a number of a cache file stands for."""
    return ms / FACTOR if is_raised(ms) else ms


def raised(text: str) -> str:
    """`raise_ms` of a number's text."""
    ms = float(text)
    high = raise_ms(ms)
    return text if high == ms else repr(high)


def measured(text: str) -> str:
    """The text that PyTorch wrote, of a number that was raised; any other as it is."""
    ms = float(text)
    return repr(ms / FACTOR) if is_raised(ms) else text
