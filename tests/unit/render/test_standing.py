"""The words for how a winner stands: no tie is told as a lead, and measurements count more."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from backend.model.choice import Choice, MeasuredChoice, Measurement, Verdict
from backend.model.tuning import Tuning
from rocm_tui.render.detail import verdict
from rocm_tui.render.measured import standing
from rocm_tui.render.tunings import error, lead_text
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


def _aten(triton: float, aten: float, told: Verdict | None) -> Tuning:
    """Triton's kernel won; ATen's was measured with this verdict against it."""
    names = (("triton_mm_1", "tri", triton), ("mm", "mm-1", aten))
    tuning = replace(_tuning(), choices=tuple(Choice(name, hash_, ms) for name, hash_, ms in names))
    if told is None:
        return tuning
    own: Verdict = "faster" if told == "slower" else told
    return _measured(tuning, ("tri", 1.0, own), ("mm-1", 1.01, told))


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
        (_measured(APART, ("c1", 1.0, "faster"), ("c0", 1.05, "slower")), "#2 wins"),
        (_measured(APART, ("c1", 1.0, "unclear"), ("c0", 1.01, "unclear")), "unclear"),
        (_measured(_tuning(1.0, 1.03), ("c0", 1.0, "faster")), "~3.0 %"),
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
    assert f"a larger {option} or a quieter machine may decide" in text


def test_others_that_were_measured_are_no_tie_where_their_intervals_are_wide() -> None:
    """Their medians are equal, and either may be 30 % faster."""
    wide = [
        MeasuredChoice(hash_, 2.0, 1.5, 2.5, 0.1, 20, ratio, ratio - 0.3, ratio + 0.3, verdict)
        for hash_, ratio, verdict in (
            ("c0", 1.0, "unclear"), ("c1", 1.1, "unclear"), ("c2", 1.1, "unclear"),
        )
    ]  # fmt: skip
    told = Measurement("mm", "[]", "highest", 1.0, tuple(wide))
    tuning = replace(_tuning(1.0, 1.1, 1.2), measured=told)
    assert versus(tuning, tuning.choices[1], tuning.choices[2]) == "unclear"


def test_a_choice_is_not_fastest_where_an_unmeasured_one_is_ahead() -> None:
    tuning = _measured(_tuning(1.0, 1.2, 1.3), ("c1", 1.0, "faster"), ("c2", 1.1, "slower"))
    assert lead_text(tuning, tuning.choices[1]) == "unclear"
    said = "".join(text for text, _ in verdict(tuning, tuning.choices[1]))
    assert "unclear whether another is faster" in said and "fastest" not in said


@pytest.mark.parametrize(
    ("tuning", "expected"),
    [
        (_aten(1.0, 1.2, "unclear"), "unclear whether it is faster than ATen"),
        (_aten(1.0, 1.2, "tied"), "tied with ATen"),
        (_aten(1.0, 1.2, "slower"), "1.01× ATen"),
        (_aten(1.0, 1.2, None), "~1.20× ATen"),
        (_aten(1.0, 1.01, None), "tied with ATen"),
    ],
)
def test_only_a_verdict_says_what_atens_kernel_is_worth(tuning: Tuning, expected: str) -> None:
    said = "".join(text for text, _ in verdict(tuning))
    assert expected in said and "no faster" not in said


def test_an_interval_without_an_end_has_no_half() -> None:
    endless = MeasuredChoice("c0", 1.0, 0.5, inf, 0.1, 3, 1.0, 0.0, inf, "unclear")
    assert error(endless) == fmt.NONE
    assert error(replace(endless, high=99.0)) == ">999"
