"""Planted drift, throttling and neighbours are told; a quiet machine is not accused."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import exp, log

import pytest

from backend.measure.rounds import (
    LevelChange,
    MachineCounters,
    disturbances,
    find_change,
    mann_kendall,
    pettitt,
    slow_share,
    theil_sen,
)

TRIALS = 200
"""Each has its number as a seed, so a share of them is the same in each run."""
ROUNDS = (16, 32, 64, 128, 512)

Plant = Callable[[int, int], float]
"""What is added to the log time of a round, given its number and how many there are."""


def reference(
    seed: object,
    rounds: int,
    *,
    core: float = 0.02,
    alike: float = 0.0,
    wild: float = 0.01,
    plant: Plant = lambda at, rounds: 0.0,
) -> list[float]:
    """A reference kernel's times: lognormal, neighbours alike, a few samples much longer."""
    dice = random.Random(f"{seed}")
    wave, times = dice.gauss(0, core), []
    for at in range(rounds):
        wave = alike * wave + dice.gauss(0, core * (1 - alike**2) ** 0.5)
        more = dice.expovariate(1.4) if dice.random() < wild else 0.0
        times.append(0.25 * exp(wave + more + plant(at, rounds)))
    return times


def drift(at: int, rounds: int) -> float:
    return 0.06 * at / rounds


def throttling(at: int, rounds: int) -> float:
    return 0.12 * (at >= 40)


def share_of_silent(rounds: int, **noise: float) -> float:
    silent = [not disturbances(reference(seed, rounds, **noise)) for seed in range(TRIALS)]
    return sum(silent) / TRIALS


@pytest.mark.parametrize("rounds", ROUNDS)
def test_clean_noise_is_silent(rounds: int) -> None:
    assert share_of_silent(rounds) >= 0.95
    assert share_of_silent(rounds, core=0.05) >= 0.95
    assert share_of_silent(rounds, core=0.03, alike=0.5) >= 0.95


