"""Make PyTorch's TunableOp tune one product, with its public functions only.

These are in builds for CUDA and ROCm; a build for the CPU has the Python module but not the
implementation. PyTorch reads its results file when first used, and writes it when the process ends:
both happen in the folder of the job, and the rows are taken from memory.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.cuda import tunable

from backend.errors import brief
from backend.processes.shared import ChoiceMark
from backend.wire.jobs import JobInvalid, TunableOpJob, TunableOpResult, TunedProduct
from backend.worker.protocol import ReportProgress

_OURS = ("ENABLED", "TUNING", "RECORD_UNTUNED", "FILENAME")
"""Variables that this job sets itself, because each overrides a function's argument. The others
(how long, which libraries, how exact) stay the person's."""


def run(job: TunableOpJob, progress: ReportProgress, mark: ChoiceMark) -> TunableOpResult:
    """Tune a product. Raises JobInvalid."""
    folder = Path(job.folder)
    if "\n" in job.line or not folder.is_dir():
        raise JobInvalid("the job needs one line and an existing folder")
    why = _why_not()
    if why:
        return TunableOpResult(able=False, reason=f"PyTorch {torch.__version__} {why}")
    for name in _OURS:
        os.environ.pop(f"PYTORCH_TUNABLEOP_{name}", None)
    tunable.set_filename(str(folder / f"results-{os.getpid()}.csv"))
    tunable.record_untuned_enable(False)
    tunable.enable(True)
    tunable.tuning_enable(True)
    try:
        validators = {str(name): str(value) for name, value in _tuples(tunable.get_validators())}
        if not job.line:
            return TunableOpResult(able=True, validators=validators)
        progress(f"tuning {job.line}")
        before = set(_rows(tunable.get_results()))
        reason = _tune(job.line, folder / "untuned.csv")
        asked = tuple(job.line.strip().split(",")[:2])  # PyTorch does not tune it a second time
        rows = tuple(
            row
            for row in _rows(tunable.get_results())
            if row not in before or (row.op, row.params) == asked
        )
    finally:
        tunable.enable(False)
        tunable.tuning_enable(False)
    if not rows:
        reason = reason or "PyTorch tuned nothing for it, and does not say why"
    return TunableOpResult(True, reason, validators, rows)


def _why_not() -> str:
    """Return why this PyTorch cannot tune here; empty if it can."""
    try:
        tunable.is_enabled()
    except AttributeError:
        return "is built without TunableOp, which builds for ROCm and CUDA have"
    return "" if torch.cuda.is_available() else "sees no GPU, on which alone TunableOp tunes"


def _tune(line: str, untuned: Path) -> str:
    """Tune, and return PyTorch's objection in a line; it warns about lines that it skips, and
    raises for lines that it cannot read."""
    untuned.write_text(f"{line}\n")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            tunable.tune_gemm_in_file(str(untuned))
            torch.cuda.synchronize()
        except (AssertionError, IndexError, RuntimeError, TypeError, ValueError) as error:
            return brief(f"{type(error).__name__}: {error}", 300)
    return brief("; ".join(str(warning.message) for warning in said), 300)


def _rows(results: object) -> list[TunedProduct]:
    return [
        TunedProduct(str(op), str(params), str(solution), float(ms))
        for op, params, solution, ms in _tuples(results)
    ]


def _tuples(values: object) -> list[tuple[Any, ...]]:
    """Return the tuples that PyTorch gives; its annotations say less."""
    return [tuple(value) for value in values] if isinstance(values, tuple | list) else []
