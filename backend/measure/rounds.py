"""Rounds of samples, until the verdict is clear or the time is up, and the measurement that they
give. Knows no torch.
"""

from __future__ import annotations

import gc
import os
import random
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Protocol

from backend.counted import counted, noun
from backend.measure.disturbance import Signs, disturbances
from backend.measure.sensors import DeviceState, middle
from backend.measure.verdict import judge, schedule, settled
from backend.model.choice import Caches, Choice, MeasuredChoice, Measurement, Output
from backend.model.problem import TuningKey
from backend.model.session import Session

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

    def state(self) -> DeviceState:
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
    states: list[DeviceState] = field(default_factory=list)
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


LOST_SHARE = 0.1
"""Share of the rounds that another process spoiled, from which on that is told."""


def measurement_of(
    key: TuningKey,
    rounds: Rounds,
    names: Mapping[str, str],
    session: Session,
    outputs: Mapping[str, Output],
    caches: Caches,
    trouble: tuple[str, ...] = (),
) -> Measurement:
    """The standings of `rounds`, which has some; `names` and `outputs` by hash; `trouble` is what
    there is to say beside what disturbed it."""
    return Measurement(
        op=key.op,
        inputs=key.inputs,
        precision=key.precision,
        when=time.time(),
        choices=tuple(
            replace(standing, name=names[standing.hash], output=outputs.get(standing.hash))
            for standing in rounds.standings
        ),
        failed=tuple(
            Choice(name=names.get(hash), hash=hash, failed=True, reason=reason)
            for hash, reason in rounds.failed.items()
        ),
        rounds=rounds.judged.count,
        seconds=rounds.signs.seconds or 0.0,
        caches=caches,
        reference_ms=median(rounds.judged.reference),
        trouble=(*trouble_of(rounds), *trouble),
        device=session.device,
        system_hash=session.system_hash,
        session=session.id,
        resolution_ms=max((rounds.resolutions[s.hash] for s in rounds.standings), default=None),
        clock_mhz=middle(state.clock_mhz for state in rounds.states),
        power_w=middle(state.power_w for state in rounds.states),
        temperature_c=middle(state.temperature_c for state in rounds.states),
        throttled=rounds.throttled,
    )


def trouble_of(rounds: Rounds) -> tuple[str, ...]:
    """What disturbed them, in sentences."""
    sentences = disturbances(rounds.judged.reference, rounds.signs)
    clean, lost = rounds.clean.count, rounds.disturbed.count - rounds.throttled
    every = clean + rounds.disturbed.count
    if rounds.throttled:
        reasons = Counter(reason for state in rounds.states for reason in state.throttled)
        why = ", ".join(reason for reason, _ in reasons.most_common())
        if rounds.throttled == every:
            return (*sentences, f"every round was throttled ({why}), so nothing is proved")
        count = f"{_uncounted(rounds.throttled, every)}: throttled ({why})"
        sentences = (*sentences, count)
    if not clean:
        return (*sentences, "other processes took the CPU in every round, so nothing is proved")
    if lost > LOST_SHARE * every:
        share = f"{_uncounted(lost, every)}: other processes took the CPU"
        return (*sentences, share)
    return sentences


def _uncounted(rounds: int, every: int) -> str:
    return f"{rounds} of {counted(every, 'round')} {noun(rounds, 'does', 'do')} not count"
