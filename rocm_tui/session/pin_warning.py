"""What a person should hear before a slower choice is pinned; there may be reasons for it."""

from __future__ import annotations

from backend.model.choice import Choice
from backend.model.tuning import Tuning
from rocm_tui import format as fmt
from rocm_tui.format import plain
from rocm_tui.session import stats


def pin_warning(tuning: Tuning, choice: Choice) -> str | None:
    """One sentence where `choice` is slower than the best one; None where it is not known to be.

    A measured verdict counts; single numbers only where they can be told apart.
    """
    told = stats.measured(tuning, choice)
    if told is not None and tuning.measured is not None:
        best = tuning.measured.choices[0]
        if told.verdict != "slower":
            return None
        name = next((c.label for c in tuning.choices if c.hash == best.hash), best.hash)
        sure = f"{fmt.percent(told.ratio_low - 1)} to {fmt.percent(told.ratio_high - 1)}"
        return plain(f"{choice.label} is slower than {name} by {sure}, measured again and again.")
    fastest = stats.winner(tuning)
    if fastest is None or not fastest.ms or choice.ms is None or choice.failed:
        return None
    if stats.near(tuning, fastest, choice):
        return None
    by = f"{fmt.percent(choice.ms / fastest.ms - 1)} slower than {fastest.label}"
    return plain(f"{choice.label} was {by} when it was tuned.")
