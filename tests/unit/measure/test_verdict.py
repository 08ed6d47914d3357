"""Verdicts on choices with known true times, on a machine made of random numbers."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from math import exp, inf, log, sqrt
from statistics import fmean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.measure.verdict import (
    CONFIDENCE,
    LOOKS,
    MARGIN,
    batches_of,
    clock_step,
    error_of,
    estimate,
    hodges_lehmann,
    judge,
    likeness,
    median_interval,
    schedule,
    settled,
    student_quantile,
    swelling,
    trimmed_interval,
)
from benchmarks import bench_verdict
from benchmarks.bench_verdict import Machine, Noise, Outcome, outcomes

# All machines and samples below have fixed seeds: a share is the same number in each run, so its
# limit leaves no room for chance.
TRIALS = 400


@cache
def ended(case: str, trials: int = TRIALS) -> list[Outcome]:
    return outcomes(case, trials)


def share(flags: Sequence[bool]) -> float:
    return fmean(flags)


def normal(count: int, seed: int, size: float = 0.01) -> list[float]:
    dice = random.Random(seed)
    return [exp(dice.gauss(0, size)) for _ in range(count)]


# The promise


def test_one_per_cent_is_seldom_judged_wrong() -> None:
    found = ended("1 and 1 at 1 %")
    assert share([one.reversed or one.false_tie for one in found]) <= 0.05
    assert share([one.reversed for one in found]) <= 0.025
    assert share([one.unclear > 0 for one in found]) <= 0.25
    assert share([one.stock for one in found]) >= 0.20


def test_exact_twins_are_seldom_told_apart() -> None:
    found = ended("2 twins")
    assert share([one.split for one in found]) <= 0.05
    assert share([one.tied > 0 for one in found]) >= 0.15


def test_five_per_cent_need_few_rounds() -> None:
    found = ended("1 and 1 at 5 %", 200)
    assert not any(one.reversed or one.false_tie for one in found)
    assert fmean(one.rounds for one in found) <= 100
    assert share([one.unclear > 0 for one in found]) <= 0.02


@pytest.mark.parametrize("case", ["1 and 4 at 1 %", "1 and 7 at 5 %", "8 mixed", "8 twins"])
def test_with_many_choices_all_verdicts_hold_together(case: str) -> None:
    found = ended(case, 30)
    assert share([one.reversed or one.false_tie or one.split for one in found]) <= 0.1
    assert share([one.covered for one in found]) >= 0.9


def test_the_benchmark_prints_its_table() -> None:
    command = [sys.executable, bench_verdict.__file__, "--trials", "2", "--cases", "1 and 1 at 5 %"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    head, rule, row = done.stdout.splitlines()
    assert row.startswith("| 1 and 1 at 5 % | 0.0 % | 0.0 % |")
    assert head.count("|") == rule.count("|") == row.count("|")


# What a machine does


def told_apart(noise: Noise, block: int, with_blocks: bool) -> float:
    """Share of 100 pairs of twins of which one is called slower at the only look, of 5 %."""
    split = 0
    for number in range(100):
        machine = Machine(f"twins {number}", (1.0, 1.0), lambda _: noise, block)
        machine.run(96)
        blocks = machine.blocks if with_blocks else None
        split += judge(machine.samples, blocks, looks=1)[1].verdict == "slower"
    return split / 100


def test_what_an_allocation_does_is_no_difference_of_choices() -> None:
    noise = Noise(core=0.01, alike=0.0, place=0.01)
    assert told_apart(noise, 24, with_blocks=False) > 0.15
    assert told_apart(noise, 24, with_blocks=True) <= 0.08


def test_neighbouring_rounds_that_are_alike_do_not_make_it_surer() -> None:
    assert told_apart(Noise(core=0.02, alike=0.5), 4, with_blocks=True) <= 0.08


def test_a_process_that_makes_a_few_samples_a_thousand_times_longer_changes_no_verdict() -> None:
    fast, slow = [0.008 * x for x in normal(64, 1)], [0.0088 * x for x in normal(64, 2)]
    quiet = judge({"fast": fast, "slow": slow}, look=3)
    for at in (3, 20, 21, 40):
        fast[at] = 16.0
    best, rival = judge({"fast": fast, "slow": slow}, look=3)
    assert (best.hash, best.verdict, rival.verdict) == ("fast", "faster", "slower")
    assert best.ms == pytest.approx(0.008, rel=0.01)
    assert rival.ratio == pytest.approx(quiet[1].ratio, rel=0.01)
    assert rival.ratio_low < 1.1 < rival.ratio_high < 1.13


def test_the_interval_of_a_median_covers_about_as_often_as_it_says() -> None:
    quiet = Noise(core=0.03, waves=0.0, drift=0.0, wild=0.0, visits=0.0)
    missed = 0
    for number in range(200):
        machine = Machine(f"median {number}", (1.0,), lambda _: quiet)
        machine.run(64)
        alone = judge(machine.samples, machine.blocks)[0]
        missed += not alone.low <= 1.0 <= alone.high
    assert 1 <= missed <= 20


def test_drift_of_the_whole_machine_cancels() -> None:
    drift = [1 + at / 64 for at in range(64)]
    fast = [x * d for x, d in zip(normal(64, 3), drift, strict=True)]
    slow = [1.05 * x * d for x, d in zip(normal(64, 4), drift, strict=True)]
    best, rival = judge({"fast": fast, "slow": slow}, look=3)
    assert (best.hash, rival.verdict) == ("fast", "slower")
    assert rival.ratio_high - rival.ratio_low < 0.03


def test_a_clock_of_coarse_steps_does_not_make_a_tie() -> None:
    """Both times are mostly the same tick though they truly differ by 1 %."""
    dice = random.Random(5)

    def ticked(true: float) -> list[float]:
        return [0.001024 * int(true / 0.001024 + dice.random()) for _ in range(128)]

    samples = {"fast": ticked(0.02459), "slow": ticked(0.02484)}
    assert clock_step(samples["slow"]) == pytest.approx(0.001024)
    assert judge(samples, look=4)[1].verdict == "unclear"
    assert clock_step(normal(128, 6)) == 0


# The answer's form


def test_a_clear_case_in_full() -> None:
    samples = {"b": [1.1 * x for x in normal(64, 11)], "a": normal(64, 12), "c": normal(64, 13)}
    samples["c"] = [1.3 * x for x in samples["c"]]
    standings = judge(samples, [at // 4 for at in range(64)], look=3)
    assert [one.hash for one in standings] == ["a", "b", "c"]
    assert [one.verdict for one in standings] == ["faster", "slower", "slower"]
    best = standings[0]
    assert (best.ratio, best.ratio_low, best.ratio_high, best.rounds) == (1.0, 1.0, 1.0, 64)
    for one, true in zip(standings, (1.0, 1.1, 1.3), strict=True):
        assert one.low <= true <= one.high and one.low <= one.ms <= one.high
        assert one.ratio_low <= true <= one.ratio_high
        assert one.spread == pytest.approx(0.6745 * 0.01, rel=0.4)
    assert settled(standings)


def test_quiet_twins_are_tied_and_so_is_the_best() -> None:
    same = {name: normal(64, at, size=0.002) for at, name in enumerate("ab")}
    assert [one.verdict for one in judge(same, look=3)] == ["tied", "tied"]
    same["slow"] = [1.2 * x for x in normal(64, 9, size=0.002)]
    standings = judge(same, look=4, looks=4)
    assert [one.verdict for one in standings] == ["tied", "tied", "slower"]


def test_too_few_rounds_or_one_block_tell_nothing() -> None:
    few = {"a": [1.0, 1.0, 1.1], "b": [2.0, 2.0, 2.1]}
    best, rival = judge(few)
    assert (best.verdict, rival.verdict, rival.ratio_low, rival.ratio_high) == (
        "unclear", "unclear", 0.0, inf,
    )  # fmt: skip
    many = {"a": normal(32, 1), "b": [2 * x for x in normal(32, 2)]}
    assert judge(many, [7] * 32)[1].verdict == "unclear"
    assert judge(many)[1].verdict == "slower"


def test_a_choice_alone_has_beaten_none_and_needs_no_more_rounds() -> None:
    alone = judge({"a": normal(16, 1)})
    assert [one.verdict for one in alone] == ["unclear"] and settled(alone)


def test_the_best_is_the_best_in_pairs_though_its_median_is_not_the_smallest() -> None:
    """The machine has two levels; three wild samples lift the faster one's median to the upper."""
    fast = [x * (2.0 if at % 2 else 1.0) for at, x in enumerate(normal(33, 1, 0.001))]
    slow = [1.01 * x for x in fast]
    fast[0], fast[2], fast[4] = 1.9, 1.9, 1.9
    best = judge({"slow": slow, "fast": fast})[0]
    assert best.hash == "fast" and best.ms > judge({"slow": slow})[0].ms


