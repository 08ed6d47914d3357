"""Whole searches on graphs whose true times are known, timed on the bad machines of bench_verdict.

    python benchmarks/bench_search.py [--searches 100] [--core 0.02] [--looks 5] [--cases NAME...]

Every trial is rounds of noisy samples, judged as a worker judges them; each process has a bias of
its own for each arm besides. `proposed` is how many searches propose a pin, `wrong` how many
propose one that does not make the graph faster, `all` how many propose just those that do. `inside`
is how many of the stated gains hold the true one. The budget of a wrong proposal is 5 %. A case may
be of options instead of choices: one subject, whose arms share one trial.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import exp
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from backend.measure.trial import clear, judge_arms
from backend.measure.verdict import schedule
from backend.model.graph import CompileOption, Trial, TrialArm
from benchmarks.bench_verdict import Machine, Noise
from rocm_tui.search.steps import search_status
from rocm_tui.search.types import Search, TrialStep
from tests.support.search_lab import Bench, additive, options_subject, run, search_of

PROCESS = 0.002
"""Standard deviation of what a process makes of an arm's log time."""


@dataclass
class NoisyBench(Bench):
    """Trials of samples, by the rounds and looks of a worker."""

    core: float = 0.02
    looks: int = 5

    def trial(self, step: TrialStep) -> Trial:
        times = [exp(self.effect(arm) + self.chance.gauss(0, PROCESS)) for arm in step.arms]
        machine = Machine(str(self.chance.random()), times, lambda _: Noise(core=self.core))
        for look, rounds in enumerate(schedule(self.looks), 1):
            machine.run(rounds)
            samples = {int(arm): passes for arm, passes in machine.samples.items()}
            judged = judge_arms(
                samples, machine.blocks, look=look, looks=self.looks, error=step.error
            )
            if clear(judged):
                break
        arms = tuple(
            TrialArm(
                arm,
                ms=seen.ms,
                ratio=seen.ratio,
                ratio_low=seen.ratio_low,
                ratio_high=seen.ratio_high,
                verdict=seen.verdict,
                passes=seen.passes,
                error=0.0,
                allowed=0.0,
            )
            for arm, seen in zip(step.arms, judged, strict=True)
        )
        return Trial("b3f21aa", 0.0, arms)


OPTIONS = tuple(CompileOption(f"option_{number}", "True") for number in range(20))


def options_search(count: int) -> Search:
    """Return a search among options only."""
    return replace(search_of(0), subjects=(options_subject(*OPTIONS[:count]),))


CASES: Mapping[str, tuple[Search, Mapping[str, float]]] = {
    "all alike": (search_of(), {}),
    "all others slower by 1 %": (
        search_of(),
        {f"triton-{n}{letter}": 0.01 for n in range(4) for letter in "abc"},
    ),
    "one faster by 1 %": (search_of(), {"triton-1b": -0.01}),
    "one faster by 2 %": (search_of(), {"triton-1b": -0.02}),
    "two faster by 3 and 5 %": (search_of(), {"triton-0a": -0.03, "triton-2c": -0.05}),
    "8 options alike": (options_search(8), {}),
    "20 options alike": (options_search(20), {}),
    "1 of 8 options faster by 2 %": (options_search(8), {OPTIONS[3].label: -0.02}),
    "2 of 8 options faster by 3 and 5 %": (
        options_search(8),
        {OPTIONS[3].label: -0.03, OPTIONS[5].label: -0.05},
    ),
}
"""A search, of 4 tunings with 3 choices each or of options, and the log of the graph's time with a
choice or option over that without."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--searches", type=int, default=100)
    parser.add_argument("--core", type=float, default=0.02, help="noise of a single sample")
    parser.add_argument("--looks", type=int, default=5)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    args = parser.parse_args()
    random.seed(0)
    print("| case | proposed | wrong | all | inside | trials, mean |")
    print("|---|---|---|---|---|---|")
    for name in args.cases:
        print(f"| {name} | {row(*CASES[name], args)} |", flush=True)


def row(begun: Search, effects: Mapping[str, float], args: argparse.Namespace) -> str:
    faster = {hash for hash, effect in effects.items() if effect < 0}
    proposed, wrong, every, inside, trials = [], [], [], [], []
    for number in range(args.searches):
        bench = NoisyBench(
            additive(effects), f"{effects} {number}", core=args.core, looks=args.looks
        )
        search = run(begun, bench)
        gain = search_status(search).sure
        hashes = {change.identity for change in gain.arm} if gain else set()
        proposed.append(bool(hashes))
        wrong.append(not hashes <= faster)
        every.append(hashes == faster)
        trials.append(len(search.tries))
        if gain is not None:
            true = exp(sum(effects.get(hash, 0.0) for hash in hashes))
            inside.append(gain.low <= true <= gain.high)
    shares = [f"{fmean(flags) * 100:.1f} %" for flags in (proposed, wrong, every)]
    held = f"{sum(inside)} of {len(inside)}" if inside else "–"
    return " | ".join([*shares, held, f"{fmean(trials):.1f}"])


if __name__ == "__main__":
    main()
