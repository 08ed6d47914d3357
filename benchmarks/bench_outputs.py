"""Honest choices of a CPU, tuned and measured by the worker: how many of them are called further
off than rounding explains, or not deterministic.

    python benchmarks/bench_outputs.py [--cache-dir DIR]

ATen, Inductor's C++ templates and ours (built for the CPU) of products in float32, bfloat16 and
float16, whose sums are made in many orders. A line a choice; the last one counts.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from rocm_tui.jobs.worker import Worker, spawn_worker

PROBLEMS: tuple[tuple[str, list[list[int]], list[list[int]]], ...] = (
    ("mm", [[48, 256], [256, 64]], [[256, 1], [64, 1]]),
    ("mm", [[5, 1000], [1000, 96]], [[1000, 1], [1, 1000]]),
    ("bmm", [[3, 40, 128], [3, 128, 48]], [[5120, 128, 1], [6144, 48, 1]]),
    ("addmm", [[64], [32, 512], [512, 64]], [[1], [512, 1], [1, 512]]),
)
DTYPES = ("float32", "bfloat16", "float16")


def measured(worker: Worker, job: dict[str, Any]) -> list[dict[str, Any]]:
    """The choices of a problem with their outputs. Raises JobError."""
    tuned = worker.exchange({"job": "tune", "device": "cpu", "templates": True, **job})
    hashes = [choice["hash"] for choice in tuned["choices"] if choice["ms"]]
    key = {name: tuned[name] for name in ("op", "inputs", "precision")}
    asked = {"job": "measure", **key, "hashes": hashes, "budget": 0.1, "partly": True}
    found = worker.exchange(asked)["measurement"]
    return [*found["choices"], *found["failed"]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache-dir", type=Path)
    given = parser.parse_args().cache_dir
    os.environ["ROCM_TUI_TEMPLATE_BUDGET"] = "3"
    count = alarms = 0
    with (
        tempfile.TemporaryDirectory() as fresh,
        spawn_worker(sys.executable, given or Path(fresh)) as worker,
    ):
        for dtype in DTYPES:
            for op, shapes, strides in PROBLEMS:
                dtypes = [f"torch.{dtype}"]
                job = {"op": op, "shapes": shapes, "strides": strides, "dtypes": dtypes}
                for choice in measured(worker, job):
                    output = choice.get("output")
                    alarm = not output or output["beyond"] or output["same"] < output["runs"]
                    count, alarms = count + 1, alarms + bool(alarm)
                    told = output or choice.get("reason")
                    print(op, dtype, choice["name"], told, flush=True)
    print(f"{alarms} false alarms of {count} choices")
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())
