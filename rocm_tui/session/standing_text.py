"""How a winner stands against its rivals, in the words of screen and command line.

A tie is never told as a lead, and a measured verdict counts more than single numbers.
"""

from __future__ import annotations

from backend.model.choice import Choice
from backend.model.measurement import MeasuredChoice, Verdict
from backend.model.tuning import Tuning
from rocm_tui import format as fmt
from rocm_tui.session import stats
from rocm_tui.session.stats import Standing

_AGAINST_BEST: dict[Verdict, Standing] = {
    "faster": "clear",
    "tied": "tied",
    "slower": "slower",
    "unclear": "unclear",
}
_OF_BEST: dict[Verdict, Standing] = {**_AGAINST_BEST, "slower": "clear"}
"""How the best stands against the choice that has this verdict."""


def lead_text(tuning: Tuning) -> str:
    """How far the second lies behind: `1.8 %`, `tie`, `unclear`, `beaten` (it is faster), `–`."""
    found = stats.standing(tuning)
    if found == "clear":
        return fmt.percent(stats.lead(tuning))
    words = {"tied": "tie", "unclear": "unclear", "slower": "beaten"}
    return fmt.NONE if found is None else words[found]


def versus(tuning: Tuning, one: Choice, rival: Choice) -> Standing | None:
    """How `one` stands against `rival`, as measured where both were, else of single numbers.

    `clear`: it is faster; `slower`: the rival is; None where a time is not known.
    """
    told, other = stats.measured(tuning, one), stats.measured(tuning, rival)
    if told is not None and other is not None and tuning.measured is not None:
        return _judged(tuning.measured.choices[0], told, other)
    if one.ms is None or not rival.ms or one.failed or rival.failed:
        return None
    if stats.near(tuning, one, rival):
        return "tied"
    return "clear" if one.ms < rival.ms else "slower"


def _judged(best: MeasuredChoice, one: MeasuredChoice, rival: MeasuredChoice) -> Standing:
    """Verdicts are told against the best; two others are told apart by their intervals."""
    if rival.hash == best.hash:
        return _AGAINST_BEST[one.verdict]
    if one.hash == best.hash:
        return _OF_BEST[rival.verdict]
    if one.ratio_high < rival.ratio_low:
        return "clear"
    if rival.ratio_high < one.ratio_low:
        return "slower"
    low, high = sorted((one.ratio, rival.ratio))
    return "tied" if 0 < high <= low * (1 + stats.TIE_BAND) else "unclear"
