"""What a job takes in a warm worker: from asking to its first round, or to its result.

    python benchmarks/bench_warm.py [--device cuda] [--rounds N] [--keep FOLDER]

Tunes three products in a cache dir of its own, pins the first to its second choice, then asks each
job in a new worker and again in the one that did it: of other tunings, then of the same ones again.
A measurement is timed to where its first round begins, a tuning to the time of its first choice.
Budget: 0.3 s to there, or to the result of a verify, of a job that is not the first; medians, on a
machine with nothing beside.

Nothing here needs torch: the workers have it (`--python`).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.cache.autotune import read_caches
from backend.disk.layout import Layout
from backend.model.problem import TuningKey
from backend.pins.store import PinStore
from backend.wire.jobs import MeasureJob, Progress, TuneJob, VerifyJob, WorkerJob
from rocm_tui.environment import find_python
from rocm_tui.jobs.limits import Limits
from rocm_tui.jobs.warm import Workers

BUDGET = 0.3
PROBLEMS = {
    "cuda": ("mm", "torch.bfloat16", [(8, 4096, 4096), (8, 4096, 11008), (512, 4096, 4096)]),
    "cpu": ("bmm", "torch.float32", [(32, 64, 96), (32, 64, 80), (48, 64, 96)]),
}
"""Of a product (M, K) by (K, N)."""

Begun = Callable[[Progress], object]
"""Whether a job has begun with what was asked for."""


@dataclass(frozen=True)
class Asked:
    """One job: seconds to its beginning, to its result, and to what it said last before that."""

    begun: float
    ended: float
    said: str
    new: bool


class Session:
    """Jobs in the workers of one session."""

    def __init__(self, python: str, layout: Layout) -> None:
        self._python = python
        self._env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(layout.root)}
        self.workers = Workers(layout.root)

    def ask(self, job: WorkerJob[Any], begun: Begun) -> Asked:
        started: list[bool] = []
        marks: list[float] = []
        steps: list[tuple[float, str]] = []
        begin = time.perf_counter()

        def hear(progress: Progress) -> None:
            now = time.perf_counter() - begin
            steps.append((now, progress.what.partition(",")[0]))
            if not marks and begun(progress):
                marks.append(now)

        result = self.workers.run(
            job,
            hear,
            python=self._python,
            env=self._env,
            limits=Limits(),
            on_start=lambda: started.append(True),
        )
        ended = time.perf_counter() - begin
        if not result.ok:
            raise SystemExit(f"{job.name}: {result.reason}")
        said = "; ".join(f"{at:.2f} {what[:44]}" for at, what in steps[:3])
        return Asked(marks[0] if marks else ended, ended, said, bool(started))


def in_rounds(progress: Progress) -> bool:
    return "rounds" in progress.what


def at_first_choice(progress: Progress) -> bool:
    return progress.timed > 0


def at_the_end(progress: Progress) -> bool:
    return False


def tune_all(session: Session, device: str) -> None:
    op, dtype, sizes = PROBLEMS[device]
    for m, k, n in sizes:
        shapes = ((m, k), (k, n)) if op == "mm" else ((4, m, k), (4, k, n))
        job = TuneJob(op, shapes=shapes, dtypes=(dtype,), device=device)
        asked = session.ask(job, at_first_choice)
        print(f"made: tune {op} {m}x{k}x{n}: {asked.ended:.1f} s", flush=True)


def rows(
    session: Session, keys: list[tuple[TuningKey, list[str]]], rounds: int
) -> dict[str, list[tuple[str, Asked]]]:
    """By kind of job, what was asked in turn. Each kind begins with a new worker."""

    def measure(at: int) -> MeasureJob:
        key, hashes = keys[at]
        return MeasureJob(key.op, key.inputs, key.precision, tuple(hashes[:5]), budget=1.0)

    def verify(at: int) -> VerifyJob:
        key, hashes = keys[at]
        return VerifyJob(key.op, key.inputs, key.precision, hashes[1])

    def tune(at: int) -> TuneJob:
        key, _ = keys[at]
        return TuneJob(key.op, key.inputs, key.precision)

    kinds: list[tuple[str, Callable[[int], WorkerJob[Any]], Begun, list[int]]] = [
        ("measure", measure, in_rounds, [0, 1, 2]),
        ("verify", verify, at_the_end, [0]),
        ("tune", tune, at_first_choice, [0, 1, 2]),
    ]
    table: dict[str, list[tuple[str, Asked]]] = {}
    for name, job, begun, which in kinds:
        asked = table[name] = []
        for turn in range(rounds + 1):
            for at in which:
                what = "first" if not asked else "again" if turn else "another tuning"
                asked.append((what, session.ask(job(at), begun)))
        session.workers.end()
        session.workers = Workers(session.workers._root)
    return table


def show(table: dict[str, list[tuple[str, Asked]]]) -> bool:
    """Whether the budget was kept."""
    print("| job | | to its first round, choice or result | to its end | as often |")
    print("|---|---|---:|---:|---:|")
    kept = True
    for name, asked in table.items():
        for what in ("first", "another tuning", "again"):
            these = [one for kind, one in asked if kind == what]
            if not these:
                continue
            begun = statistics.median(one.begun for one in these)
            ended = statistics.median(one.ended for one in these)
            print(f"| {name} | {what} | {begun:.2f} s | {ended:.2f} s | {len(these)} |")
            kept = kept and (what == "first" or begun <= BUDGET)
    print()
    for name, asked in table.items():
        for what, one in asked:
            new = " (new worker)" if one.new else ""
            print(f"{name}, {what}{new}: {one.said}; {one.ended:.2f} end")
    print(f"budget {BUDGET} s: {'kept' if kept else 'not kept'}")
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=sorted(PROBLEMS), default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", default=None)
    parser.add_argument("--keep", default=None, help="a folder that keeps the cache dir")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        layout = Layout(Path(args.keep or folder) / "cache")
        session = Session(find_python(args.python), layout)
        tune_all(session, args.device)
        session.workers.end()
        (file,), _ = read_caches(layout)
        keys = [
            (key, [hash for hash in sorted(times, key=times.__getitem__) if times[hash] < 1e9])
            for key, times in file.entries.items()
        ]
        PinStore(layout).pin(None, keys[0][0], keys[0][1][1])
        session.workers = Workers(layout.root)
        kept = show(rows(session, keys, args.rounds))
        session.workers.end()
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