@pytest.mark.parametrize(
    ("samples", "blocks"),
    [
        ({}, None),
        ({"a": []}, None),
        ({"a": [1.0], "b": [1.0, 2.0]}, None),
        ({"a": [1.0, 2.0]}, [1]),
        ({"a": [1.0, 0.0]}, None),
        ({"a": [1.0, inf]}, None),
        ({"a": [1.0, float("nan")]}, None),
    ],
)
def test_what_is_no_measurement_is_refused(
    samples: dict[str, list[float]], blocks: list[int] | None
) -> None:
    with pytest.raises(ValueError, match=r"entry a round|is not a time"):
        judge(samples, blocks)


def test_the_looks_spend_no_more_than_there_is() -> None:
    assert schedule() == (16, 32, 64, 128, 256, 512)
    for looks in (1, 2, LOOKS, 9):
        spent = sum(error_of(look, looks) for look in range(1, looks + 1))
        assert 0 < spent <= 1 - CONFIDENCE
    with pytest.raises(ValueError, match="look 7 is not one of 6"):
        judge({"a": [1.0], "b": [1.0]}, look=7)
    with pytest.raises(ValueError, match="no schedule"):
        schedule(0)


@given(
    st.lists(
        st.tuples(*[st.floats(1e-6, 1e6) for _ in range(3)]), min_size=1, max_size=40
    ),
    st.integers(1, LOOKS),
)  # fmt: skip
def test_any_positive_times_give_a_verdict(rounds: list[tuple[float, ...]], look: int) -> None:
    samples = {
        name: list(times) for name, times in zip("abc", zip(*rounds, strict=True), strict=True)
    }
    standings = judge(samples, look=look)
    assert {one.hash for one in standings} == set("abc")
    for one in standings:
        assert one.low <= one.ms <= one.high
        assert 0 <= one.ratio_low <= one.ratio <= one.ratio_high
        if one.verdict == "tied" and one is not standings[0]:
            assert one.ratio_high <= 1 + MARGIN + 1e-12


