"""What shall be tuned and how, as the job of a worker; and what came of it, in a line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from backend.records import Choice, Tuning, sort_choices
from rocm_tui.errors import RocmTuiError
from rocm_tui.harmless import plain
from rocm_tui.job_errors import JobError
from rocm_tui.job_run import RunJob
from rocm_tui.session import numbers as fmt
from rocm_tui.session import stats

BACKENDS = ("ATEN", "TRITON", "CPP", "CK", "CKTILE", "CUTLASS", "CUTEDSL", "NVGEMM")
"""Inductor's names of what it can tune a matrix product with."""
SPACES = ("default", "exhaustive")


class NotTunable(RocmTuiError):
    """Too little is known of a tuning to make it again."""


class NotTuned(RocmTuiError):
    """Nothing was tuned; one line says why."""


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """What Inductor shall try; None is what it would do by itself. `budget` is in seconds.

    `mode` is an index of the worker's modes; without it the one that the cache tells of is taken.
    """

    backends: tuple[str, ...] | None = None
    search_space: str | None = None
    templates: bool = False
    budget: float | None = None
    mode: int | None = None

    @property
    def words(self) -> dict[str, Any]:
        """The job's arguments."""
        given = {
            "backends": list(self.backends) if self.backends else None,
            "search_space": self.search_space.upper() if self.search_space else None,
            "templates": self.templates,
            "budget": self.budget,
        }
        return {name: value for name, value in given.items() if value is not None}


def problem_of(tuning: Tuning) -> Tuning:
    """The problem of a known tuning, without its results. Raises NotTunable."""
    known = tuning.inputs_key is not None and tuning.precision is not None
    if not known and not (tuning.shapes and tuning.dtypes):
        raise NotTunable(
            f"{plain(tuning.op)} is known without its shapes and types, so it cannot be tuned"
        )
    return Tuning(
        op=tuning.op,
        shapes=tuning.shapes,
        strides=tuning.strides,
        dtypes=tuning.dtypes,
        device=tuning.device,
        precision=tuning.precision,
        inputs_key=tuning.inputs_key if tuning.precision is not None else None,
        threads=tuning.threads,
    )


def title(problem: Tuning) -> str:
    """`bmm 8×128×256 · 8×256×192 f32`."""
    return plain(f"{problem.op} {stats.operands_text(problem.shapes)} {stats.dtype_of(problem)}")


def words_of(problem: Tuning) -> dict[str, Any]:
    """The problem as the job's arguments."""
    threads = {} if problem.threads is None else {"threads": problem.threads}
    if problem.key is not None:
        key = problem.key
        return {"op": key.op, "inputs": key.inputs, "precision": key.precision, **threads}
    found: dict[str, Any] = {
        **threads,
        "op": problem.op,
        "shapes": [list(shape) for shape in problem.shapes],
        "dtypes": list(problem.dtypes),
    }
    if problem.strides:
        found["strides"] = [list(strides) for strides in problem.strides]
    for name in ("device", "precision"):
        if getattr(problem, name) is not None:
            found[name] = getattr(problem, name)
    return found


def tune(run: RunJob, problem: Tuning, options: TuneOptions) -> Tuning:
    """Tune, in the mode that the cache was tuned in if it tells, else in the first one.

    torch keeps what it made for one mode, so each is tried by a worker of its own. A choice that
    ends its worker has failed, and another worker times the others. Raises JobError and NotTuned.
    """
    run = _each_alone(run)
    job = {"job": "tune", **words_of(problem), **options.words}
    mode = options.mode or 0
    result = run({**job, "mode": mode, "any_mode": options.mode is not None})
    if not result.get("conclusive", True):
        for other in range(1, int(result["modes"])):
            again = run({**job, "mode": other})
            if again.get("conclusive", True):
                return _tuned(problem, again)
        result = run({**job, "mode": mode, "any_mode": True})
    return _tuned(problem, result)


def _each_alone(run: RunJob) -> RunJob:
    """A job again without each choice that ends its worker, and so with the next."""
    broken: dict[str, str] = {}

    def again(job: Mapping[str, Any]) -> dict[str, Any]:
        while True:
            try:
                return run({**job, "broken": dict(broken)})
            except JobError as error:
                if error.blamed is None or error.blamed in broken:
                    raise
                broken[error.blamed] = str(error)

    return again


def _tuned(problem: Tuning, result: Mapping[str, Any]) -> Tuning:
    if not result.get("ok"):
        raise NotTuned(plain(str(result.get("reason"))))
    choices = [Choice(**choice) for choice in result["choices"]]
    return replace(
        problem,
        op=result["op"],
        inputs_key=result["inputs"],
        precision=result["precision"],
        choices=sort_choices(choices),
    )


def outcome(tuned: Tuning) -> str:
    """What came out, for a person: `x, 12.3 µs, 33 % ahead of y`."""
    timed = stats.ranked(tuned)
    if not timed:
        return "no choice could be timed"
    best, lost = timed[0], sum(choice.failed for choice in tuned.choices)
    told = f"{best.label}, {fmt.duration(best.ms)}"
    if len(timed) > 1:
        near = stats.tied(tuned)
        ahead = "a tie with" if near else f"{fmt.percent(stats.lead(tuned))} ahead of"
        told += f", {ahead} {timed[1].label}"
    return plain(told + (f"; {lost} of {len(tuned.choices)} without a time" if lost else ""))
