"""Verdicts on whole passes with known true times, on machines made of random numbers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt
from statistics import fmean, median

import pytest

from backend.measure.trial import (
    BIAS,
    ArmStanding,
    across_processes,
    clear,
    judge_arms,
    verdict_of,
)
from backend.measure.verdict import (
    batches_of,
    clock_step,
    error_of,
    estimate,
    hodges_lehmann,
    median_interval,
    schedule,
    trimmed_interval,
)
from benchmarks.bench_verdict import Machine, Noise

LOOKS = 5
CALM = Noise(core=0.01)


def tried(
    seed: str,
    times: Sequence[float],
    *,
    bias: float = BIAS,
    noise: Noise = CALM,
    looks: int = LOOKS,
) -> tuple[ArmStanding, ...]:
    return tried_on(Machine(seed, times, lambda _: noise), bias, looks)


def tried_on(machine: Machine, bias: float, looks: int = LOOKS) -> tuple[ArmStanding, ...]:
    """As a worker does it: look, and go on until it is clear or the looks are used up."""
    standings: tuple[ArmStanding, ...] = ()
    for look, rounds in enumerate(schedule(looks), 1):
        machine.run(rounds)
        samples = {int(arm): passes[:rounds] for arm, passes in machine.samples.items()}
        standings = judge_arms(samples, machine.blocks[:rounds], look=look, looks=looks, bias=bias)
        if clear(standings):
            break
    return standings


def told_apart(standings: Sequence[ArmStanding]) -> bool:
    return any(standing.verdict in ("faster", "slower") for standing in standings)


def share(flags: Sequence[bool]) -> float:
    """The same number in each run, since all machines have fixed seeds."""
    return fmean(flags)


# One process


@pytest.mark.parametrize("core", [0.005, 0.02, 0.05])
def test_twins_are_told_apart_no_more_often_than_the_error_says(core: float) -> None:
    machines = [Machine(f"{core} {n}", (1, 1), lambda _: Noise(core=core)) for n in range(250)]

    def wrong(bias: float) -> float:
        return share([told_apart(tried_on(machine, bias)) for machine in machines])

    assert wrong(0.0) <= 0.05 + 2 * sqrt(0.05 * 0.95 / 250)  # 1,000 trials: 2, 4.5 and 4 %
    assert wrong(BIAS) <= 0.03


def test_of_many_twins_none_is_told_apart() -> None:
    wrong = [told_apart(tried(f"many {n}", (1.0,) * 6, bias=0.0)) for n in range(60)]
    assert share(wrong) <= 0.05


def test_a_smaller_error_is_kept_too() -> None:
    """A search asks for it: it makes many trials and believes the best of them."""
    assert error_of(1, 1, 0.01) == pytest.approx(error_of(1, 1) / 5)
    machine = Machine("strict", (1.0, 1.02), lambda _: Noise(core=0.02))
    machine.run(128)
    samples = {int(arm): passes for arm, passes in machine.samples.items()}
    usual = judge_arms(samples, machine.blocks)[1]
    strict = judge_arms(samples, machine.blocks, error=0.001)[1]
    assert strict.ratio == usual.ratio
    assert strict.ratio_low < usual.ratio_low < usual.ratio_high < strict.ratio_high


def test_what_is_really_faster_is_called_so_and_its_ratio_lies_within() -> None:
    trials = [tried(f"gain {n}", (1.0, 0.95, 1.05, 1.0)) for n in range(40)]
    assert all(trial[1].verdict in ("faster", "unclear") for trial in trials)
    assert share([trial[1].verdict == "faster" for trial in trials]) >= 0.95
    assert share([trial[2].verdict == "slower" for trial in trials]) >= 0.95
    truth = (1.0, 0.95, 1.05, 1.0)
    held = [
        all(arm.ratio_low <= true <= arm.ratio_high for arm, true in zip(trial, truth, strict=True))
        for trial in trials
    ]
    assert share(held) >= 0.95


def test_twins_that_the_process_favours_are_not_told_apart() -> None:
    """A place of its own for the whole life of the process: no pass of it shows that."""

    def wrong(bias: float) -> float:
        dice = random.Random(7)
        favoured = [(1.0, exp(dice.gauss(0, BIAS / 2))) for _ in range(60)]
        noise = Noise(core=0.003, place=0.0)
        trials = [tried(f"{n}", t, bias=bias, noise=noise) for n, t in enumerate(favoured)]
        return share([told_apart(trial) for trial in trials])

    assert wrong(0.0) > 0.1
    assert wrong(BIAS) <= 0.05


def test_an_arm_is_compared_with_the_baseline_only() -> None:
    """However fast a third one is."""
    samples = {0: [1.0, 1.001] * 20, 1: [1.001, 1.0] * 20, 2: [0.5, 0.502] * 20}
    baseline, twin, fast = judge_arms(samples)
    assert (baseline.ratio, baseline.ratio_low, baseline.ratio_high) == (1.0, 1.0, 1.0)
    assert (baseline.verdict, twin.verdict, fast.verdict) == ("tied", "tied", "faster")
    assert fast.ratio == pytest.approx(0.5, rel=0.01)
    assert fast.ms == pytest.approx(0.501)
    assert fast.low <= fast.ms <= fast.high


def test_one_arm_alone_is_the_baseline() -> None:
    (baseline,) = judge_arms({0: [1.0, 2.0, 1.5]})
    assert (baseline.arm, baseline.verdict, baseline.passes) == (0, "tied", 3)


@pytest.mark.parametrize(
    "samples",
    [{}, {1: [1.0]}, {0: []}, {0: [1.0], 1: [0.0]}, {0: [inf]}],
)
def test_what_is_no_trial_is_refused(samples: dict[int, list[float]]) -> None:
    with pytest.raises(ValueError, match=r"."):
        judge_arms(samples)
    with pytest.raises(ValueError, match=r"."):
        across_processes([{arm: times[0] for arm, times in samples.items() if times}])


def test_a_clock_of_coarse_steps_does_not_make_a_tie() -> None:
    dice = random.Random(5)

    def ticks(true: float) -> list[float]:
        return [round(20 * true * exp(dice.gauss(0, 0.015))) for _ in range(64)]

    samples = {0: ticks(1.0), 1: ticks(1.01)}
    assert judge_arms(samples)[1].verdict == "unclear"


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.9, 0.99, "faster"),
        (0.9, 0.997, "unclear"),
        (0.996, 1.004, "tied"),
        (1.003, 1.02, "unclear"),
        (1.006, 1.02, "slower"),
        (0.9, 1.1, "unclear"),
        (0.0, inf, "unclear"),
    ],
)
def test_the_whole_interval_keeps_clear_of_what_a_process_adds(
    low: float, high: float, verdict: str
) -> None:
    assert verdict_of(low, high, BIAS) == verdict


# Several processes


@dataclass(frozen=True)
class Processes:
    """Each favours each arm once and for all, and each has its own speed."""

    seed: str
    times: Sequence[float]
    between: float

    def run(self, count: int) -> list[dict[int, float]]:
        dice = random.Random(self.seed)
        return [
            {
                arm: exp(log(true) + pace + dice.gauss(0, self.between))
                for arm, true in enumerate(self.times)
            }
            for pace in (dice.gauss(0, 0.1) for _ in range(count))
        ]


def verdicts(
    times: Sequence[float], counts: Sequence[int], seeds: int, between: float
) -> list[tuple[ArmStanding, ...]]:
    """Until clear, looking after these numbers of processes."""
    ended = []
    for seed in range(seeds):
        processes = Processes(f"{seed}", times, between).run(counts[-1])
        for look, count in enumerate(counts, 1):
            standings = across_processes(processes[:count], look=look, looks=len(counts))
            if clear(standings):
                break
        ended.append(standings)
    return ended


@pytest.mark.parametrize("counts", [(3,), (5,), (12,), (3, 6, 12, 24)])
def test_twins_in_several_processes(counts: Sequence[int]) -> None:
    wrong = [told_apart(standings) for standings in verdicts((1.0, 1.0), counts, 400, 0.01)]
    assert share(wrong) <= 0.05


def test_a_gain_shows_in_several_processes() -> None:
    ended = verdicts((1.0, 0.98), (3, 6, 12, 24), 100, 0.005)
    assert share([standings[1].verdict == "faster" for standings in ended]) >= 0.95


def test_processes_that_agree_by_chance_are_not_surer_than_each_of_them() -> None:
    ratios = [{0: 1.0, 1: 0.99}, {0: 1.0, 1: 0.9901}, {0: 1.0, 1: 0.9899}]
    alone = across_processes(ratios)[1]
    assert alone.ratio_high < 0.992
    wide = across_processes(ratios, halves=[{0: 0.0, 1: 0.03}] * 3)[1]
    assert (wide.verdict, wide.ratio) == ("unclear", alone.ratio)
    assert wide.ratio_high == pytest.approx(0.99 * exp(0.03 / sqrt(3)), rel=1e-4)
    narrow = across_processes(ratios, halves=[{0: 0.0, 1: 1e-6}] * 3)[1]
    assert narrow.ratio_high == alone.ratio_high


def test_what_two_processes_say_is_unclear() -> None:
    standings = across_processes([{0: 1.0, 1: 0.5}, {0: 1.0, 1: 0.5}])
    assert standings[1].verdict == "unclear"
    assert standings[1].ratio_high == inf
    assert standings[1].ratio == pytest.approx(0.5)


def test_a_ratio_is_as_good_as_two_times() -> None:
    times = [{0: 2.0, 1: 1.9}, {0: 3.0, 1: 2.8}, {0: 2.2, 1: 2.1}, {0: 2.1, 1: 2.0}]
    ratios = [{0: 1.0, 1: process[1] / process[0]} for process in times]
    from_times, from_ratios = across_processes(times)[1], across_processes(ratios)[1]
    assert from_times.ratio == pytest.approx(from_ratios.ratio)
    assert from_times.ratio_high == pytest.approx(from_ratios.ratio_high)


def test_an_arm_that_a_process_lacks_is_no_comparison() -> None:
    with pytest.raises(ValueError, match="one entry a round"):
        across_processes([{0: 1.0, 1: 1.0}, {0: 1.0}])


# Several arms


def test_the_error_is_divided_by_the_number_of_comparisons() -> None:
    """Arm 1 of three is judged as the only one at half the error would be: two comparisons."""
    machine = Machine("divided", (1.0, 1.02, 1.05), lambda _: Noise(core=0.02))
    machine.run(64)
    three = {int(arm): passes for arm, passes in machine.samples.items()}
    two = {arm: three[arm] for arm in (0, 1)}
    half = judge_arms(two, machine.blocks, error=0.02)[1]
    assert judge_arms(three, machine.blocks, error=0.04)[1] == half

    processes = Processes("divided", (1.0, 1.02, 1.05), 0.01).run(12)
    pairs = [{arm: process[arm] for arm in (0, 1)} for process in processes]
    half = across_processes(pairs, error=0.02)[1]
    assert across_processes(processes, error=0.04)[1] == half


# The numbers themselves


def test_a_ratio_and_its_interval_in_one_process() -> None:
    """As of the log ratios within rounds, with half of each arm's clock step besides."""
    numbers = random.Random(4)
    true = {0: 1.0, 1: 1.1, 2: 1.3}
    ticks = {arm: [round(40 * by * numbers.gauss(1, 0.02)) / 40 for _ in range(64)]
             for arm, by in true.items()}  # fmt: skip
    assert all(clock_step(times) == pytest.approx(1 / 40) for times in ticks.values())
    batches = batches_of(64, None)
    ratios = [log(b / a) for a, b in zip(ticks[0], ticks[1], strict=True)]
    centre, half = estimate(ratios, batches, error_of(2, 3, 0.05) / 2, hodges_lehmann)
    half += (1 / 40 / median(ticks[0]) + 1 / 40 / median(ticks[1])) / 2
    _, arm, _ = judge_arms(ticks, look=2, looks=3)
    assert (arm.arm, arm.passes) == (1, 64)
    assert arm.ratio == pytest.approx(exp(centre))
    bounds = (exp(centre - half), exp(centre + half))
    assert (arm.ratio_low, arm.ratio_high) == pytest.approx(bounds)
    assert (arm.low, arm.high) == median_interval(ticks[1], batches)