# The estimates


def test_students_quantiles_are_those_of_the_tables() -> None:
    tables = {
        (0.05, 1): 12.706,
        (0.05, 2): 4.303,
        (0.05, 3): 3.182,
        (0.01, 9): 3.250,
        (0.001, 16): 4.015,
        (0.05, 31): 2.040,
    }
    for (alpha, freedom), table in tables.items():
        assert student_quantile(alpha, freedom) == pytest.approx(table, abs=6e-4)


def test_the_interval_of_the_trimmed_mean_covers_as_often_as_it_says() -> None:
    dice = random.Random(8)
    missed = 0
    for _ in range(1000):
        centre, half = trimmed_interval([dice.gauss(0, 1) for _ in range(16)], 0.05)
        missed += abs(centre) > half
    assert 30 <= missed <= 72


def test_the_location_ignores_a_quarter_of_outliers() -> None:
    values = [*(log(x) for x in normal(30, 7)), *[5.0] * 10]
    assert abs(hodges_lehmann(values)) < 0.02
    assert hodges_lehmann([1.0, 2.0, 9.0]) == 3.5  # of 1, 1.5, 2, 5, 5.5 and 9


def test_likeness_of_neighbours_is_found_and_swells_the_error() -> None:
    dice, last, row = random.Random(9), 0.0, []
    for _ in range(2000):
        last = 0.6 * last + dice.gauss(0, 0.8)
        row.append(last + 50 * (dice.random() < 0.01))
    assert likeness(row) == pytest.approx(0.6, abs=0.08)
    assert likeness([1.0] * 9) == 0
    assert swelling(0.0, 4) == 1
    assert swelling(0.6) == pytest.approx(4)
    assert swelling(0.6, 4) > swelling(0.6, 16) > 1


# The numbers themselves, worked out by hand


def test_the_interval_of_a_trimmed_mean_is_that_of_the_winsorized_values() -> None:
    """Eight values, of which one is cut off at each end: Student's t of 8 - 2 - 1 degrees."""
    centre, half = trimmed_interval([4.0, 90.0, 1.0, 2.0, -50.0, 5.0, 3.0, 6.0], 0.05)
    deviation = sqrt((4 * 2.5**2 + 2 * 1.5**2 + 2 * 0.5**2) / 7)
    assert centre == 3.5
    assert half == pytest.approx(2.5706 * deviation / (6 / 8 * sqrt(8)), rel=1e-4)
    assert trimmed_interval([1.0, 2.0, 3.0], 0.05) == (2, pytest.approx(4.3027 / sqrt(3), rel=1e-4))
    assert trimmed_interval([1.0, 2.0], 0.05) == (1.5, inf)


def test_likeness_is_corrected_for_short_series_and_clipped() -> None:
    assert likeness([0.0, 1.0, 2.0, 3.0, 4.0]) == pytest.approx(0.4 + (1 + 3 * 0.4) / 5)
    assert likeness([0.0, 1.0, 2.0, 3.0, 100.0]) == pytest.approx(0.7398, abs=1e-4)
    assert likeness([float(at) for at in range(99)]) == 0.9
    assert likeness([1.0, -1.0] * 20) == 0.0


