"""Ten measurements of a bmm beside ten of Inductor's own autotunings of it, on this CPU.

    python benchmarks/bench_measure.py [4x48x48x48 ...] [--runs 10] [--threads 1] [--cold]

A problem is BATCHxMxNxK. For each it prints one JSON object: how often which choice came out as the
fastest, and ATen's time over that of the C++ template, smallest and largest of the runs. `--load`
keeps that many processes busy beside it. Works in a temporary folder and removes it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from backend.wire.codec import read
from backend.wire.jobs import MeasureResult

sys.path.insert(0, str(Path(__file__).parents[1]))

from backend.model.choice import Measurement
from rocm_tui.actions.measure import measurement_of
from rocm_tui.jobs.worker import Worker, spawn_worker

PROBLEMS = ("4x48x48x48", "2x32x32x128", "8x32x32x32", "1x32x32x512")
BUSY = "while True: pass"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", nargs="*", default=PROBLEMS)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--budget", type=float, default=10.0)
    parser.add_argument("--cold", action="store_const", const="cold", default="hot", dest="caches")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-measure-"))
    env = {**os.environ, "OMP_NUM_THREADS": str(args.threads)}
    try:
        with spawn_worker(sys.executable, folder, env) as worker, _busy(args.load):
            for problem in args.problems:
                found = _both(worker, problem, args.runs, args.budget, args.caches)
                print(json.dumps({"problem": problem, "threads": args.threads, **found}))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


@contextlib.contextmanager
def _busy(count: int) -> Iterator[None]:
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def _both(worker: Worker, problem: str, runs: int, budget: float, caches: str) -> dict[str, Any]:
    batch, m, n, k = map(int, problem.split("x"))
    shapes = [[batch, m, k], [batch, k, n]]
    tune = {"job": "tune", "op": "bmm", "shapes": shapes, "dtypes": ["torch.float32"]}
    single = [worker.exchange(tune) for _ in range(runs)]
    job = {
        "job": "measure",
        **{name: single[0][name] for name in ("op", "inputs", "precision")},
        "hashes": [choice["hash"] for choice in single[0]["choices"]],
        "budget": budget,
        "caches": caches,
    }
    measured = [measurement_of(read(MeasureResult, worker.exchange(job))) for _ in range(runs)]
    times = [{c["hash"]: c["ms"] for c in one["choices"]} for one in single]
    medians = [{c.hash: c.ms for c in one.choices} for one in measured]
    return {
        "load": os.getloadavg()[0],
        "single": {
            "fastest": Counter(_kind(one["choices"][0]["hash"]) for one in single),
            "aten_over_cpp": _range([_ratio(each) for each in times]),
        },
        "measured": {
            "fastest": Counter(_fastest(one) for one in measured),
            "aten_over_cpp": _range([_ratio(_ratios(one)) for one in measured]),
            "rounds": _range([one.rounds for one in measured]),
            "seconds": _range([one.seconds for one in measured]),
        },
        "caches": caches,
        "aten_us": _range([_of(each, "bmm") * 1e3 for each in medians]),
        "resolution_ns": _range([(one.resolution_ms or 0.0) * 1e6 for one in measured]),
    }


def _kind(hash: str) -> str:
    return "aten" if hash.startswith("bmm-") else "cpp"


def _fastest(found: Measurement) -> str:
    best = found.choices[0]
    return _kind(best.hash) if best.verdict == "faster" else best.verdict


def _ratios(found: Measurement) -> dict[str, float]:
    return {choice.hash: choice.ratio for choice in found.choices}


def _ratio(values: Mapping[str, float]) -> float:
    return _of(values, "bmm") / _of(values, "Cpp")


def _of(values: Mapping[str, float], prefix: str) -> float:
    return next(value for hash, value in values.items() if hash.startswith(prefix))


def _range(values: list[Any]) -> list[float]:
    return [round(min(values), 3), round(max(values), 3)]


if __name__ == "__main__":
    sys.exit(main())
