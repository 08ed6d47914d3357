"""How often the verdict of repeated measurement is wrong, beside the smallest of one number each.

    python benchmarks/bench_verdict.py [--trials 400] [--cases '2 twins' '8 mixed' ...]
        [--looks 6] [--core PERCENT ...]

Choices with known true times run on a machine made of random numbers that is as bad as real ones
(see `Noise`). Prints the tables of docs/data/verdicts.csv, in Markdown; `--core` fixes
the noise of single samples.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from pathlib import Path
from statistics import fmean, median

sys.path.insert(0, str(Path(__file__).parents[1]))

from backend.measure.verdict import LOOKS, MARGIN, judge, schedule, settled
from backend.model.choice import MeasuredChoice

BLOCK = 2
"""Rounds between two allocations."""
STOCK = 20
"""Samples behind the one number that a stock tuning takes of a choice."""

CASES: dict[str, tuple[float, ...]] = {
    **{f"{n} twins": (1.0,) * n for n in (2, 5, 8)},
    **{f"1 and {n - 1} at 1 %": (1.0, *[1.01] * (n - 1)) for n in (2, 5, 8)},
    **{f"1 and {n - 1} at 5 %": (1.0, *[1.05] * (n - 1)) for n in (2, 5, 8)},
    "8 mixed": (1.0, 1.0, 1.01, 1.01, 1.02, 1.03, 1.05, 1.1),
}


@dataclass(frozen=True, slots=True)
class Noise:
    """What a machine does to times; all sizes are standard deviations of the log time.

    `core` is the noise of a single sample, `alike` how much of it the next round inherits. `waves`
    move all choices alike, over some twenty rounds; `drift` is what they move from start to end.
    `place` is what each allocation does to each choice. `wild` is the share of samples that take
    longer, by a factor of 1.6 in the mean; `stalls` the share that takes 80 to 450 times as long.
    A neighbour comes after a round with probability `visits`, stays for 8 rounds in the mean, and
    doubles the time of half the samples meanwhile.
    """

    core: float
    alike: float = 0.3
    waves: float = 0.02
    drift: float = 0.03
    place: float = 0.003
    wild: float = 0.02
    stalls: float = 0.001
    visits: float = 0.005


Dice = Callable[[random.Random], Noise]
"""The noise of one trial."""


def usual(dice: random.Random) -> Noise:
    """Core noise of 1 to 5 %, each size as likely as its double."""
    return Noise(core=exp(dice.uniform(log(0.01), log(0.05))))


class Machine:
    """Runs rounds of choices with known true times."""

    def __init__(
        self,
        seed: str,
        times: Sequence[float],
        noise: Dice = usual,
        block: int = BLOCK,
    ) -> None:
        self._dice = random.Random(seed)
        self._noise = noise(self._dice)
        self._logs = [log(time) for time in times]
        self._block = block
        self._slope = self._dice.gauss(0, self._noise.drift) / schedule()[-1]
        self._wave = self._dice.gauss(0, self._noise.waves)
        self._core = [self._dice.gauss(0, self._noise.core) for _ in times]
        self._places = [0.0 for _ in times]
        self._visit = 0
        self.samples: dict[str, list[float]] = {str(at): [] for at in range(len(times))}
        self.blocks: list[int] = []

    def run(self, rounds: int) -> None:
        """Go on until there are so many rounds."""
        while len(self.blocks) < rounds:
            self._round(len(self.blocks))

    def _round(self, number: int) -> None:
        noise, dice = self._noise, self._dice
        if number % self._block == 0:
            self._places = [dice.gauss(0, noise.place) for _ in self._places]
        self._wave = _step(dice, self._wave, 0.95, noise.waves)
        if self._visit:
            self._visit -= 1
        elif dice.random() < noise.visits:
            self._visit = 1 + int(dice.expovariate(1 / 8))
        shared = self._wave + self._slope * number
        for at, true in enumerate(self._logs):
            self._core[at] = _step(dice, self._core[at], noise.alike, noise.core)
            calm = true + shared + self._core[at] + self._places[at]
            self.samples[str(at)].append(exp(calm + self._outlier()))
        self.blocks.append(number // self._block)

    def _outlier(self) -> float:
        noise, dice = self._noise, self._dice
        more, fate = 0.0, dice.random()
        if fate < noise.wild:
            more = dice.expovariate(1 / 0.5)
        elif fate < noise.wild + noise.stalls:
            more = log(dice.uniform(80, 450))
        if self._visit and dice.random() < 0.5:
            more += dice.expovariate(1 / 0.7)
        return more


def _step(dice: random.Random, last: float, alike: float, size: float) -> float:
    """The next value of a first-order autoregression."""
    return alike * last + dice.gauss(0, size * sqrt(1 - alike * alike))


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one trial ended: true where at least one rival's verdict was of that kind.

    `reversed`: called slower, but truly faster than the choice called best. `false_tie`: called
    tied, but truly further away than the margin. `split`: called slower, but exactly as fast.
    `covered`: all true ratios to the choice called best lie in their intervals. `stock`, `single`:
    the smallest of one number each (20 samples, one sample) was not a truly fastest choice. `tied`
    and `unclear` are the shares of the rivals that were called so at the end.
    """

    reversed: bool
    false_tie: bool
    split: bool
    covered: bool
    rounds: int
    stock: bool
    single: bool
    tied: float
    unclear: float


