"""What a trial says of an arm beside its control."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backend.model.graph import RETUNED, CompileOption, Swap, Trial, TrialArm

OPTION = CompileOption("combo_kernels", "True")
BASE = TrialArm((), ratio=1.0, verdict="tied")


def arm(low: float, high: float, **fields: Any) -> TrialArm:
    fields = {"swaps": (OPTION,), "verdict": "faster", "retuned": True, "error": 0.0, **fields}
    return TrialArm(ratio=(low + high) / 2, ratio_low=low, ratio_high=high, **fields)


def trial(*arms: TrialArm) -> Trial:
    return Trial("g", 0.0, (BASE, *arms))


def control(low: float, high: float) -> TrialArm:
    return arm(low, high, swaps=(RETUNED,), retuned=False)


@pytest.mark.parametrize(
    ("tried", "beside", "faster"),
    [
        (arm(0.70, 0.72), control(0.73, 0.75), True),
        (arm(0.70, 0.727), control(0.73, 0.75), False),  # equal programs differ by as much
        (arm(0.70, 0.74), replace(control(0.6, 0.61), error=1.0), False),  # it is wrong
        (arm(0.70, 0.74), control(0.73, 0.75), False),  # by a new tuning as well
        (arm(0.70, 0.74, retuned=False), control(0.60, 0.65), True),  # it had none
        (arm(0.70, 0.74), control(1.10, 1.20), True),
        (arm(0.70, 0.74), replace(control(0.6, 0.6), ratio=None, failed="no"), False),
        (
            arm(0.70, 0.74, retuned=False),
            replace(control(0.6, 0.6), ratio=None, failed="no"),
            True,
        ),
        (arm(0.70, 0.74, failed="it died"), control(0.9, 0.95), False),
        (arm(0.90, 1.02, verdict="unclear"), control(1.1, 1.2), False),
    ],
)
def test_an_arm_is_faster_by_what_it_changes(
    tried: TrialArm, beside: TrialArm, faster: bool
) -> None:
    assert trial(tried, beside).is_faster(tried) is faster


def test_beside_a_control_that_failed_a_gain_is_unclear() -> None:
    option, failed = arm(0.70, 0.74), TrialArm((RETUNED,), failed="no")
    assert trial(option, failed).verdict(option) == "unclear"
    assert trial(option, control(0.73, 0.75)).verdict(option) == "as retuned"
    assert trial(option).verdict(option) == "faster"


def test_without_a_control_the_verdict_counts() -> None:
    assert trial(arm(0.7, 0.8)).is_faster(arm(0.7, 0.8))


def test_the_control_is_the_baseline_with_its_choices_benchmarked_again() -> None:
    swap = Swap("mm", "[]", "highest", "a")
    kept = replace(BASE, swaps=(swap,))
    other, own = control(0.9, 0.91), replace(control(0.9, 0.91), swaps=(swap, RETUNED))
    assert Trial("g", 0.0, (kept, other)).control is None
    both = Trial("g", 0.0, (kept, other, own))
    assert both.control == own and both.rivals == (other,)
    assert Trial("g", 0.0, ()).control is None
