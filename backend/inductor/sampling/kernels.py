"""Which configs of a kernel are measured again, and what comes of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import torch

from backend.inductor.sampling.kernel_bench import KernelBench
from backend.inductor.sampling.outputs import Seen, outputs_of
from backend.measure.rounds import ChoiceBroke, OnRounds, Rounds, measure, measurement_of
from backend.model.choice import Measurement
from backend.model.problem import TuningKey
from backend.model.session import Session

NEAR = 0.1
"""So much slower than the best a config may have been, and be worth it."""
MOST = 8


def worth_measuring(times: Mapping[str, float]) -> list[str]:
    """The configs, by their hashes, that may be the fastest as far as single times tell: those near
    the best, two in any case, MOST at most."""
    ranked = sorted(times, key=times.__getitem__)
    least = times[ranked[0]] if ranked else 0.0
    near = [hash for hash in ranked if times[hash] <= least * (1 + NEAR)]
    return ranked[: max(2, min(len(near), MOST))]


class NoConfigRuns(Exception):
    """None of the configs can be launched; one line says why."""


def measure_kernel(
    key: TuningKey,
    bench: KernelBench,
    names: Mapping[str, str],
    session: Session,
    budget: float,
    *,
    hear: OnRounds = lambda rounds, seconds: None,
    failed: Mapping[str, str] | None = None,
    trouble: Sequence[str] = (),
    least: int = 0,
) -> Measurement:
    """Measure the configs of `bench` for about `budget` seconds; `names` by hash, of those too that
    have `failed` already. Raises NoConfigRuns."""
    found: dict[str, Seen] = {}
    broken = dict(failed or {})
    with _current(bench.device):
        for hash in bench.hashes:
            try:
                found[hash] = bench.seen(hash)
            except ChoiceBroke as error:
                broken[hash] = error.reason
        rounds = Rounds([])
        if found:
            hear(rounds, budget)  # from here on it measures
            rounds = measure(bench, list(found), time.monotonic() + budget, hear, least)
    rounds.failed.update(broken)
    if not rounds.standings:
        hash, reason = next(iter(rounds.failed.items()))
        raise NoConfigRuns(f"none of the configs can be run; {names.get(hash, hash)}: {reason}")
    if bench.device.type != "cpu":  # the thread sleeps until the device is done
        rounds.signs = replace(rounds.signs, cpu_seconds=None)
    outputs = outputs_of(found, [standing.hash for standing in rounds.standings])
    told = (*trouble, *_apart(bench, names, rounds.hashes))
    return measurement_of(key, rounds, names, session, outputs, bench.caches, told)


def _current(device: torch.device) -> AbstractContextManager[object]:
    gpu = device.type != "cpu"
    block: AbstractContextManager[object] = torch.cuda.device(device) if gpu else _NOTHING
    return block


_NOTHING = contextlib.nullcontext()


def _apart(bench: KernelBench, names: Mapping[str, str], hashes: Sequence[str]) -> list[str]:
    """Nobody knows which of them is nearer to the exact result."""
    first = names.get(bench.first, "")
    sentences = []
    for hash in hashes:
        if (apart := bench.apart.get(hash)) is not None:
            far = "numbers that are not finite" if apart == float("inf") else f"up to {apart:.1e}"
            of = "" if apart == float("inf") else " of the largest number"
            sentences.append(f"{names[hash]} differs from {first} by {far}{of}")
    return sentences
