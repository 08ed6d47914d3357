"""How far single numbers of two runs lie apart where nothing changed.

docs/comparing.md says what these figures are from.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from statistics import median

from rocm_tui.session.compare_types import Noise
from rocm_tui.session.stats import TIE_BAND

DEFAULT_BAND = 0.10
"""Relative difference up to which two single numbers of one kernel are taken as equal."""
ENOUGH_CHOICES = 8
ENOUGH_PROBLEMS = 3
"""So many choices, in so many problems, must be timed on both sides to derive a band or a shift."""
SIGMAS = 3.0
MAD_TO_SIGMA = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""
ROUNDING = 0.5e-4
"""Milliseconds by which a time that an AUTOTUNE row rounds may be off."""


def noise(ratios: Sequence[Sequence[float]], *, same_device: bool) -> Noise:
    """The band and the shift of a comparison, from log ratios of equal choices, by problem.

    Their median is the shift, if it is clear: outside the tie band and more than twice their robust
    standard deviation, which is 1.4826 times the median absolute deviation. The band is three such
    deviations, and at least `DEFAULT_BAND`. Different devices have no shift to be freed from.
    """
    told = [list(each) for each in ratios if each]
    flat = [ratio for each in told for ratio in each]
    if len(flat) < ENOUGH_CHOICES or len(told) < ENOUGH_PROBLEMS:
        return Noise(DEFAULT_BAND)
    centre = median(median(each) for each in told)
    sigma = MAD_TO_SIGMA * median(abs(ratio - centre) for ratio in flat)
    clear = same_device and abs(centre) > log(1 + TIE_BAND) and abs(centre) > 2 * sigma
    band = max(DEFAULT_BAND, exp(SIGMAS * sigma) - 1)
    return Noise(band, len(flat), len(told), exp(centre) if clear else 1.0)


def rounding(ms: float) -> float:
    """The relative error of a time that is given with four decimals; 0 for one in full."""
    return ROUNDING / ms if ms and round(ms, 4) == ms else 0.0
