"""Rounds of samples: their order, their end, and what happens to choices and rounds that fail."""

from __future__ import annotations

import gc
import itertools
import os
import random
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from backend.measure.rounds import (
    BLOCK,
    MOST_REST,
    REST,
    ChoiceBroke,
    Rounds,
    Sample,
    measure,
    measurement_of,
    trouble_of,
)
from backend.measure.sensors import DeviceState
from backend.measure.verdict import FIRST
from backend.model.choice import Choice
from backend.model.problem import TuningKey
from backend.model.session import Session


@dataclass
class Clock:
    """Stands for the module `time`: only samples and rests take time, whatever the load."""

    now: float = 100.0
    rests: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.rests.append(seconds)

    thread_time = staticmethod(time.thread_time)
    time = staticmethod(time.time)


CLOCK = Clock()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    CLOCK.rests.clear()
    monkeypatch.setattr("backend.measure.rounds.time", CLOCK)


class Synthetic:
    """Choices with known times; sampling one takes `seconds`."""

    def __init__(self, times: dict[str, Callable[[], float]], seconds: float = 0.001) -> None:
        self.times = times
        self.seconds = seconds
        self.order: list[str] = []
        self.renewed: list[tuple[str, ...]] = []
        self.throttled: Callable[[], bool] = lambda: False
        self.resolution = 0.0
        self.breaks: dict[str, int] = {}
        """After how many samples a choice raises; below 0 when its memory is renewed."""

    def renew(self, hashes: Sequence[str]) -> None:
        self.renewed.append(tuple(hashes))
        for hash in hashes:
            if self.breaks.get(hash, 0) < 0:
                raise ChoiceBroke(hash, "no memory")

    def sample(self, hash: str) -> Sample:
        self.order.append(hash)
        if hash in self.breaks and self.order.count(hash) > self.breaks[hash]:
            raise ChoiceBroke(hash, "it broke")
        CLOCK.now += self.seconds
        return Sample(self.times[hash]())

    def reference(self) -> Sample:
        return Sample(1.0)

    def state(self) -> DeviceState:
        return DeviceState(1500.0, throttled=("too hot",) if self.throttled() else ())

    def resolution_ms(self, hash: str) -> float:
        return self.resolution


def _noisy(ms: float, noise: float = 0.01, seed: int = 0) -> Callable[[], float]:
    """The same times in each run: even a sure verdict is wrong for some."""
    numbers = random.Random(f"{ms} {seed}")
    return lambda: ms * numbers.lognormvariate(0, noise)


def _measured(bench: Synthetic, seconds: float = 5.0) -> Rounds:
    return measure(bench, list(bench.times), CLOCK.now + seconds, lambda rounds, left: None)