def trial(times: Sequence[float], machine: Machine, looks: int = LOOKS) -> Outcome:
    """Measure as the worker does: look, and go on until settled or the looks are used up."""
    standings: tuple[MeasuredChoice, ...] = ()
    rounds = 0
    for look, rounds in enumerate(schedule(looks), 1):
        machine.run(rounds)
        standings = judge(machine.samples, machine.blocks, look=look, looks=looks)
        if settled(standings):
            break
    truth = {hash: times[int(hash)] / times[int(standings[0].hash)] for hash in machine.samples}
    rivals = [(standing, truth[standing.hash]) for standing in standings[1:]]
    return Outcome(
        reversed=any(one.verdict == "slower" and true < 1 for one, true in rivals),
        false_tie=any(one.verdict == "tied" and abs(log(true)) > MARGIN for one, true in rivals),
        split=any(one.verdict == "slower" and true == 1 for one, true in rivals),
        covered=all(one.ratio_low <= true <= one.ratio_high for one, true in rivals),
        rounds=rounds,
        stock=times[stock_choice(machine, STOCK)] > min(times),
        single=times[stock_choice(machine, 1)] > min(times),
        tied=fmean(one.verdict == "tied" for one, _ in rivals),
        unclear=fmean(one.verdict == "unclear" for one, _ in rivals),
    )


def stock_choice(machine: Machine, samples: int) -> int:
    """The choice with the smallest median of so many samples, one choice timed after the other."""
    machine.run(samples * len(machine.samples))
    parts = {
        int(hash): times[int(hash) * samples : (int(hash) + 1) * samples]
        for hash, times in machine.samples.items()
    }
    return min(parts, key=lambda at: median(parts[at]))


def outcomes(name: str, trials: int, looks: int = LOOKS, noise: Dice = usual) -> list[Outcome]:
    times = CASES[name]
    machines = (Machine(f"{name} {number}", times, noise) for number in range(trials))
    return [trial(times, machine, looks) for machine in machines]


HEAD = (
    "case", "wrong", "reversed", "twin called slower", "rivals tied", "rivals unclear",
    "rounds, median", "rounds, mean", "stock picks a slower one", "with one sample each",
)  # fmt: skip


def row(name: str, found: Sequence[Outcome]) -> str:
    def share(of: Callable[[Outcome], float]) -> str:
        return f"{100 * fmean(of(one) for one in found):.1f} %"

    cells = [
        name,
        share(lambda one: one.reversed or one.false_tie),
        share(lambda one: one.reversed),
        share(lambda one: one.split),
        share(lambda one: one.tied),
        share(lambda one: one.unclear),
        f"{median(one.rounds for one in found):.0f}",
        f"{fmean(one.rounds for one in found):.0f}",
        share(lambda one: one.stock),
        share(lambda one: one.single),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--looks", type=int, default=LOOKS)
    parser.add_argument("--core", type=float, nargs="+", metavar="PERCENT")
    wanted = parser.parse_args()
    print(f"| {' | '.join(HEAD)} |\n{'|---' * len(HEAD)}|")
    for name in wanted.cases:
        for core in wanted.core or [None]:
            label = name if core is None else f"{name}, {core:g} % noise"
            noise = usual if core is None else fixed(core / 100)
            print(row(label, outcomes(name, wanted.trials, wanted.looks, noise)), flush=True)


def fixed(core: float) -> Dice:
    return lambda dice: Noise(core=core)


if __name__ == "__main__":
    main()
