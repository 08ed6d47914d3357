"""Counting and sampling calls, with a clock and a stream of our own."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from backend.inductor.hooks.calls import BUDGET, MAX_PENDING, MAX_STEP, GraphCalls, next_step
from backend.model.graph import GraphTimes

US = 1e-6


class Clock:
    """Time passes only where somebody lets it; each look at it takes a microsecond."""

    def __init__(self) -> None:
        self.now = 100.0
        self.looks = 0

    def __call__(self) -> float:
        self.now += US
        self.looks += 1
        return self.now


class Stream:
    """A device that is done with the samples when `done` says so."""

    def __init__(self, ms: float = 2.0) -> None:
        self.ms = ms
        self.done = 0
        self.begun = 0
        self.capturing = False

    def begin(self) -> int | None:
        if self.capturing:
            return None
        self.begun += 1
        return self.begun

    def end(self, pair: int) -> bool:
        return not self.capturing

    def passed(self, pair: int) -> float | None:
        return self.ms if pair <= self.done else None


def calls_of(
    clock: Clock, seconds: float, **options: Any
) -> tuple[GraphCalls, Callable[[Any], Any]]:
    """A graph that takes `seconds` a call."""
    options = {"stream": None, "host": True, "draw": random.Random(0).random, **options}
    calls = GraphCalls(clock=clock, **options)

    def stock(inputs: Any) -> Any:
        clock.now += seconds
        return inputs

    return calls, calls.wrap(stock)


def test_each_call_counts_and_the_result_is_the_graphs_own() -> None:
    calls, called = calls_of(Clock(), 1e-3)
    inputs = [object()]
    assert all(called(inputs) is inputs for _ in range(1000))
    assert calls.times().calls == 1000


def test_the_first_calls_are_not_timed() -> None:
    calls, called = calls_of(Clock(), 1e-3, skipped=4)
    for _ in range(4):
        called([])
    assert calls.times() == GraphTimes(4, 0, None, "host")
    called([])
    assert calls.times().timed == 1


def test_the_mean_is_that_of_the_calls() -> None:
    calls, called = calls_of(Clock(), 3e-3)
    for _ in range(5000):
        called([])
    times = calls.times()
    assert times.ms == pytest.approx(3.0, rel=0.01)
    assert times.timed < 2000


def test_a_sample_stands_for_the_calls_since_the_one_before() -> None:
    """Half of all calls take ten times as long, and come last."""
    clock = Clock()
    calls = GraphCalls(stream=None, host=True, clock=clock, draw=random.Random(0).random)
    seconds = 1e-3

    def stock(inputs: Any) -> Any:
        clock.now += seconds

    called = calls.wrap(stock)
    for _ in range(20_000):
        called([])
    seconds = 1e-2
    for _ in range(20_000):
        called([])
    assert calls.times().total_ms == pytest.approx(20_000 * 1.0 + 20_000 * 10.0, rel=0.03)


def test_long_and_short_calls_by_turns_are_seen_alike() -> None:
    clock = Clock()
    calls = GraphCalls(stream=None, host=True, clock=clock, draw=random.Random(0).random)
    number = 0

    def stock(inputs: Any) -> Any:
        nonlocal number
        number += 1
        clock.now += 8e-3 if number % 8 == 0 else 1e-3

    called = calls.wrap(stock)
    for _ in range(100_000):
        called([])
    assert calls.times().ms == pytest.approx(15 / 8, rel=0.15)


@pytest.mark.parametrize("seconds", [2e-6, 20e-6, 1e-3, 0.2])
def test_timing_takes_less_than_its_budget(seconds: float) -> None:
    """Here a sample takes five looks at the clock."""
    clock = Clock()
    calls, called = calls_of(clock, seconds)
    number = int(20 / seconds) if seconds > 1e-3 else 300_000
    for _ in range(number):
        called([])
    assert calls.times().timed > 5
    assert clock.looks * US < 2 * BUDGET * number * seconds + 100 * US


def test_next_step_keeps_to_the_budget_and_grows_by_two() -> None:
    dear = {"cost": 10 * US, "host": 20 * US, "graphs": 1, "spacing": 1e-3}
    assert next_step(**dear, period=30 * US, last=1) == int(10 / (BUDGET * 20)) + 1
    cheap = {"cost": US, "host": 1e-2, "graphs": 1, "spacing": 1.0}
    assert [next_step(**cheap, period=1e-2, last=last) for last in (1, 3, 80)] == [3, 7, 101]
    # A graph that is called once a second may be timed at each call, whatever that costs.
    assert next_step(cost=1e-3, host=US, period=1.0, graphs=1, spacing=1.0, last=1) == 2
    assert next_step(cost=1.0, host=0.0, period=1e-9, graphs=9, spacing=1.0, last=1) == MAX_STEP
    # Nothing is known of the calls yet; then 30 samples a second of all graphs are free.
    assert next_step(cost=1.0, host=1.0, period=0.0, graphs=1, spacing=1.0, last=50) == 1
    many = {"cost": 1.0, "host": 1e-6, "period": 1e-3, "spacing": 1e-3, "last": 1}
    assert [next_step(**many, graphs=graphs) for graphs in (1, 30, 90)] == [1001, 1001, 3001]


def test_a_device_is_asked_later_and_never_waited_for() -> None:
    stream = Stream()
    calls, called = calls_of(Clock(), 1e-3, stream=stream)
    for _ in range(5000):
        called([])
    assert calls.times() == GraphTimes(5000, 0, None, "device")
    assert stream.begun == MAX_PENDING
    stream.done = MAX_PENDING
    assert calls.times() == GraphTimes(5000, MAX_PENDING, 2.0, "device")


def test_nothing_is_recorded_while_the_stream_is_captured() -> None:
    stream = Stream()
    stream.capturing, stream.done = True, MAX_STEP
    calls, called = calls_of(Clock(), 1e-3, stream=stream)
    for _ in range(500):
        called([])
    assert (stream.begun, calls.times()) == (0, GraphTimes(500, 0, None, "device"))
    stream.capturing = False
    for _ in range(500):
        called([])
    assert calls.times().timed > 10


def test_a_stream_that_fails_harms_no_call() -> None:
    class Broken(Stream):
        def end(self, pair: int) -> bool:
            raise RuntimeError("an illegal memory access was encountered")

    stream = Broken()
    calls, called = calls_of(Clock(), 1e-3, stream=stream, host=False, skipped=0)
    assert [called([n]) for n in range(50)] == [[n] for n in range(50)]
    assert calls.times() == GraphTimes(50, 0, None, "device")
    assert stream.begun == 1  # and is left alone after that


def test_what_a_graph_raises_goes_through() -> None:
    calls = GraphCalls(stream=None, host=True)

    def stock(inputs: Any) -> Any:
        raise ValueError("theirs")

    called = calls.wrap(stock)
    for _ in range(10):
        with pytest.raises(ValueError, match="theirs"):
            called([])
    assert calls.times() == GraphTimes(10, 0, None, "host")


def test_nothing_is_timed_while_a_mode_watches() -> None:
    idle = False
    calls, called = calls_of(Clock(), 1e-3, idle=lambda: idle)
    for _ in range(50):
        called([])
    assert calls.times().timed == 0
    idle = True
    for _ in range(50):
        called([])
    assert calls.times().timed > 5


def test_threads_lose_no_call() -> None:
    calls = GraphCalls(stream=None, host=True)
    copies = [calls.wrap(lambda inputs: inputs) for _ in range(2)]

    def work() -> None:
        for _ in range(5000):
            for called in copies:
                called([])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls.times().calls == 4 * 5000 * 2


def test_a_restart_forgets() -> None:
    calls, called = calls_of(Clock(), 1e-3)
    for _ in range(100):
        called([])
    calls.restart()
    assert calls.times() == GraphTimes(0, 0, None, "host")
    called([])
    assert calls.times().calls == 1


def test_what_a_signal_handler_raises_while_a_call_is_sampled_is_the_programs_own() -> None:
    """Anything else that goes wrong there ends the sampling, and the call goes on."""

    class Late(Exception):
        pass

    def handler(*_: object) -> None:
        raise Late

    class Interrupted(Stream):
        def begin(self) -> int | None:
            signal.raise_signal(signal.SIGUSR1)
            return super().begin()

    class Broken(Stream):
        def begin(self) -> int | None:
            raise RuntimeError("the device is gone")

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        _, called = calls_of(Clock(), 1e-3, stream=Interrupted(), host=False, skipped=0)
        with pytest.raises(Late):
            called([])
    finally:
        signal.signal(signal.SIGUSR1, before)
    calls, called = calls_of(Clock(), 1e-3, stream=Broken(), host=False, skipped=0)
    inputs = [object()]
    assert called(inputs) is inputs and calls.times().calls == 1


@pytest.mark.parametrize(("draw", "steps"), [(0.0, 1), (0.999, 1001)])
def test_the_next_timed_call_is_drawn_among_those_around_the_step(draw: float, steps: int) -> None:
    """A graph that is called every millisecond, and whose timing is dear: 501 calls on average."""
    clock = Clock()
    timed: list[int] = []
    number = 0

    def stock(inputs: Any) -> Any:
        nonlocal number
        number += 1
        clock.now += 1e-3

    calls = GraphCalls(
        stream=None,
        host=True,
        clock=clock,
        graphs=lambda: 15,
        draw=lambda: draw,
        after=lambda now: timed.append(number),
        skipped=0,
    )
    called = calls.wrap(stock)
    for _ in range(6000):
        called([])
    gaps = {b - a for a, b in pairwise(timed[10:])}
    if steps == 1:
        assert gaps == {1} and timed[0] == 1
    else:
        assert max(gaps) > 2 and calls.times().calls == 6000


def test_without_a_clock_of_its_device_a_graph_is_only_counted() -> None:
    clock = Clock()
    calls, called = calls_of(clock, 1e-3, host=False, skipped=0)
    for _ in range(10):
        called([])
    assert calls.times() == GraphTimes(10, 0, None, "host") and clock.looks < 10


def test_a_graph_that_is_stopped_is_only_counted() -> None:
    calls, called = calls_of(Clock(), 1e-3, skipped=0, draw=lambda: 0.0)
    for _ in range(5):
        called([])
    before = calls.times()
    calls.stop()
    for _ in range(5):
        called([])
    after = calls.times()
    assert (before.timed, after.timed, after.calls) == (5, 5, 10)


def test_samples_are_collected_in_their_order_as_soon_as_the_device_has_them() -> None:
    """Also by a call that is not timed itself, since there are too many samples or a mode is on."""
    stream, idle = Stream(), True
    calls, called = calls_of(
        Clock(), 1e-3, stream=stream, skipped=0, draw=lambda: 0.0, idle=lambda: idle
    )
    for _ in range(3):
        called([])
    stream.done = 2
    idle = False
    called([])
    stream.done = 0  # what was collected stays
    assert calls.times() == GraphTimes(4, 2, 2.0, "device")
    stream.done, stream.ms, idle = 3, 5.0, True
    assert calls.times() == GraphTimes(4, 3, 3.0, "device")


def test_a_sample_whose_end_the_stream_does_not_take_is_none() -> None:
    """As where a capture begins meanwhile; the next sample stands for its calls too."""
    stream = Stream()
    stream.done = MAX_STEP
    calls, called = calls_of(Clock(), 1e-3, stream=stream, skipped=0, draw=lambda: 0.0)
    stream.end = lambda pair: pair != 1  # type: ignore[method-assign]
    for ms in (9.0, 1.0, 4.0):
        stream.ms = ms
        called([])
    assert calls.times() == GraphTimes(3, 2, (2 * 1.0 + 4.0) / 3, "device")
