"""Tune an op again: what a person types as a problem, the worker's job for it, what came of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from backend.counted import counted
from backend.model import convolution
from backend.model.choice import sort_choices
from backend.model.ops import ITEM_BYTES, OPS, product_of
from backend.model.origin import is_own
from backend.model.problem import Problem, Shape
from backend.model.tuning import Tuning
from backend.wire.jobs import SearchSpace, TuneJob, TuneResult
from rocm_tui.environment import device_env
from rocm_tui.errors import RocmTuiError, UsageError
from rocm_tui.harmless import plain
from rocm_tui.jobs.limits import JobError, check_seconds
from rocm_tui.jobs.run import RunJob, try_modes
from rocm_tui.meant import did_you_mean
from rocm_tui.session.model import Row
from rocm_tui.session.possible import why_not_tuned

BACKENDS = ("ATEN", "TRITON", "CPP", "CK", "CKTILE", "CUTLASS", "CUTEDSL", "NVGEMM")
"""Inductor's names of what it can tune a matrix product with."""
SPACES = ("default", "exhaustive")
_SEARCH_SPACES: Mapping[str, SearchSpace] = {"default": "DEFAULT", "exhaustive": "EXHAUSTIVE"}


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


def problem_of(tuning: Tuning) -> Problem:
    """The problem of a known tuning, without its results. Raises NotTunable."""
    why = why_not_tuned(tuning)
    if why is not None:
        raise NotTunable(why)
    inputs_key = tuning.inputs_key if tuning.precision is not None else None
    told = {convolution.of_hash(choice.hash or "") for choice in tuning.choices} - {()}
    options = tuning.options or (told.pop() if len(told) == 1 else ())
    return replace(tuning.problem, inputs_key=inputs_key, dims=(), options=options)


def words_of(problem: Problem) -> dict[str, Any]:
    """The problem in JSON: its key where that is known, else its shapes and types."""
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
    """The job of a worker; a problem's key says it all."""
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
        options=convolution.text_of(problem.options),
        backends=options.backends or None,
        search_space=None if space is None else _SEARCH_SPACES[space],
        templates=options.templates,
        budget=options.budget,
        mode=options.mode or 0,
    )


def tune(run: RunJob, problem: Problem, options: TuneOptions) -> Tuning:
    """Tune, in the mode that the cache was tuned in if it tells, else in the first one.

    A choice that ends its worker has failed, and another worker times the others. Raises JobError
    and NotTuned.
    """
    broken: dict[str, str] = {}
    job = tune_job(problem, options)
    if options.mode is None:
        [(_, answers)] = try_modes(
            [job],
            lambda job, mode: _without_broken(run, replace(job, mode=mode), broken),
            lambda result: result.conclusive,
        )
        for result in answers.values():
            if result.conclusive:
                return _tuned(problem, result)
    return _tuned(problem, _without_broken(run, replace(job, any_mode=True), broken))


def _without_broken(run: RunJob, job: TuneJob, broken: dict[str, str]) -> TuneResult:
    """The job again without each choice that ends its worker; `broken` learns them."""
    while True:
        try:
            return run(replace(job, broken=dict(broken)))
        except JobError as error:
            if error.blamed is None or error.blamed in broken:
                raise
            broken[error.blamed] = str(error)


def _tuned(problem: Problem, result: TuneResult) -> Tuning:
    if not result.ok:
        raise NotTuned(plain(result.reason))
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


# What a person types behind `rocm-tui tune`.

_SHAPE = re.compile(r"\d{1,18}(?:[x×]\d{1,18})*", re.ASCII)
_TYPES = {
    "f64": "float64",
    "double": "float64",
    "f32": "float32",
    "float": "float32",
    "fp32": "float32",
    "f16": "float16",
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "i8": "int8",
    "fp8": "float8_e4m3fn",
}


def is_shape(word: str) -> bool:
    return _SHAPE.fullmatch(word) is not None


