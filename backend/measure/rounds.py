"""Rounds of samples, until the verdict is clear or the time is up. Knows no torch."""

from __future__ import annotations

import gc
import os
import random
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from backend.measure.disturbance import Signs
from backend.measure.machine.state import State
from backend.measure.verdict import judge, schedule, settled
from backend.model.choice import MeasuredChoice

BLOCK = 2
"""Rounds in the same memory: where inputs and outputs lie favours one choice or another."""
MOST_LOOKS = 8
PROGRESS_SECONDS = 0.25
REST = 4.0
"""So many times as long as a throttled round took the device is left alone: it may cool down."""
MOST_REST = 0.25
"""Seconds."""

_dice = random.Random()
"""Of our own: a program that is measured from inside has numbers of its own."""


class ChoiceBroke(Exception):
    """A choice cannot be run; `reason` is one line."""

    def __init__(self, hash: str, reason: str) -> None:
        super().__init__(reason)
        self.hash = hash
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Sample:
    """Milliseconds of one call. `clean`: no other process took the CPU meanwhile."""

    ms: float
    clean: bool = True


class Bench(Protocol):
    """Choices that can be sampled."""

    def renew(self, hashes: Sequence[str]) -> None:
        """Put all inputs and outputs elsewhere and warm each choice up. Raises ChoiceBroke."""

    def sample(self, hash: str) -> Sample:
        """Raises ChoiceBroke."""

    def reference(self) -> Sample:
        """Of a kernel that is the same in every round."""

    def state(self) -> State:
        """How the device is doing, or did lately."""

    def resolution_ms(self, hash: str) -> float:
        """The smallest difference of two samples of a choice that the clock can tell."""


@dataclass
class Series:
    """`reference`, `blocks` and each of `times` have one entry a round."""

    times: dict[str, list[float]] = field(default_factory=dict)
    reference: list[float] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.blocks)

    def add(self, block: int, samples: dict[str, Sample], reference: Sample) -> None:
        for hash, sample in samples.items():
            self.times.setdefault(hash, []).append(sample.ms)
        self.reference.append(reference.ms)
        self.blocks.append(block)


@dataclass
class Rounds:
    """What was seen of the choices `hashes` that can be run.

    Only `clean` rounds count; `disturbed` ones are those in which another process took the CPU, or
    the device was `throttled`. `states` has one entry a round, of all of them. `resolutions` are
    the smallest differences, in ms, that the clock can tell, by hash.
    """

    hashes: list[str]
    clean: Series = field(default_factory=Series)
    disturbed: Series = field(default_factory=Series)
    failed: dict[str, str] = field(default_factory=dict)
    standings: tuple[MeasuredChoice, ...] = ()
    signs: Signs = field(default_factory=Signs)
    states: list[State] = field(default_factory=list)
    throttled: int = 0
    resolutions: dict[str, float] = field(default_factory=dict)
    looked: tuple[int, int] = (1, 1)
    """The last look, of how many."""

    @property
    def judged(self) -> Series:
        """The rounds that the standings come from."""
        return self.clean if self.clean.count else self.disturbed

    def drop(self, broken: ChoiceBroke) -> None:
        self.hashes.remove(broken.hash)
        self.failed[broken.hash] = broken.reason
        for series in (self.clean, self.disturbed):
            series.times.pop(broken.hash, None)

    def expel(self, broken: ChoiceBroke) -> None:
        """Drop a choice when all is measured: the others are judged without it."""
        self.drop(broken)
        self.standings = ()
        if self.hashes:
            self.judge(*self.looked)

    def judge(self, look: int, looks: int) -> None:
        """Disturbed rounds alone prove nothing."""
        self.looked = (look, looks)
        series = self.judged
        standings = judge(
            series.times, series.blocks, look=look, looks=looks, resolutions=self.resolutions
        )
        if series is self.disturbed:
            standings = tuple(replace(standing, verdict="unclear") for standing in standings)
        self.standings = standings


OnRounds = Callable[[Rounds, float], None]
"""Hears of the rounds so far, and of the seconds that are left at most."""


