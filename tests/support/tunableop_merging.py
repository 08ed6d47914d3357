"""Puts rows into the table `argv[1]`, one after another, as TunableOp would find them: a process to
be killed in the middle of it, or that ends before row `argv[4]`. It begins with row `argv[3]`, and
its cache dir is `argv[2]`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from backend.disk.layout import Layout
from backend.wire.jobs import TunableOpJob, TunableOpResult, TunedProduct, WorkerJob
from rocm_tui.actions.tunableop import Outcome, tune_products

VALIDATORS = {"PT_VERSION": "2.13.0"}


def lines(end: int, begin: int = 0) -> list[str]:
    return [f"GemmTunableOp_Half_NN,nn_{m}_8_32_ld_{m}_32_{m}" for m in range(begin + 1, end + 1)]


def found(line: str) -> TunableOpResult:
    op, params = line.split(",")
    row = TunedProduct(op, params, "Gemm_Hipblaslt_1", 0.5)
    return TunableOpResult(True, validators=VALIDATORS, rows=(row,))


def run(job: WorkerJob[Any]) -> Any:
    """What a worker on a GPU answers."""
    assert isinstance(job, TunableOpJob)
    return found(job.line) if job.line else TunableOpResult(True, validators=VALIDATORS)


if __name__ == "__main__":
    table, cache, begin, end = Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:])
    print("begun", flush=True)
    tune_products(run, Layout(cache), lines(end, begin), table, Outcome())