def test_a_clear_case_ends_early_and_each_round_has_every_choice_in_any_order() -> None:
    bench = Synthetic({"a": _noisy(1.0), "b": _noisy(1.5), "c": _noisy(2.0)})
    rounds = _measured(bench)
    assert [(s.hash, s.verdict) for s in rounds.standings] == [
        ("a", "faster"),
        ("b", "slower"),
        ("c", "slower"),
    ]
    assert rounds.clean.count == 16
    tries = [tuple(bench.order[at : at + 3]) for at in range(0, len(bench.order), 3)]
    assert all(set(each) == {"a", "b", "c"} for each in tries) and len(set(tries)) > 1
    assert len(bench.renewed) == 1 + 16 // BLOCK
    assert rounds.clean.blocks == [at // BLOCK for at in range(16)]


def test_the_time_is_kept_where_nothing_is_ever_clear() -> None:
    """These numbers tell nothing at any look."""
    bench = Synthetic({"a": _noisy(1.0, 0.5, 1), "b": _noisy(1.0, 0.5, 2)}, seconds=0.004)
    heard: list[float] = []
    begin = CLOCK.now
    rounds = measure(bench, ["a", "b"], begin + 1.0, lambda rounds, left: heard.append(left))
    assert 0.99 < CLOCK.now - begin <= 1.0
    assert {s.verdict for s in rounds.standings} == {"unclear"}
    assert len(heard) >= 3 and heard == sorted(heard, reverse=True)
    assert rounds.signs.seconds == pytest.approx(CLOCK.now - begin - BLOCK * 0.008)


def test_more_rounds_can_be_asked_for_while_there_is_time() -> None:
    bench = Synthetic({"a": _noisy(1.0), "b": _noisy(1.5)})
    rounds = measure(bench, ["a", "b"], CLOCK.now + 5, lambda rounds, left: None, least=100)
    assert 100 <= rounds.clean.count <= 128


def test_one_round_is_made_even_where_there_is_no_time() -> None:
    rounds = _measured(Synthetic({"a": _noisy(1.0), "b": _noisy(2.0)}), seconds=-1.0)
    assert rounds.clean.count == 1 and len(rounds.standings) == 2


def test_a_choice_that_breaks_is_dropped_and_the_others_go_on() -> None:
    bench = Synthetic({"a": _noisy(1.0), "b": _noisy(1.5), "c": _noisy(2.0), "d": _noisy(3.0)})
    bench.breaks = {"b": 7, "d": -1}
    rounds = _measured(bench)
    assert rounds.failed == {"b": "it broke", "d": "no memory"}
    assert [(s.hash, s.verdict) for s in rounds.standings] == [("a", "faster"), ("c", "slower")]
    bench.breaks = {"a": 3, "c": 4, "b": -1, "d": -1}
    bench.order.clear()
    rounds = _measured(bench)
    assert set(rounds.failed) == {"a", "b", "c", "d"} and rounds.hashes == []


def test_a_measurement_says_which_choices_failed_and_why() -> None:
    bench = Synthetic({"a": _noisy(1.0), "b": _noisy(1.5)})
    bench.breaks = {"b": 2}
    names = {"a": "mm", "b": "triton_mm_1"}
    key = TuningKey("mm", "[]", "highest")
    found = measurement_of(key, _measured(bench), names, Session("s"), {}, "hot")
    assert [choice.hash for choice in found.choices] == ["a"]
    assert found.failed == (Choice("triton_mm_1", "b", failed=True, reason="it broke"),)


class Disturbed(Synthetic):
    """Of its samples only some are clean; in the others `b` looks ten times as fast as it is."""

    clean_share = 0.8
    numbers = random.Random(3)

    def sample(self, hash: str) -> Sample:
        found = super().sample(hash)
        if self.numbers.random() < self.clean_share:
            return found
        return Sample(found.ms / 10 if hash == "b" else found.ms, clean=False)


def test_disturbed_rounds_do_not_count_and_alone_prove_nothing() -> None:
    bench = Disturbed({"a": _noisy(1.0), "b": _noisy(1.5)})
    rounds = _measured(bench)
    assert [(s.hash, s.verdict) for s in rounds.standings] == [("a", "faster"), ("b", "slower")]
    assert rounds.clean.count == 16 and rounds.disturbed.count > 0
    bench.clean_share = 0.0
    rounds = _measured(bench, seconds=0.3)
    assert rounds.clean.count == 0 and rounds.judged is rounds.disturbed
    assert {s.verdict for s in rounds.standings} == {"unclear"}


def test_throttled_rounds_are_counted_apart_and_the_device_is_left_alone_after_them() -> None:
    turns = itertools.count()
    bench = Synthetic({"a": _noisy(1.0), "b": _noisy(1.5)}, seconds=0.002)
    bench.throttled = lambda: next(turns) % 3 == 0
    rounds = _measured(bench)
    assert [(s.hash, s.verdict) for s in rounds.standings] == [("a", "faster"), ("b", "slower")]
    assert rounds.clean.count == 16 and rounds.throttled == rounds.disturbed.count >= 7
    assert rounds.signs.clocks == (1500.0,) * (rounds.clean.count + rounds.throttled)
    assert CLOCK.rests == pytest.approx([REST * 0.004] * rounds.throttled)
    assert rounds.rested == pytest.approx(sum(CLOCK.rests))
    assert rounds.signs.seconds == pytest.approx(0.006 * len(rounds.states), rel=0.5)
    (said,) = [line for line in trouble_of(rounds) if "rounds" in line]
    assert said.endswith(": throttled (too hot)")  # and none was lost to other processes
    bench.throttled = lambda: True
    rounds = _measured(bench, seconds=0.3)
    assert rounds.clean.count == 0 and rounds.throttled == rounds.disturbed.count > 0
    assert {s.verdict for s in rounds.standings} == {"unclear"}


def test_no_verdict_is_finer_than_what_the_clock_can_tell() -> None:
    bench = Synthetic({"a": _noisy(1.0, 0.001), "b": _noisy(1.03, 0.001)})
    assert _measured(bench).standings[1].verdict == "slower"
    bench.resolution = 0.05
    rounds = _measured(bench, seconds=0.2)
    assert rounds.resolutions == {"a": 0.05, "b": 0.05}
    assert {s.verdict for s in rounds.standings} == {"unclear"}


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_is_not_collected_between_samples_and_is_as_before_afterwards(
    enabled: bool,
) -> None:
    collected: set[bool] = set()

    class Watched(Synthetic):
        def sample(self, hash: str) -> Sample:
            collected.add(gc.isenabled())
            return super().sample(hash)

    was = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        _measured(Watched({"a": _noisy(1.0), "b": _noisy(1.5)}))
        after = gc.isenabled()
    finally:
        (gc.enable if was else gc.disable)()
    assert collected == {False} and after is enabled


@pytest.mark.parametrize(
    ("seconds", "looks"), [(-1.0, 2), (0.031, 2), (0.033, 3), (0.1, 4), (1e6, 8)]
)
def test_the_time_decides_how_often_is_looked(seconds: float, looks: int) -> None:
    """A round takes 2 ms: one look more than there is time for, and no more than eight."""
    bench = Synthetic({"a": _noisy(1.0), "b": _noisy(1.5)})
    warm_up = BLOCK * 0.002
    rounds = measure(bench, ["a", "b"], CLOCK.now + seconds + warm_up, lambda rounds, left: None)
    assert rounds.looked == (1, looks)


def test_each_look_comes_after_a_whole_block() -> None:
    assert FIRST % BLOCK == 0


def test_a_rest_after_a_throttled_round_is_no_longer_than_its_limit() -> None:
    bench = Synthetic({"a": _noisy(1.0), "b": _noisy(1.5)}, seconds=0.1)
    bench.throttled = lambda: True
    _measured(bench, seconds=2.0)
    assert set(CLOCK.rests) == {MOST_REST}


def test_the_machines_counters_are_those_of_the_rounds() -> None:
    def spent() -> tuple[float, int]:
        return time.thread_time(), resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw

    (cpu, switches), rounds = spent(), _measured(Synthetic({"a": _noisy(1.0), "b": _noisy(1.5)}))
    cpu_after, switches_after = spent()
    signs = rounds.signs
    assert signs.cpu_seconds is not None and 0 < signs.cpu_seconds <= cpu_after - cpu
    assert signs.switches is not None and 0 <= signs.switches <= switches_after - switches
    assert signs.cores == os.cpu_count() and signs.load is not None


def test_a_choice_that_is_expelled_leaves_a_verdict_on_the_others() -> None:
    rounds = _measured(Synthetic({"a": _noisy(1.0), "b": _noisy(1.5), "c": _noisy(2.0)}))
    looked = rounds.looked
    rounds.expel(ChoiceBroke("a", "its result is wrong"))
    assert [(s.hash, s.verdict) for s in rounds.standings] == [("b", "faster"), ("c", "slower")]
    assert rounds.failed == {"a": "its result is wrong"} and rounds.looked == looked
    for hash in "bc":
        rounds.expel(ChoiceBroke(hash, "its result is wrong"))
    assert rounds.standings == () and rounds.hashes == []


def test_earlier_rounds_can_be_extended() -> None:
    bench = Synthetic({"a": _noisy(1.0), "b": _noisy(1.5)})
    rounds = _measured(bench)
    more = measure(bench, [], CLOCK.now + 5, lambda rounds, left: None, least=32, rounds=rounds)
    assert more is rounds and rounds.clean.count == 32


def test_a_measurement_has_the_facts_of_its_rounds_and_its_session() -> None:
    bench = Synthetic({"a": _noisy(1.0), "b": _noisy(1.5)})
    bench.resolution = 0.001
    rounds = _measured(bench)
    rounds.states[0] = DeviceState(1500.0, 300.0, 60.0)
    session = Session("s", device="MI300X", system_hash="h")
    key, names = TuningKey("mm", "[]", "highest"), {"a": "mm", "b": "triton_mm_1"}
    found = measurement_of(key, rounds, names, session, {}, "cold", ("it was hot",))
    assert [choice.name for choice in found.choices] == ["mm", "triton_mm_1"]
    assert (found.op, found.inputs, found.precision, found.caches) == (
        "mm",
        "[]",
        "highest",
        "cold",
    )
    assert (found.device, found.system_hash, found.session) == ("MI300X", "h", "s")
    assert (found.rounds, found.reference_ms, found.resolution_ms) == (16, 1.0, 0.001)
    assert found.seconds == rounds.signs.seconds
    assert (found.clock_mhz, found.power_w, found.temperature_c) == (1500.0, 300.0, 60.0)
    assert found.throttled == 0 and found.trouble[-1] == "it was hot"


@pytest.mark.parametrize(
    ("clean", "lost", "throttled", "said"),
    [
        (9, 1, 0, []),
        (8, 2, 0, ["2 of 10 rounds do not count: other processes"]),
        (4, 1, 0, ["1 of 5 rounds does not count: other processes"]),
        (8, 0, 2, ["2 of 10 rounds do not count: throttled (too hot, power cap)"]),
        (6, 2, 2, ["2 of 10 rounds do not count: throttled", "2 of 10 rounds do not count: other"]),
        (0, 3, 0, ["other processes took the CPU in every round, so nothing is proved"]),
        (0, 0, 3, ["every round was throttled (too hot, power cap), so nothing is proved"]),
        (
            0,
            1,
            2,
            [
                "2 of 3 rounds do not count: throttled",
                "no round was undisturbed, so nothing is proved",
            ],
        ),
    ],
)
def test_rounds_that_do_not_count_are_named_with_their_reason(
    clean: int, lost: int, throttled: int, said: list[str]
) -> None:
    rounds = Rounds(["a"], throttled=throttled)
    for _ in range(clean):
        rounds.clean.add(0, {"a": Sample(1.0)}, Sample(1.0))
    for _ in range(lost + throttled):
        rounds.disturbed.add(0, {"a": Sample(1.0)}, Sample(1.0))
    hot = [("power cap", "too hot"), *[("too hot",)] * (throttled - 1)][:throttled]
    rounds.states = [DeviceState(throttled=reasons) for reasons in hot]
    sentences = trouble_of(rounds)
    assert len(sentences) == len(said)
    assert all(words in sentence for words, sentence in zip(said, sentences, strict=True))
