"""Tuning an op again: the worker's job, its mode, broken choices, and the result; for the command,
the screen and fleets alike."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from backend.model.choice import sort_choices
from backend.model.options import options_of_hash
from backend.model.problem import Problem
from backend.model.tuning import Tuning
from backend.wire.jobs import SearchSpace, TuneJob, TuneResult
from rocm_tui.errors import RocmTuiError
from rocm_tui.harmless import plain
from rocm_tui.jobs.limits import JobError
from rocm_tui.jobs.run import LEAST_BUDGET, RunJob, try_modes
from rocm_tui.session.refusals import why_not_tuned

SPACES = ("default", "exhaustive")
_SEARCH_SPACES: Mapping[str, SearchSpace] = {"default": "DEFAULT", "exhaustive": "EXHAUSTIVE"}


class NotTunable(RocmTuiError):
    """Too little is known about a tuning to repeat it."""


class NotTuned(RocmTuiError):
    """Nothing was tuned; one line says why."""


class SingleChoice(NotTuned):
    """There is one choice, so there is nothing to tune."""


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """The choices that Inductor tries; None is its default. `budget` is in seconds.

    `mode` is an index of the worker's modes; the default is the mode of the cached times. `kept_as`
    and `others` are as in a `TuneJob`.
    """

    backends: tuple[str, ...] | None = None
    search_space: str | None = None
    templates: bool = False
    budget: float | None = None
    mode: int | None = None
    kept_as: int | None = None
    others: tuple[int, ...] = ()


def problem_of(tuning: Tuning) -> Problem:
    """Return the problem of a tuning, without its results. Raises NotTunable."""
    why = why_not_tuned(tuning)
    if why is not None:
        raise NotTunable(why)
    inputs_key = None if tuning.key is None else tuning.inputs_key
    extra = {options_of_hash(tuning.op, choice.hash or "") for choice in tuning.choices} - {()}
    options = tuning.options or (extra.pop() if len(extra) == 1 else ())
    return replace(tuning.problem, inputs_key=inputs_key, dims=(), options=options)


def words_of(problem: Problem) -> dict[str, Any]:
    """Return the problem for JSON: its key if known, else its shapes and types."""
    threads = {} if problem.threads is None else {"threads": problem.threads}
    if problem.key is not None:
        key = problem.key
        return {"op": key.op, "inputs": key.inputs, "precision": key.precision, **threads}
    optional = {
        "strides": [list(strides) for strides in problem.strides] or None,
        "device": problem.device,
        "precision": problem.precision,
    }
    return {
        **threads,
        "op": problem.op,
        "shapes": [list(shape) for shape in problem.shapes],
        "dtypes": list(problem.dtypes),
        **{name: value for name, value in optional.items() if value is not None},
    }


def tune_job(problem: Problem, options: TuneOptions) -> TuneJob:
    """Return the job of a worker; a problem's key is enough for it."""
    by_key = problem.key is not None
    space = options.search_space
    return TuneJob(
        op=problem.op,
        inputs=problem.inputs_key if by_key else None,
        precision=problem.precision,
        shapes=() if by_key else problem.shapes,
        dtypes=() if by_key else problem.dtypes,
        strides=() if by_key else problem.strides,
        device=None if by_key else problem.device,
        threads=problem.threads,
        options=problem.options_text,
        backends=options.backends or None,
        search_space=None if space is None else _SEARCH_SPACES[space],
        templates=options.templates,
        budget=options.budget,
        mode=options.mode or 0,
        kept_as=options.kept_as,
        others=options.others,
    )


def tune(run: RunJob, problem: Problem, options: TuneOptions) -> Tuning:
    """Tune in the mode of the cached times, if known, else in the first mode.

    A choice that ends its worker has failed, and another worker times the others. Raises JobError,
    NotTuned, and of these SingleChoice.
    """
    job = tune_job(problem, options)
    return _tuned(problem, tuned(run, job, any_mode=options.mode is not None))


def tuned(run: RunJob, job: TuneJob, *, any_mode: bool = False) -> TuneResult:
    """Return the result of such a job; with `any_mode` in its own mode, whatever the cache says.

    Raises JobError.
    """
    broken: dict[str, str] = {}
    if not any_mode:
        [(_, answers)] = try_modes(
            [job],
            lambda job, mode: _without_broken(run, replace(job, mode=mode), broken),
            lambda result: result.conclusive,
        )
        for result in answers.values():
            if result.conclusive:
                return result
    return _without_broken(run, replace(job, any_mode=True), broken)


def _without_broken(run: RunJob, job: TuneJob, broken: dict[str, str]) -> TuneResult:
    """The job again, with the rest of its budget, without each choice that ends its worker;
    `broken` learns them."""
    begin, whole = time.monotonic(), job.budget
    while True:
        try:
            return run(replace(job, broken=dict(broken)))
        except JobError as error:
            if error.blamed is None or error.blamed in broken:
                raise
            broken[error.blamed] = str(error)
            if whole is not None:
                left = whole - (time.monotonic() - begin)
                job = replace(job, budget=max(LEAST_BUDGET, left))


def _tuned(problem: Problem, result: TuneResult) -> Tuning:
    if not result.ok:
        raise (SingleChoice if result.single else NotTuned)(plain(result.reason))
    return Tuning(
        op=result.op,
        shapes=problem.shapes,
        strides=problem.strides,
        dtypes=problem.dtypes,
        device=problem.device,
        precision=result.precision,
        inputs_key=result.inputs,
        choices=sort_choices(list(result.choices)),
        threads=problem.threads,
    )
