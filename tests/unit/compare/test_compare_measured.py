"""Repeated measurements compared: by their intervals, with what a neighbour did left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rocm_tui.compare.comparison import compare
from rocm_tui.compare.types import Pair
from tests.support.compare_lab import measurement, only, part, tuning

# Repeated measurements


def measured(
    ms: float, others: float = 1.0, times: int = 3, half: float = 0.005, **options: Any
) -> Pair:
    """A: 1.0 ms measured; B: `ms`, and what the other choices became slower by.

    The tunings say the contrary, and do not count.
    """
    a = part(
        tuning(1, {"bmm": 2.0, "triton_a": 3.0}),
        measured=[measurement(1, {"bmm": 1.0, "triton_a": 1.6}, when=n) for n in range(times)],
    )
    now = {"bmm": ms, "triton_a": 1.6 * others}
    b = part(
        tuning(1, {"bmm": 1.0, "triton_a": 1.5}),
        measured=[measurement(1, now, half=half, when=n, **options) for n in range(times)],
    )
    return only(compare(a, b))


@pytest.mark.parametrize(
    ("ms", "options", "verdict"),
    [
        (1.2, {}, "slower"),
        (0.8, {}, "faster"),
        (1.01, {}, "tied"),
        (1.055, {}, "unclear"),
        (1.2, {"half": 0.3}, "unclear"),
        (1.2, {"reference": 1.2}, "unclear"),
        (1.0, {"reference": 0.8}, "tied"),
        (1.5, {"reference": 1.2}, "slower"),
        (1.2, {"reference": None}, "slower"),
        (1.2, {"others": 1.2}, "unclear"),
        (0.8, {"others": 0.8}, "unclear"),
        (1.5, {"others": 1.2}, "slower"),
        (1.2, {"others": 0.8}, "slower"),
        (1.2, {"times": 1}, "unclear"),
        (1.3, {"times": 1}, "slower"),
        (0.7, {"times": 2}, "faster"),
        (1.01, {"times": 1}, "tied"),
    ],
)
def test_measurements_tell_by_their_intervals_in_units_of_what_was_measured_beside(
    ms: float, options: dict[str, Any], verdict: str
) -> None:
    pair = measured(ms, **options)
    assert pair.verdict == verdict, pair.reason
    assert (pair.a.basis, pair.b.basis) == ("measured", "measured")
    assert (pair.a.ms, pair.b.ms, pair.raw) == (1.0, ms, ms)


def test_the_ratio_is_that_in_the_unit_which_leaves_the_smallest_change() -> None:
    assert measured(1.5, others=1.2, reference=1.1).ratio == pytest.approx(1.25)
    assert measured(1.5, others=1.1, reference=1.2).ratio == pytest.approx(1.25)
    assert measured(0.6, others=0.8, reference=1.2).ratio == pytest.approx(0.75)


def test_the_reasons_of_a_measured_verdict() -> None:
    told = measured(1.2, reference=1.2).reason
    assert told == "the reference kernel is 20.0 % slower too: the machine, not the kernel"
    told = measured(1.2, others=1.25).reason
    assert told == "the other choices are 25.0 % slower too: the machine, or all of them"
    assert measured(1.15, times=1).reason.endswith("; measure it again, this was once")
    told = measured(1.5, reference=1.2).reason
    assert told.startswith("25.0 % slower (") and told.endswith(
        "), measured, allowing for a reference kernel that is 20.0 % slower"
    )
    told = measured(1.5, others=1.4, times=1).reason
    assert "allowing for other choices that are 40.0 % slower; measure it again" in told
    assert "allowing" not in measured(1.2, reference=1.03).reason
    assert "again" not in measured(1.03, times=1).reason


def test_the_reason_names_the_reference_of_the_measurements_that_count() -> None:
    then = [measurement(1, {"bmm": 1.0}, reference=1.0, when=n) for n in range(3)]
    now = [
        measurement(1, {"bmm": ms}, reference=reference, when=n)
        for n, (ms, reference) in enumerate(((1.3, 1.0), (1.4, 1.0), (1.5, 1.3)))
    ]
    pair = only(
        compare(
            part(tuning(1, {"bmm": 1.0}), measured=then),
            part(tuning(1, {"bmm": 1.0}), measured=now),
        )
    )
    assert pair.raw == 1.3 and pair.ratio == pytest.approx(1.5 / 1.3)
    assert pair.reason.endswith(", allowing for a reference kernel that is 30.0 % slower")


def test_what_a_neighbour_may_have_done_is_no_verdict_until_it_was_measured_again() -> None:
    busy = ("a busy neighbour",)
    disturbed = measured(1.3, times=1, trouble=busy)
    assert disturbed.verdict == "unclear" and "measure it again, a busy" in disturbed.reason
    assert measured(2.0, times=1, trouble=busy).verdict == "slower"
    assert measured(1.3, times=3, trouble=busy).verdict == "slower"
    then = [measurement(1, {"bmm": 1.0}, when=n) for n in range(3)]
    again = [measurement(1, {"bmm": ms}, trouble=busy, when=ms) for ms in (1.5, 1.2, 1.4)]
    pairs = [
        only(
            compare(
                part(tuning(1, {"bmm": 1.0}), measured=then),
                part(tuning(1, {"bmm": 1.0}), measured=again[:count]),
            )
        )
        for count in (2, 3)
    ]
    assert [pair.verdict for pair in pairs] == ["unclear", "slower"]
    assert [(p.b.ms, len(p.b.measurements)) for p in pairs] == [(1.2, 2), (1.2, 3)]


def test_of_several_measurements_the_least_disturbed_one_counts_in_each_unit() -> None:
    """A neighbour slowed each kernel once; no single measurement tells all of this."""
    then = [measurement(1, {"bmm": 1.0, "triton_a": 2.0}, when=n) for n in range(3)]
    now = [
        measurement(1, {"bmm": 1.3, "triton_a": 2.6}, reference=1.3, when=0),
        measurement(1, {"bmm": 1.2, "triton_a": 2.0}, reference=1.0, when=1),
        measurement(1, {"bmm": 1.3, "triton_a": 2.0}, reference=1.3, when=2),
    ]
    pair = only(
        compare(
            part(tuning(1, {"bmm": 1.0}), measured=then),
            part(tuning(1, {"bmm": 1.0}), measured=now),
        )
    )
    assert (pair.b.ms, pair.verdict) == (1.2, "unclear")
    assert pair.ratio == pytest.approx(1.0)


def test_another_system_has_no_units_in_common() -> None:
    mixed = measurement(1, {"bmm": 1.5}, reference=1.5, system="b")
    a = part(tuning(1, {"bmm": 1.0}), measured=[measurement(1, {"bmm": 1.0}, system="a")])
    assert only(compare(a, part(tuning(1, {"bmm": 1.5}), measured=[mixed]))).ratio == 1.5


def test_a_measurement_is_compared_with_its_like_alone() -> None:
    mixed = measured(1.2, caches="cold")
    assert (mixed.verdict, mixed.alike, mixed.ratio) == ("unclear", False, 1.2)
    assert mixed.reason == "A was measured with hot caches, B with cold ones"
    a = part(tuning(1, {"bmm": 1.0}), measured=[measurement(1, {"bmm": 0.5})])
    assert only(compare(a, part(tuning(1, {"bmm": 1.0})))).verdict == "tied"


def test_one_measurement_compares_two_choices_but_says_nothing_of_then_and_now() -> None:
    both = measurement(1, {"bmm": 1.0, "triton_a": 1.1})
    then = tuning(1, {"bmm": 1.0, "triton_a": 1.2})
    a = part(then, measured=[both])
    other = part(tuning(1, {"bmm": 1.3, "triton_a": 1.0}), measured=[both])
    pair = only(compare(a, other))
    assert pair.ratio == pytest.approx(1.1) and pair.verdict == "slower"
    assert "side by side" in pair.reason
    later = part(tuning(1, {"bmm": 1.5, "triton_a": 1.6}), measured=[both])
    assert only(compare(a, later)).a.basis == "single"


def test_figures_that_are_no_times_are_not_believed() -> None:
    bad = measurement(1, {"bmm": 1.0})
    bad = replace(bad, choices=(replace(bad.choices[0], low=0.0, high=float("inf")),))
    a = part(tuning(1, {"bmm": 1.0}), measured=[bad])
    assert only(compare(a, a)).a.basis == "single"