def is_op(words: Sequence[str]) -> bool:
    """Whether they are meant as `OP SHAPE...`, though one of them may be mistyped."""
    return bool(words) and (product_of(words[0]) is not None or any(map(is_shape, words[1:])))


def typed_problem(
    words: Sequence[str],
    *,
    dtype: str | None,
    strides: str | None = None,
    device: str | None = None,
    precision: str | None = None,
) -> Problem:
    """`OP SHAPE...`, each shape as `8x128x256`; types and strides are joined by commas.

    Raises UsageError.
    """
    op, *rest = words
    if product_of(op) is None:
        raise UsageError(
            f"no op {op!r} is known{did_you_mean(op, OPS)}; there are {', '.join(OPS)}"
        )
    if not rest:
        raise UsageError(f"say the shapes of {op}'s operands, such as 8x128x256 8x256x192")
    shapes = tuple(_sizes(word, "shape") for word in rest)
    if dtype is None:
        raise UsageError(f"say the type of the operands of {op}, such as --dtype bf16")
    dtypes = tuple(_dtype(name) for name in dtype.split(","))
    if len(dtypes) not in (1, len(shapes)):
        operands = counted(len(shapes), "operand")
        raise UsageError(f"{counted(len(dtypes), 'type')} for {operands}; give one, or one each")
    steps = tuple(_sizes(word, "stride") for word in strides.split(",")) if strides else ()
    if steps and [len(step) for step in steps] != [len(shape) for shape in shapes]:
        raise UsageError("--strides needs as many numbers for each operand as its shape has")
    if precision not in (None, "highest", "high", "medium"):
        raise UsageError(f"{precision} is no precision; there are highest, high and medium")
    dtypes = dtypes * len(shapes) if len(dtypes) == 1 else dtypes
    return Problem(op, shapes, steps, dtypes, device, precision)


def _sizes(word: str, what: str) -> Shape:
    if not is_shape(word):
        raise UsageError(f"{word} is no {what}; write it as 8x128x256")
    return tuple(int(number) for number in re.split("[x×]", word))


def _dtype(name: str) -> str:
    bare = name.strip().removeprefix("torch.")
    full = _TYPES.get(bare, bare)
    if full not in ITEM_BYTES:
        near = did_you_mean(bare, (*_TYPES, *ITEM_BYTES))
        raise UsageError(f"{name} is no type{near}; write it as bf16 or bfloat16")
    return f"torch.{full}"


def backend_list(text: str | None) -> tuple[str, ...] | None:
    """`ATEN,TRITON` as names. Raises UsageError for one that Inductor does not have."""
    if text is None:
        return None
    names = tuple(name.strip().upper() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in BACKENDS]
    if unknown or not names:
        raise UsageError(f"no such backend: {', '.join(unknown)}; there are {', '.join(BACKENDS)}")
    return names


def distinct(rows: Iterable[Row]) -> list[Row]:
    """One row a problem, in their order: a log tells the same one again and again."""
    first: dict[Problem, Row] = {}
    for row in rows:
        first.setdefault(problem_of(row.tuning), row)
    return list(first.values())


def tune_options(
    *,
    backends: str | None,
    search_space: str | None,
    templates: bool,
    budget: float | str | None,
    device: str | None,
    budget_name: str = "the budget",
) -> TuneOptions:
    """What Inductor shall try, from what a person typed. Raises UsageError, for a device too."""
    seconds = None if budget is None else check_seconds(budget, budget_name)
    device_env(os.environ, device)
    return TuneOptions(
        backends=backend_list(backends),
        search_space=search_space,
        templates=templates,
        budget=seconds,
    )


def offers_ours(tuning: Tuning) -> bool:
    """Whether kernels of ours were among the choices, so that tuning again shall offer them."""
    return any(choice.hash and is_own(choice.hash) for choice in tuning.choices)
