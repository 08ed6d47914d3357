"""Graphs made of numbers, for searches: known effects of each choice, a bench with known noise."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import exp
from statistics import NormalDist

from backend.measure.trial import verdict_of
from backend.model.choice import Verdict
from backend.model.graph import Arm, CompileOption, Trial, TrialArm
from rocm_tui.search.steps import next_step
from rocm_tui.search.types import (
    VERSION,
    Candidate,
    Context,
    MeasureStep,
    Search,
    Subject,
    TrialStep,
    Try,
)

Effect = Callable[[Arm], float]
"""The log of the graph's true time with these choices over that without any."""


def subject(number: int, candidates: int = 3, ready: bool = True) -> Subject:
    hashes = [f"triton-{number}{letter}" for letter in "abcdefgh"[:candidates]]
    return Subject(
        op="mm",
        inputs=f"[('cpu', 'torch.float32', {number + 1}, 8, 8, 1, 0)]",
        precision="highest",
        id=f"{number:07x}",
        current=Candidate(f"mm-{number}", "mm", "aten"),
        candidates=tuple(Candidate(hash, hash, "triton") for hash in hashes),
        ready=ready,
    )


def options_subject(*options: CompileOption) -> Subject:
    candidates = tuple(Candidate(option.label, option.label, "option") for option in options)
    return Subject("", "", "", "options", candidates=candidates, ready=True, options=options)


def search_of(subjects: int = 4, candidates: int = 3) -> Search:
    every = tuple(subject(number, candidates) for number in range(subjects))
    return Search(VERSION, "b3f21aa", Context("text"), every)


def additive(effects: Mapping[str, float]) -> Effect:
    """Each choice adds its own, whatever the others are."""
    return lambda arm: sum(effects.get(change.identity, 0.0) for change in arm)


@dataclass
class Bench:
    """Times arms: each with a normal error of `noise`, in one process with a `bias` of its own.

    Its trials are wrong just as often as they are allowed to be where `bias` is 0 and `margin` is.
    `broken` choices end the worker, arms with one of `failing` fail for that reason.
    """

    effect: Effect
    seed: str = ""
    noise: float = 0.004
    bias: float = 0.0
    margin: float = 0.0
    broken: frozenset[str] = frozenset()
    wrong: frozenset[str] = frozenset()
    failing: Mapping[str, str] = field(default_factory=dict)
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"bench {self.seed}")

    def trial(self, step: TrialStep) -> Trial:
        """Raises RuntimeError where a choice breaks the worker."""
        hashes = {change.identity for arm in step.arms for change in arm}
        if hashes & self.broken:
            raise RuntimeError("the worker died: SIGSEGV")
        pairs = len(step.arms) - 1
        quantile = NormalDist().inv_cdf(1 - step.error / pairs / 2)
        half = quantile * self.noise
        base = self.effect(step.arms[0])
        shift = self.chance.gauss(0, self.noise / 2)
        arms = [TrialArm(step.arms[0], ms=exp(base + shift), ratio=1.0, verdict="tied", kernels=9)]
        for arm in step.arms[1:]:
            if failed := [self.failing[c.identity] for c in arm if c.identity in self.failing]:
                arms.append(TrialArm(arm, failed=failed[0]))
                continue
            bias = self.chance.gauss(0, self.bias)
            value = self.effect(arm) - base + bias + self.chance.gauss(0, self.noise)
            low, high = exp(value - half), exp(value + half)
            differs = any(change.identity in self.wrong for change in arm)
            arms.append(
                TrialArm(
                    arm,
                    ms=exp(base + shift + value),
                    ratio=exp(value),
                    ratio_low=low,
                    ratio_high=high,
                    verdict=self._verdict(low, high),
                    kernels=8,
                    error=0.5 if differs else 0.0,
                    allowed=1e-5,
                )
            )
        return Trial("b3f21aa", 0.0, tuple(arms))

    def _verdict(self, low: float, high: float) -> Verdict:
        if self.margin:
            return verdict_of(low, high, self.margin)
        if high < 1:
            return "faster"
        if low > 1:
            return "slower"
        return "tied" if high - low < 0.01 else "unclear"


def advance(search: Search, bench: Bench, left: float = 600.0, budget: float = 600.0) -> Search:
    """One step further; the very same search at its end."""
    step = next_step(search, left, budget)
    if step is None:
        return search
    if isinstance(step, MeasureStep):
        subjects = list(search.subjects)
        subjects[step.subject] = replace(subjects[step.subject], ready=True)
        return replace(search, subjects=tuple(subjects))
    trial, failed = None, ""
    try:
        trial = bench.trial(step)
    except RuntimeError as error:
        failed = str(error)
    attempt = Try(step.kind, step.turn, step.arms, step.error, step.subject, 1.0, trial, failed)
    return replace(search, tries=(*search.tries, attempt))


def run(search: Search, bench: Bench, steps: int = 200) -> Search:
    """To the end. Raises AssertionError if there is none."""
    for _ in range(steps):
        after = advance(search, bench)
        if after is search:
            return search
        search = after
    raise AssertionError(f"no end after {steps} steps")
