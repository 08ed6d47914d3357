"""Rounds of samples until the verdict is clear or time is up; the resulting measurement; and
sentences about disturbances: drift, throttling, a busy neighbour. Without torch.

Evidence of a disturbance comes from a kernel that is the same in every round, and from the
machine's counters. Did its times change their level: in a step, in a drift, or not at all? The
times are condensed to medians of neighbours, so that single outliers and short waves do not count.
A trend is tested as in Mann (1945) and Kendall (1975) and sized as in Theil (1950) and Sen (1968);
a step is found and tested as in Pettitt (1979).
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
from itertools import combinations, pairwise
from math import erfc, exp, log, log1p, sqrt
from statistics import fmean, median
from typing import Protocol

from backend.counted import counted, noun
from backend.measure.sensors import DeviceState, middle
from backend.measure.verdict import judge, likeness, quartiles, schedule, settled, swelling
from backend.model.choice import Caches, Choice, MeasuredChoice, Measurement, Output
from backend.model.problem import TuningKey
from backend.model.session import Session

FEWEST = 16
"""The number of rounds below which no change is sought."""
GROUPS = 24
"""The maximum number of medians that the rounds are condensed to."""
ERROR = 0.01
"""The probability that a test reports a change where there is none."""
WORTH = 0.02
"""The smallest relative change that is reported."""
SURE = 3.5
"""Standard errors of a significant step; 1 % by chance at any position (Andrews 1993)."""
SHORTEST = 4
"""The number of rounds that a level must last."""


@dataclass(frozen=True, slots=True)
class LevelChange:
    """The change of the log time, and the round after which it happened (None: gradually)."""

    size: float
    after: int | None = None

    def at(self, share: float, round: int) -> float:
        """Return the part of the change that has happened by a round at this share of the time."""
        if self.after is None:
            return self.size * share
        return self.size if round >= self.after else 0.0


def find_change(times: Sequence[float]) -> LevelChange | None:
    """Return the step or trend in a series of log times, whichever fits better, if there is one."""
    if len(times) < FEWEST:
        return None
    condensed = _condensed(times)
    changes = [
        change
        for change in (_step(times, condensed), _drift(condensed))
        if change and abs(change.size) >= log1p(WORTH)
    ]
    return min(changes, key=lambda change: _misfit(times, change), default=None)


def mann_kendall(values: Sequence[float], waves: float = 1.0) -> float:
    """Return the two-sided p of no trend, from how many later values are higher than earlier ones.
    `waves` is the factor by which correlated neighbours increase the variance."""
    count = len(values)
    score = sum((later > earlier) - (later < earlier) for earlier, later in combinations(values, 2))
    variance = waves * count * (count - 1) * (2 * count + 5) / 18
    return erfc(max(0, abs(score) - 1) / sqrt(2 * variance))


def theil_sen(values: Sequence[float]) -> float:
    """Return the slope per step: the median slope of all pairs."""
    pairs = combinations(enumerate(values), 2)
    return median((later - earlier) / (at - start) for (start, earlier), (at, later) in pairs)


def pettitt(values: Sequence[float]) -> tuple[int, float]:
    """Return after how many values the level most likely changes, and the p of no change at all."""
    count, score, scores = len(values), 0.0, []
    for rank in _ranks(values)[:-1]:
        score += 2 * rank - (count + 1)
        scores.append(abs(score))
    most = max(scores)
    return scores.index(most) + 1, min(1.0, 2 * exp(-6 * most**2 / (count**3 + count**2)))


def _condensed(times: Sequence[float]) -> list[float]:
    groups = min(GROUPS, len(times) // 2)
    bounds = [len(times) * group // groups for group in range(groups + 1)]
    return [median(times[low:high]) for low, high in pairwise(bounds)]


def _ranks(values: Sequence[float]) -> list[float]:
    """Return ranks from 1; equal values share the mean of their ranks."""
    places: dict[float, list[int]] = {}
    for place, value in enumerate(sorted(values), 1):
        places.setdefault(value, []).append(place)
    return [fmean(places[value]) for value in values]


def _drift(condensed: Sequence[float]) -> LevelChange | None:
    slope = theil_sen(condensed)
    waves = swelling(likeness([value - slope * at for at, value in enumerate(condensed)]))
    if mann_kendall(condensed, waves) >= ERROR:
        return None
    return LevelChange(slope * (len(condensed) - 1))


def _step(times: Sequence[float], condensed: Sequence[float]) -> LevelChange | None:
    """Return a change of level that exceeds the waves around it, and lasts."""
    at, p = pettitt(condensed)
    if p >= ERROR or abs(_height(condensed, at)) < SURE * _error_of_height(condensed, at):
        return None
    after, _ = pettitt(times)
    if min(after, len(times) - after) < SHORTEST or not _lasts(times, after):
        return None
    return LevelChange(_height(times, after), after)


def _height(values: Sequence[float], at: int) -> float:
    return median(values[at:]) - median(values[:at])


def _error_of_height(values: Sequence[float], at: int) -> float:
    """Return the standard error of a step's height, from the median distance to its two levels."""
    residuals = [value - median(part) for part in (values[:at], values[at:]) for value in part]
    scatter = 1.4826 * median(map(abs, residuals))
    return scatter * sqrt(swelling(likeness(residuals)) * (1 / at + 1 / (len(values) - at)))