def test_times_across_processes_have_an_interval_of_their_own() -> None:
    values = [2.0, 2.2, 2.1, 2.3]
    baseline, arm = across_processes([{0: 1.0, 1: value} for value in values])
    centre, spread = trimmed_interval([log(value) for value in values], 0.05)
    assert arm.ms == pytest.approx(2.15) and arm.passes == 4
    assert (arm.low, arm.high) == pytest.approx((exp(centre - spread), exp(centre + spread)))
    middle, half = trimmed_interval([log(value) for value in values], error_of(1, 1, 0.05))
    bounds = (exp(middle), exp(middle - half), exp(middle + half))
    assert (arm.ratio, arm.ratio_low, arm.ratio_high) == pytest.approx(bounds)
    assert (baseline.ratio, baseline.ratio_low, baseline.ratio_high) == (1.0, 1.0, 1.0)


def test_the_baseline_stays_certain_however_wide_the_processes_own_intervals_are() -> None:
    processes = [{0: 1.0, 1: 1.0}] * 3
    wide = across_processes(processes, halves=[{0: 0.5, 1: 0.5}] * 3)
    assert [standing.verdict for standing in wide] == ["tied", "unclear"]


def test_without_the_baseline_nothing_is_compared() -> None:
    with pytest.raises(ValueError, match="arm 0"):
        judge_arms({1: [1.0], 2: [1.0]})
    with pytest.raises(ValueError, match="arm 0"):
        across_processes([{1: 1.0}])
