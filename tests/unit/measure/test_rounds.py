"""Rounds of samples: their order, their end, and what happens to choices and rounds that fail."""

from __future__ import annotations

import gc
import itertools
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from backend.measure.rounds import (
    BLOCK,
    REST,
    ChoiceBroke,
    Rounds,
    Sample,
    measure,
    measurement_of,
)
from backend.measure.sensors import DeviceState
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