def test_drift_is_told_with_its_size() -> None:
    told = [disturbances(reference(seed, 200, plant=drift)) for seed in range(50)]
    assert sum(any("slower" in sentence for sentence in one) for one in told) >= 48
    drifts = [one[0] for one in told if one and one[0].startswith("drift:")]
    assert len(drifts) >= 35
    sizes = [float(one.split("became ")[1].split(" %")[0]) for one in drifts]
    assert sorted(sizes)[len(sizes) // 2] == pytest.approx(6.0, abs=0.6)


def test_a_machine_that_slows_down_at_once_is_told_with_the_round() -> None:
    found = []
    for seed in range(50):
        times = reference(seed, 128, plant=throttling)
        (sentence, *_) = disturbances(times)
        assert sentence.startswith("throttling or a new neighbour: the reference kernel became 1")
        change = find_change([log(ms) for ms in times])
        assert change is not None and change.after is not None
        found.append(change.after)
    assert all(36 <= after <= 50 for after in found)
    assert sum(abs(after - 40) <= 2 for after in found) >= 40


def test_what_became_faster_is_called_a_speed_up() -> None:
    times = reference("warm", 128, plant=lambda at, rounds: 0.2 * (at < 30))
    (sentence,) = disturbances(times)
    assert sentence.startswith("speed-up: the reference kernel became 1")
    assert sentence.endswith(" % faster after round 30 and stayed so")


def test_a_slow_spell_that_passes_is_no_throttling() -> None:
    times = reference("spell", 128, plant=lambda at, rounds: 0.12 * (50 <= at < 70))
    assert not any("stayed so" in sentence for sentence in disturbances(times))


def test_a_neighbour_is_told_with_the_share_of_rounds() -> None:
    times = reference("busy", 128, wild=0.0)
    for at in range(0, 128, 7):
        times[at] *= 3
    assert disturbances(times) == (
        "busy neighbour: 15 % of the rounds took more than 1.5 x a quiet round",
    )
    assert slow_share(times) == 19 / 128


def test_a_neighbour_that_takes_half_of_the_rounds_is_still_seen() -> None:
    busy = {at for at in range(128) if at % 8 < 5}
    times = [x * (2.5 if at in busy else 1) for at, x in enumerate(reference("half", 128))]
    assert slow_share(times) >= 0.6


def test_slow_rounds_are_counted_against_the_level_of_their_own_time() -> None:
    times = reference("level", 128, wild=0.0, plant=lambda at, rounds: 0.7 * (at >= 64))
    (sentence,) = disturbances(times)
    assert sentence.startswith("throttling") and "after round 64 " in sentence


def test_the_machines_own_signs() -> None:
    quiet = reference("signs", 64, wild=0.0)
    lacking = MachineCounters(seconds=10, cpu_seconds=7.1, load=4.2, cores=2, switches=900)
    assert disturbances(quiet, lacking) == (
        "busy neighbour: the measuring thread had the CPU for 71 % of the time, "
        "the load was 4.2 on 2 cores, preempted 90×/s",
    )
    assert (
        disturbances(quiet, MachineCounters(seconds=10, cpu_seconds=9.8, load=4.2, cores=2)) == ()
    )
    assert disturbances(quiet, MachineCounters(load=9.0, cores=2, switches=4000)) == ()
    fell = MachineCounters(clocks=(1900.0,) * 8 + (1500.0,) * 8)
    assert disturbances(quiet, fell) == ("clock: the device's clock fell from 1900 to 1500 MHz",)
    assert disturbances(quiet, MachineCounters(clocks=(1900.0, 1910.0, 1895.0, 1900.0))) == ()


def test_too_few_rounds_and_constant_ones_say_nothing() -> None:
    assert disturbances([]) == ()
    assert disturbances([0.1, 0.2] * 4) == ("busy neighbour: 50 % of the rounds took more than "
                                            "1.5 x a quiet round",)  # fmt: skip
    assert disturbances([0.25] * 64) == ()


def test_the_tests_of_change_against_values_worked_out_by_hand() -> None:
    """1 to 8: score 28 of 28, variance 8·7·21/18; Pettitt's largest score is 4·4 at the middle."""
    rising = [float(x) for x in range(1, 9)]
    assert mann_kendall(rising) == pytest.approx(0.000836, abs=1e-5)
    assert mann_kendall([1.0] * 8) == 1
    assert theil_sen([1.0, 3.0, 5.0, 90.0, 9.0]) == 2.0
    assert pettitt(rising) == (4, pytest.approx(2 * exp(-6 * 16**2 / (8**3 + 8**2))))
    assert pettitt([1.0, 1.0, 1.0, 2.0, 2.0])[0] == 3


def test_a_drift_has_the_size_of_its_way_from_the_first_group_to_the_last() -> None:
    """96 rounds are condensed to 24 medians of 4; below 16 rounds no change is sought."""
    drift = find_change([0.001 * at for at in range(96)])
    assert drift == LevelChange(pytest.approx(23 * 0.004), None)
    assert find_change([0.01 * at for at in range(16)]) is not None
    assert find_change([0.01 * at for at in range(15)]) is None
    assert find_change([0.0001 * at for at in range(96)]) is None  # 0.9 % is not worth a word


def test_a_step_has_the_height_between_its_levels_and_its_first_round() -> None:
    numbers = random.Random(1)
    times = [(at >= 40) * 0.5 + numbers.gauss(0, 0.001) for at in range(96)]
    step = find_change(times)
    assert step == LevelChange(pytest.approx(0.5, abs=0.001), 40)
    back = find_change(times[::-1])
    assert back == LevelChange(pytest.approx(-0.5, abs=0.001), 56)


def test_what_of_a_change_has_happened_by_a_round() -> None:
    step, drift = LevelChange(0.4, 5), LevelChange(0.4)
    assert [step.at(0.5, round) for round in (4, 5, 6)] == [0.0, 0.4, 0.4]
    assert drift.at(0.25, 9) == 0.1


@pytest.mark.parametrize(
    ("slow", "rounds", "share"), [(3, 60, 0.05), (2, 30, 0), (3, 61, 0), (4, 60, 4 / 60), (0, 0, 0)]
)
def test_few_slow_rounds_are_no_neighbour(slow: int, rounds: int, share: float) -> None:
    times = [1.0] * rounds
    for at in range(slow):
        times[at * 7] = 2.0
    assert slow_share(times) == share


@pytest.mark.parametrize("after", [30, 60])
def test_slow_rounds_are_compared_with_either_level(after: int) -> None:
    """Also where the second level has no round."""
    times = [1.0] * 30 + [3.0] * (after - 30)
    assert slow_share(times, 30) == 0


@pytest.mark.parametrize(
    ("signs", "said"),
    [
        (MachineCounters(seconds=10, cpu_seconds=5, cores=2), "the CPU for 50 % of the time"),
        (MachineCounters(seconds=10, cpu_seconds=5, load=9.0), "the CPU for 50 % of the time"),
        (
            MachineCounters(seconds=10, cpu_seconds=5, load=3.0, cores=2),
            "the CPU for 50 % of the time",
        ),
        (MachineCounters(seconds=10, cpu_seconds=5, load=2.1, cores=1), "2.1 on 1 core"),
        (
            MachineCounters(seconds=10, cpu_seconds=5, switches=200),
            "the CPU for 50 % of the time",
        ),
        (MachineCounters(seconds=10, cpu_seconds=5, switches=210), "preempted 21×/s"),
        (MachineCounters(seconds=10, switches=900), ""),
        (MachineCounters(cpu_seconds=1, switches=900), ""),
        (MachineCounters(seconds=10, cpu_seconds=9), ""),
    ],
)
def test_load_and_preemption_are_named_beside_a_lack_of_the_cpu(
    signs: MachineCounters, said: str
) -> None:
    sentences = disturbances([0.25] * 64, signs)
    assert (sentences[0] if sentences else "").endswith(said)
    assert len(sentences) == bool(said)


@pytest.mark.parametrize(
    ("clocks", "said"),
    [
        ((1900.0, 1900.0, 1700.0, 1700.0) + (1500.0,) * 12, "fell from 1800 to 1500"),
        ((1500.0,) * 12 + (1900.0, 1900.0, 1700.0, 1700.0), "rose from 1500 to 1800"),
        ((1000.0, 1.0, 1.0, 1010.0), ""),
        ((1000.0, 1.0, 1.0, 1020.0), "rose from 1000 to 1020"),
        ((1000.0, 1.0, 2000.0), ""),
        ((0.0, 1.0, 1.0, 2000.0), ""),
    ],
)
def test_a_change_of_the_clock_is_that_of_the_outer_quarters(
    clocks: tuple[float, ...], said: str
) -> None:
    sentences = disturbances([0.25] * 64, MachineCounters(clocks=clocks))
    assert said in "".join(sentences) and len(sentences) == bool(said)
