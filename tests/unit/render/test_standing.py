"""The words for how a winner stands: no tie is told as a lead, and measurements count more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.model.choice import Choice, MeasuredChoice, Measurement, Verdict
from backend.model.tuning import Tuning
from rocm_tui.render.measured import standing
from rocm_tui.render.tunings import lead_text
from rocm_tui.session import numbers as fmt
from rocm_tui.session.stats import versus


def _tuning(*times: float | None) -> Tuning:
    choices = tuple(Choice(hash=f"c{at}", ms=ms) for at, ms in enumerate(times))
    return Tuning("mm", inputs_key="[]", precision="highest", choices=choices)


def _measured(tuning: Tuning, *told: tuple[str, float, Verdict]) -> Tuning:
    choices = tuple(
        MeasuredChoice(
            hash_, 2 * ratio, 2 * ratio, 2 * ratio, 0.01, 20, ratio, ratio - 0.004, ratio + 0.004, v
        )
        for hash_, ratio, v in told
    )
    return replace(tuning, measured=Measurement("mm", "[]", "highest", 1.0, choices))


CLOSE, APART = _tuning(1.0, 1.01), _tuning(1.0, 1.2)


@pytest.mark.parametrize(
    ("tuning", "text"),
    [
        (_tuning(1.0), fmt.NONE),
        (CLOSE, "tie"),
        (APART, "~20.0 %"),
        (_measured(APART, ("c0", 1.0, "faster"), ("c1", 1.2, "slower")), "20.0 %"),
        (_measured(APART, ("c0", 1.0, "faster")), "~20.0 %"),
        (_measured(CLOSE, ("c0", 1.0, "faster"), ("c1", 1.018, "slower")), "1.8 %"),
        (_measured(APART, ("c0", 1.0, "tied"), ("c1", 1.001, "tied")), "tie"),
        (_measured(APART, ("c1", 1.0, "faster"), ("c0", 1.05, "slower")), "beaten #2"),
        (_measured(APART, ("c1", 1.0, "unclear"), ("c0", 1.01, "unclear")), "unclear"),
    ],
)
def test_lead(tuning: Tuning, text: str) -> None:
    assert lead_text(tuning) == text


def test_two_choices_are_compared_as_they_were_measured() -> None:
    tuning = _measured(
        _tuning(1.0, 1.1, 1.2, 1.3),
        ("c2", 1.0, "tied"),
        ("c0", 1.001, "tied"),
        ("c1", 1.05, "slower"),
    )
    first, second, third, fourth = tuning.choices
    assert versus(tuning, first, third) == versus(tuning, third, first) == "tied"
    assert versus(tuning, third, second) == "clear"
    assert versus(tuning, second, third) == "slower"
    assert versus(tuning, first, second) == "clear"
    assert versus(tuning, second, first) == "slower"
    assert versus(tuning, first, fourth) == "ahead"  # not measured: single numbers
    assert versus(tuning, fourth, first) == "behind"
    assert versus(tuning, first, replace(fourth, ms=None)) is None


def test_choices_that_are_not_the_best_and_overlap_are_told_apart_by_nobody() -> None:
    tuning = _measured(
        _tuning(1.0, 1.1, 1.2),
        ("c0", 1.0, "faster"),
        ("c1", 1.1, "slower"),
        ("c2", 1.103, "slower"),
    )
    assert versus(tuning, tuning.choices[1], tuning.choices[2]) == "tied"


@pytest.mark.parametrize(
    ("op", "option"),
    [
        ("mm", "--budget"),
        ("pointwise", "--measure-kernels SECONDS"),
        ("triton", "--measure-kernels SECONDS"),
    ],
)
def test_what_is_unclear_names_the_option_that_measures_longer(op: str, option: str) -> None:
    """`measure` refuses kernels that need their own program: another command has another option."""
    tuning = _measured(APART, ("c0", 1.0, "unclear"), ("c1", 1.01, "unclear"))
    assert tuning.measured is not None
    text = standing(replace(tuning, op=op), tuning.measured)
    assert f"a larger {option} or a quieter machine may tell" in text
