"""Which choices a graph is tried with, as measuring alone tells."""

from __future__ import annotations

from math import inf

import pytest

from backend.model.choice import Choice, MeasuredChoice, Measurement
from backend.model.tuning import Tuning
from rocm_tui.search.candidates import (
    MOST,
    is_known,
    to_measure,
    with_candidates,
    with_single_times,
)
from rocm_tui.search.types import Candidate, Subject

KEY = "[('cpu', 'torch.float32', 4, 8, 8, 1, 0)]"
SUBJECT = Subject("mm", KEY, "highest", "0" * 7, current=Candidate("mm-1", "mm", "aten"))


def tuning(**times: float) -> Tuning:
    """Choices by name, `_` being the dash of a hash."""
    choices = [Choice(name, name.replace("_", "-", 1), ms) for name, ms in times.items()]
    return Tuning("mm", precision="highest", inputs_key=KEY, choices=tuple(choices))


def measurement(**ratios: tuple[float, float, float]) -> Measurement:
    choices = [
        MeasuredChoice(name.replace("_", "-", 1), r, r, r, 0.01, 40, r, low, high, "slower")
        for name, (low, r, high) in ratios.items()
    ]
    return Measurement("mm", KEY, "highest", 1.0, tuple(choices))


def names(subject: Subject) -> list[str]:
    return [choice.hash for choice in subject.candidates]


def test_what_cannot_be_ruled_out_stays() -> None:
    tuned = tuning(mm_1=1.0, triton_2=1.05, triton_3=1.1, triton_4=1.2, triton_5=1.3)
    result = measurement(
        mm_1=(1.0, 1.0, 1.0),
        triton_2=(1.0, 1.02, 1.04),
        triton_3=(1.08, 1.12, 1.16),
        triton_4=(1.11, 1.15, 1.19),
        triton_5=(0.9, 1.4, 2.2),
    )
    subject = with_candidates(SUBJECT, tuned, result, 0.1)
    assert names(subject) == ["triton-2", "triton-3", "triton-5"]
    assert subject.ruled_out == 1
    assert subject.ready


def test_the_fastest_of_each_maker_stays_however_slow_it_is_alone() -> None:
    tuned = tuning(triton_1=1.0, triton_2=1.5, mm_3=3.0, mm_4=4.0)
    result = measurement(
        triton_1=(1.0, 1.0, 1.0),
        triton_2=(1.4, 1.5, 1.6),
        mm_3=(2.9, 3.0, 3.1),
        mm_4=(3.9, 4.0, 4.1),
    )
    subject = Subject("mm", KEY, "highest", "0" * 7, current=Candidate("triton-1"))
    assert names(with_candidates(subject, tuned, result, 0.1)) == ["triton-2", "mm-3"]


def test_times_alone_are_against_the_choice_that_inductor_takes() -> None:
    """The measurement compares with its best one."""
    tuned = tuning(mm_1=1.0, triton_2=1.1, triton_3=1.2)
    result = measurement(
        triton_2=(1.0, 1.0, 1.0), mm_1=(1.2, 1.25, 1.3), triton_3=(1.05, 1.1, 1.15)
    )
    subject = with_candidates(SUBJECT, tuned, result, 0.1)
    best, middle = (choice.alone for choice in subject.candidates)
    assert best is not None
    assert middle is not None
    assert (best.ratio, best.low, best.high) == pytest.approx((0.8, 1 / 1.3, 1 / 1.2))
    assert (middle.ratio, middle.low, middle.high) == pytest.approx((0.88, 1.05 / 1.3, 1.15 / 1.2))
    assert [best.verdict, middle.verdict] == ["faster", "faster"]


def test_of_many_only_some_are_tried() -> None:
    times = {f"triton_{n}": 1.0 + n / 1000 for n in range(20)}
    tuned = tuning(mm_1=1.0, **times)
    ratios = {name: (ms - 0.01, ms, ms + 0.01) for name, ms in times.items()}
    subject = with_candidates(SUBJECT, tuned, measurement(mm_1=(1.0, 1.0, 1.0), **ratios), 0.1)
    assert names(subject) == [f"triton-{n}" for n in range(MOST)]
    assert len(to_measure(tuned, 0.1)) == 2 * MOST


def test_what_failed_when_measured_is_not_tried() -> None:
    tuned = tuning(mm_1=1.0, triton_2=1.0)
    failed = Measurement(
        "mm", KEY, "highest", 1.0, measurement(mm_1=(1.0, 1.0, 1.0)).choices,
        failed=(Choice("triton_2", "triton-2", failed=True, reason="wrong result"),),
    )  # fmt: skip
    assert is_known(tuned, "mm-1", 0.1, cold=False) is False
    assert names(with_candidates(SUBJECT, tuned, failed, 0.1)) == []


def test_the_one_that_inductor_takes_is_measured_too() -> None:
    tuned = tuning(mm_1=1.0, mm_2=5.0)
    assert [choice.hash for choice in to_measure(tuned, 0.1)] == ["mm-1"]
    assert [choice.hash for choice in to_measure(tuned, 0.1, "mm-2")] == ["mm-1", "mm-2"]


def test_next_to_nothing_known_is_no_rule() -> None:
    tuned = tuning(mm_1=1.0, triton_2=1.0)
    result = measurement(mm_1=(1.0, 1.0, 1.0), triton_2=(0.0, 1.0, inf))
    (choice,) = with_candidates(SUBJECT, tuned, result, 0.1).candidates
    assert choice.alone is not None
    assert choice.alone.verdict == "unclear"


def test_what_cannot_be_run_alone_is_tried_by_its_single_times() -> None:
    tuned = tuning(triton_1=1.0, triton_2=1.1, triton_3=1.5, mm_4=3.0)
    subject = Subject("convolution", KEY, "highest", "0" * 7, current=Candidate("triton-1"))
    subject = with_single_times(subject, tuned, 0.1)
    assert sorted(names(subject)) == ["mm-4", "triton-2"]
    assert all(choice.alone is None for choice in subject.candidates)
    assert (subject.ready, subject.unfit, subject.ruled_out) == (True, "", 1)