def test_a_mean_of_alike_values_varies_as_an_autoregression_says() -> None:
    """Of batches of two at 0.5: 3 over 3 - 2 * 0.5 * (1 - 0.25) / (2 * 0.25)."""
    assert swelling(0.5, 2) == pytest.approx(2.0)
    assert swelling(0.5, 4) == pytest.approx(3 / (3 - (1 - 0.0625) / (4 * 0.25)))


@pytest.mark.parametrize(
    ("times", "step"),
    [([1.0, 1.0, 2.0], 1.0), ([1.0, 2.0, 3.0], 0.0), ([1.0, 1.0, 1.0], 0.0), ([3.0], 0.0),
     ([1.0, 1.0, 1.5, 1.5, 3.0], 0.5)],
)  # fmt: skip
def test_a_clock_step_shows_where_most_samples_repeat_another(
    times: list[float], step: float
) -> None:
    assert clock_step(times) == step


def test_each_look_spends_the_error_of_the_rounds_since_the_last() -> None:
    spent = [error_of(look) for look in range(1, LOOKS + 1)]
    assert spent == pytest.approx([0.7 * 0.05 * more / 512 for more in (16, 16, 32, 64, 128, 256)])
    assert error_of(1, 1) == pytest.approx(0.7 * 0.05)
    for look, looks in ((0, 6), (7, 6)):
        with pytest.raises(ValueError, match="is not one of"):
            error_of(look, looks)
    with pytest.raises(ValueError, match="no schedule"):
        schedule(1, 0)


def test_batches_are_whole_blocks_and_at_most_as_many_as_suffice() -> None:
    assert batches_of(10, None) == (range(4), range(4, 8), range(8, 10))
    assert batches_of(5, [0, 0, 1, 1, 1]) == (range(2), range(2, 5))
    assert batches_of(512, None) == tuple(range(at, at + 16) for at in range(0, 512, 16))


def test_the_gap_to_the_best_is_estimated_at_the_error_of_its_look_and_of_all_pairs() -> None:
    """Of four choices there are six pairs; the clock adds half of each choice's resolution."""
    times = {name: [by * x for x in normal(64, at)] for at, (name, by) in
             enumerate({"a": 1.0, "b": 1.1, "c": 1.2, "d": 1.5}.items())}  # fmt: skip
    batches = batches_of(64, None)
    ratios = [log(b / a) for a, b in zip(times["a"], times["b"], strict=True)]
    centre, half = estimate(ratios, batches, error_of(3) / 6, hodges_lehmann)
    best, second, *_ = judge(times, look=3)
    assert second.ratio == pytest.approx(exp(centre))
    assert second.ratio_low == pytest.approx(exp(centre - half))
    assert second.ratio_high == pytest.approx(exp(centre + half))
    _, coarse, *_ = judge(times, look=3, resolutions={"a": 0.01, "b": 0.02})
    wider = (0.01 / best.ms + 0.02 / second.ms) / 2
    assert coarse.ratio_high == pytest.approx(exp(centre + half + wider))
    assert coarse.ratio_low == pytest.approx(exp(centre - half - wider))
    middle, around = estimate([log(x) for x in times["b"]], batches, 0.05, median)
    bounds = (exp(middle - around), exp(middle + around))
    assert median_interval(times["b"], batches) == pytest.approx(bounds)
    assert (second.low, second.high, second.ms) == pytest.approx((*bounds, median(times["b"])))


def test_an_interval_allows_for_neighbours_that_are_alike() -> None:
    values = [float(at // 8 % 2) for at in range(64)]
    batches = batches_of(64, None)
    _, half = estimate(values, batches, 0.05, hodges_lehmann)
    _, apart = trimmed_interval([float(at // 2 % 2) for at in range(16)], 0.05)
    assert half == pytest.approx(apart * sqrt(swelling(likeness(values), 4)))


@pytest.mark.parametrize(
    ("rivals", "best"),
    [
        (("slower", "slower"), "faster"),
        (("slower", "tied"), "tied"),
        (("slower", "unclear"), "unclear"),
    ],
)
def test_what_is_known_of_the_best_is_what_is_known_of_its_rivals(
    rivals: Sequence[str], best: str
) -> None:
    by = {"slower": (1.2, 0.002), "tied": (1.0, 0.001), "unclear": (1.02, 0.05)}
    times = {"best": [0.9999 * x for x in normal(64, 1, 0.001)]}
    for at, rival in enumerate(rivals, 2):
        factor, noise = by[rival]
        times[f"{rival} {at}"] = [factor * x for x in normal(64, at, noise)]
    standings = {each.hash: each.verdict for each in judge(times, look=3)}
    for name, verdict in standings.items():
        assert verdict == (best if name == "best" else name.split()[0])
