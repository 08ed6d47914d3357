"""When to look at the samples, and how much error each look may spend.

Who looks again and again until something shows finds it on twins too (Armitage, McPherson & Rowe
1969; Pocock 1977 for the cure). Here the looks are fixed before the first sample, and the error is
spent in proportion to the rounds behind each (Lan & DeMets 1983; the power family of Kim & DeMets
1987 with exponent 1). Each look stands by its own share, so that by Bonferroni's inequality the sum
holds however the looks depend on each other.
"""

from __future__ import annotations

LOOKS = 6
FIRST = 16
"""Rounds before the first look."""
CONFIDENCE = 0.95
"""How sure all ratios of all looks of one measurement are together."""
SPENT = 0.7
"""Share of the error that the looks spend; the rest covers what the intervals only approximate."""


def schedule(looks: int = LOOKS, first: int = FIRST) -> tuple[int, ...]:
    """Numbers of rounds after which to look: each twice the one before. ValueError below 1."""
    if looks < 1 or first < 1:
        raise ValueError(f"no schedule of {looks} looks that begins at round {first}")
    return tuple(first << look for look in range(looks))


def error_of(look: int, looks: int = LOOKS) -> float:
    """The error that look `look` of `looks`, from 1 on, may spend. ValueError for no such look."""
    if not 1 <= look <= looks:
        raise ValueError(f"look {look} is not one of {looks}")
    rounds = schedule(looks)
    before = rounds[look - 2] if look > 1 else 0
    return SPENT * (1 - CONFIDENCE) * (rounds[look - 1] - before) / rounds[-1]