def measure(
    bench: Bench,
    hashes: Sequence[str],
    deadline: float,
    hear: OnRounds,
    least: int = 0,
    rounds: Rounds | None = None,
) -> Rounds:
    """Sample `hashes` in rounds, each in a random order, until all verdicts are clear.

    Ends about at `deadline` (of `time.monotonic`), but not before one round was made, nor, while
    there is time, before `least` are: medians to be compared with another day's take more rounds
    than a clear verdict does. `rounds` are those to add to, where they are judged in another way.
    """
    rounds = Rounds(list(hashes)) if rounds is None else rounds
    with _no_garbage_collection():
        warm = Rounds(rounds.hashes, failed=rounds.failed)  # the first rounds are slower
        took = [_timed_round(bench, warm, attempt) for attempt in range(BLOCK)]
        rounds.resolutions = {hash: bench.resolution_ms(hash) for hash in rounds.hashes}
        looks = _looks((deadline - time.monotonic()) / min(took))
        with _signs_of(rounds):
            _until_settled(bench, rounds, deadline, looks, hear, least)
    return rounds


def _until_settled(
    bench: Bench, rounds: Rounds, deadline: float, looks: int, hear: OnRounds, least: int
) -> None:
    heard = begin = now = time.monotonic()
    attempt = 0
    for look, count in enumerate(schedule(looks), start=1):
        while rounds.hashes and rounds.clean.count < count:
            if attempt and now + (now - begin) / attempt > deadline:
                break
            _round(bench, rounds, attempt)
            attempt += 1
            if rounds.states[-1].throttled:
                time.sleep(min(REST * (time.monotonic() - now), MOST_REST))
            now = time.monotonic()
            if now - heard > PROGRESS_SECONDS:
                heard = now
                hear(rounds, deadline - now)
        if not rounds.hashes:
            return
        rounds.judge(look, looks)
        hear(rounds, deadline - now)
        if rounds.clean.count < count or (count >= least and settled(rounds.standings)):
            return


def _round(bench: Bench, rounds: Rounds, attempt: int) -> None:
    """One sample of each choice and of the reference; a choice that breaks is dropped.

    The order is random each time, of what is made anew too: the first one gets another memory.
    """
    old = attempt % BLOCK != 0
    samples: dict[str, Sample] = {}
    while rounds.hashes and not samples:
        try:
            if not old:
                bench.renew(_dice.sample(rounds.hashes, len(rounds.hashes)))
            old = True
            order = _dice.sample(rounds.hashes, len(rounds.hashes))
            samples = {hash: bench.sample(hash) for hash in order}
        except ChoiceBroke as broken:
            rounds.drop(broken)
    reference = bench.reference()
    state = bench.state()
    rounds.states.append(state)
    rounds.throttled += bool(state.throttled)
    clean = reference.clean and all(sample.clean for sample in samples.values())
    clean = clean and not state.throttled
    series = rounds.clean if clean else rounds.disturbed
    series.add(attempt // BLOCK, samples, reference)


def _timed_round(bench: Bench, rounds: Rounds, attempt: int) -> float:
    """The seconds that one round took."""
    begin = time.monotonic()
    _round(bench, rounds, attempt)
    return time.monotonic() - begin


def _looks(rounds: float) -> int:
    """One more than so many rounds reach: that costs little, one too few would waste time."""
    return min(MOST_LOOKS, sum(count < rounds for count in schedule(MOST_LOOKS)) + 2)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    gc.collect()
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextmanager
def _signs_of(rounds: Rounds) -> Iterator[None]:
    """What the system tells of this thread and its neighbours while the block runs."""
    begin, cpu = time.monotonic(), time.thread_time()
    switches = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
    try:
        yield
    finally:
        rounds.signs = Signs(
            seconds=time.monotonic() - begin,
            cpu_seconds=time.thread_time() - cpu,
            load=os.getloadavg()[0],
            cores=os.cpu_count(),
            switches=resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw - switches,
            clocks=tuple(s.clock_mhz for s in rounds.states if s.clock_mhz is not None),
        )