def _lasts(times: Sequence[float], after: int) -> bool:
    """Return whether both halves of either level are on their own side of the middle."""
    before, behind, size = times[:after], times[after:], _height(times, after)
    middle = median(before) + size / 2
    return all(
        (median(half) - middle) * way > 0
        for part, way in ((before, -size), (behind, size))
        for half in (part[: len(part) // 2], part[len(part) // 2 :])
    )


def _misfit(times: Sequence[float], change: LevelChange) -> float:
    """Return the mean absolute distance of the rounds from a line or a step."""
    flat = [time - change.at(place / (len(times) - 1), place) for place, time in enumerate(times)]
    level = median(flat)
    return fmean(abs(time - level) for time in flat)


SLOW = 1.5
"""A round that took this many times as long as a quiet round was disturbed."""
SLOW_SHARE, SLOW_LEAST = 0.05, 3
"""The share and the number of such rounds that are reported."""
CPU_SHARE = 0.9
"""The minimum share of CPU time of an undisturbed measuring thread that computes."""
SWITCHES = 20.0
"""Involuntary context switches per second that indicate another process on the same core."""


@dataclass(frozen=True, slots=True)
class MachineCounters:
    """The machine's counters during the measurement; None is unknown.

    `seconds` is wall-clock time and `cpu_seconds` the measuring thread's CPU time in it (None if
    that thread sleeps until a GPU is done). `load` is the load average, own work included, on
    `cores` cores. `switches` counts involuntary context switches. `clocks` are the device's clock
    in MHz, in chronological order.
    """

    seconds: float | None = None
    cpu_seconds: float | None = None
    load: float | None = None
    cores: int | None = None
    switches: int | None = None
    clocks: tuple[float, ...] = ()


def disturbances(
    reference: Sequence[float], signs: MachineCounters | None = None
) -> tuple[str, ...]:
    """Return sentences about what disturbed a measurement. `reference` are the milliseconds of the
    reference kernel, one per round, all above 0."""
    signs = signs or MachineCounters()
    change = find_change([log(ms) for ms in reference])
    sentences = [_change_sentence(change)] if change else []
    if clock := _clock_sentence(signs.clocks):
        sentences.append(clock)
    after = change.after if change else None
    neighbour = _neighbour_sentence(slow_share(reference, after), signs)
    return tuple([*sentences, neighbour] if neighbour else sentences)


def slow_share(reference: Sequence[float], after: int | None = None) -> float:
    """Return the share of disturbed rounds; 0 if they are too few to be significant. A quiet round
    is the lower quartile, separately before and after round `after`."""
    parts = [reference] if after is None else [reference[:after], reference[after:]]
    slow = sum(_slow_rounds(part) for part in parts if part)
    if slow < max(SLOW_LEAST, SLOW_SHARE * len(reference)):
        return 0.0
    return slow / len(reference)


def _slow_rounds(times: Sequence[float]) -> int:
    quiet, _ = quartiles(times)
    return sum(ms > SLOW * quiet for ms in times)


def _change_sentence(change: LevelChange) -> str:
    percent = 100 * abs(exp(change.size) - 1)
    way = "slower" if change.size > 0 else "faster"
    what = f"the reference kernel became {percent:.1f} % {way}"
    if change.after is None:
        return f"drift: {what} from start to end"
    cause = "throttling or a new neighbour" if change.size > 0 else "speed-up"
    return f"{cause}: {what} after round {change.after} and stayed so"


def _clock_sentence(clocks: Sequence[float]) -> str:
    """Return how the clock changed from the first to the last quarter of the time."""
    quarter = len(clocks) // 4
    if not quarter:
        return ""
    first, last = median(clocks[:quarter]), median(clocks[-quarter:])
    if first <= 0 or abs(last / first - 1) < WORTH:
        return ""
    verb = "fell" if last < first else "rose"
    return f"clock: the device's clock {verb} from {first:.0f} to {last:.0f} MHz"


def _neighbour_sentence(slow: float, signs: MachineCounters) -> str:
    """Report slow rounds or a lack of CPU time; load and switches alone are not reported."""
    accused, witnesses = [], []
    if slow:
        accused.append(f"{100 * slow:.0f} % of the rounds took more than {SLOW:g} x a quiet round")
    if signs.load is not None and signs.cores and signs.load > signs.cores + 1:
        witnesses.append(f"the load was {signs.load:.1f} on {counted(signs.cores, 'core')}")
    if signs.seconds:
        share = 1.0 if signs.cpu_seconds is None else signs.cpu_seconds / signs.seconds
        if share < CPU_SHARE:
            accused.append(f"the measuring thread had the CPU for {100 * share:.0f} % of the time")
        switches = (signs.switches or 0) / signs.seconds
        if switches > SWITCHES:
            witnesses.append(f"preempted {switches:.0f}×/s")
    return f"busy neighbour: {', '.join(accused + witnesses)}" if accused else ""


BLOCK = 2
"""Rounds in the same memory: the location of inputs and outputs favours one choice or another."""
MOST_LOOKS = 8
PROGRESS_SECONDS = 0.25
REST = 4.0
"""After a throttled round the device rests this many times the round's duration, to cool down."""
MOST_REST = 0.25
"""Seconds."""

_dice = random.Random()
"""Our own generator: a program that is measured from inside uses the global one."""


class ChoiceBroke(Exception):
    """A choice cannot be run; `reason` is one line."""

    def __init__(self, hash: str, reason: str) -> None:
        super().__init__(reason)
        self.hash = hash
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Sample:
    """The milliseconds of one call. `clean`: no other process took the CPU meanwhile."""

    ms: float
    clean: bool = True


class Bench(Protocol):
    """Choices that can be sampled."""

    def renew(self, hashes: Sequence[str]) -> None:
        """Move all inputs and outputs to new memory and warm each choice up. Raises ChoiceBroke."""

    def sample(self, hash: str) -> Sample:
        """Time one call of a choice. Raises ChoiceBroke."""

    def reference(self) -> Sample:
        """Time a kernel that is the same in every round."""

    def state(self) -> DeviceState:
        """Return the current or a recent state of the device."""

    def resolution_ms(self, hash: str) -> float:
        """Return the smallest difference of two samples of a choice that the clock can resolve."""


@dataclass
class Series:
    """Samples: `reference`, `blocks` and each of `times` have one item per round."""

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
    """The samples of the choices `hashes` that can be run.

    Only `clean` rounds count; in `disturbed` ones another process took the CPU, or the device was
    `throttled`. `states` has one item for every round. `resolutions` are the smallest differences,
    in ms, that the clock can resolve, by hash.
    """

    hashes: list[str]
    clean: Series = field(default_factory=Series)
    disturbed: Series = field(default_factory=Series)
    failed: dict[str, str] = field(default_factory=dict)
    standings: tuple[MeasuredChoice, ...] = ()
    signs: MachineCounters = field(default_factory=MachineCounters)
    states: list[DeviceState] = field(default_factory=list)
    throttled: int = 0
    rested: float = 0.0
    """Seconds of rest after throttled rounds."""
    resolutions: dict[str, float] = field(default_factory=dict)
    looked: tuple[int, int] = (1, 1)
    """The last look, and the number of looks."""

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
        """Drop a choice after the measurement: the others are judged without it."""
        self.drop(broken)
        self.standings = ()
        if self.hashes:
            self.judge(*self.looked)

    def judge(self, look: int, looks: int) -> None:
        """Judge the clean rounds; disturbed rounds alone prove nothing."""
        self.looked = (look, looks)
        series = self.judged
        standings = judge(
            series.times, series.blocks, look=look, looks=looks, resolutions=self.resolutions
        )
        if series is self.disturbed:
            standings = tuple(replace(standing, verdict="unclear") for standing in standings)
        self.standings = standings


OnRounds = Callable[[Rounds, float], None]
"""Receives the rounds so far and the maximum of remaining seconds."""


def measure(
    bench: Bench,
    hashes: Sequence[str],
    deadline: float,
    hear: OnRounds,
    least: int = 0,
    rounds: Rounds | None = None,
) -> Rounds:
    """Sample `hashes` in rounds, each in a random order, until all verdicts are clear.

    Ends at about `deadline` (of `time.monotonic`), but not before the first round, nor, budget
    permitting, before `least` rounds: medians for comparison with another day's need more rounds
    than a clear verdict. `rounds` are earlier rounds to extend, for a second judgement.
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
                rest = min(REST * (time.monotonic() - now), MOST_REST)
                time.sleep(rest)
                rounds.rested += rest
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
    """Take one sample of each choice and of the reference; a choice that breaks is dropped.

    The order is random each time, also for new memory: the first choice gets a different location.
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
    """Take a round and return its seconds."""
    begin = time.monotonic()
    _round(bench, rounds, attempt)
    return time.monotonic() - begin


def _looks(rounds: float) -> int:
    """Return the number of looks, plus one: too many cost little, too few waste time."""
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
    """Collect the system's counters of this thread and its neighbours while the block runs."""
    begin, cpu = time.monotonic(), time.thread_time()
    switches = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
    try:
        yield
    finally:
        rounds.signs = MachineCounters(
            seconds=time.monotonic() - begin - rounds.rested,
            cpu_seconds=time.thread_time() - cpu,
            load=os.getloadavg()[0],
            cores=os.cpu_count(),
            switches=resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw - switches,
            clocks=tuple(s.clock_mhz for s in rounds.states if s.clock_mhz is not None),
        )


LOST_SHARE = 0.1
"""The share of rounds spoiled by other processes from which on that is reported."""


def measurement_of(
    key: TuningKey,
    rounds: Rounds,
    names: Mapping[str, str],
    session: Session,
    outputs: Mapping[str, Output],
    caches: Caches,
    trouble: tuple[str, ...] = (),
) -> Measurement:
    """Return the standings of `rounds`, which is not empty; `names` and `outputs` are by hash;
    `trouble` are further sentences about the measurement."""
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
    """Return sentences about what disturbed the rounds."""
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
        took = "other processes took the CPU in every round"
        none = "no round was undisturbed" if rounds.throttled else took
        return (*sentences, f"{none}, so nothing is proved")
    if lost > LOST_SHARE * every:
        share = f"{_uncounted(lost, every)}: other processes took the CPU"
        return (*sentences, share)
    return sentences


def _uncounted(rounds: int, every: int) -> str:
    return f"{rounds} of {counted(every, 'round')} {noun(rounds, 'does', 'do')} not count"
