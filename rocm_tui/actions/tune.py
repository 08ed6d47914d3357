"""Tune an op again: what a person types as a problem, and what Inductor shall try."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from backend.counted import counted
from backend.model.ops import ITEM_BYTES, OPS, op_row
from backend.model.origin import is_own
from backend.model.problem import Problem, Shape
from backend.model.tuning import Tuning
from backend.wire.jobs import EnvironmentJob
from rocm_tui.environment import CPU, device_env
from rocm_tui.errors import UsageError
from rocm_tui.jobs.limits import check_seconds
from rocm_tui.jobs.run import RunJob
from rocm_tui.jobs.tune import TuneOptions, problem_of
from rocm_tui.meant import did_you_mean
from rocm_tui.session.model import Row
from rocm_tui.session.refusals import why_not_tuned

BACKENDS = ("ATEN", "TRITON", "CPP", "CK", "CKTILE", "FLYDSL", "CUTLASS", "CUTEDSL", "NVGEMM")
"""Inductor's names of what it can tune a matrix product with."""


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
    return bool(words) and (op_row(words[0]) is not None or any(map(is_shape, words[1:])))


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
    if op_row(op) is None:
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


def distinct(rows: Iterable[Row], known: bool = False) -> list[Row]:
    """Return one row for each problem, in their order; a log repeats problems.

    Raises NotTunable if too little is known about one; with `known`, such rows are skipped.
    """
    first: dict[Problem, Row] = {}
    for row in rows:
        if not known or why_not_tuned(row.tuning) is None:
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
    """Return the options of a tuning from a person's words. Raises UsageError."""
    seconds = None if budget is None else check_seconds(budget, budget_name)
    device_env(os.environ, device)
    return TuneOptions(
        backends=backend_list(backends),
        search_space=search_space,
        templates=templates,
        budget=seconds,
        kept_as=None if device in (None, CPU) else int(device),
    )


def for_all_devices(run: RunJob, options: TuneOptions) -> TuneOptions:
    """`options` with the GPUs that take the times over: all of the kind of the one that measures.
    `run` shows its worker every GPU. Raises JobError, and UsageError where there is no GPU."""
    measures = options.kept_as or 0
    environment = run(EnvironmentJob(alike_to=measures))
    if not environment.gpu:
        raise UsageError("--all-devices needs GPUs, and torch sees none here")
    return replace(options, kept_as=measures, others=environment.alike)


def offers_ours(tuning: Tuning) -> bool:
    """Whether kernels of ours were among the choices, so that tuning again shall offer them."""
    return any(choice.hash and is_own(choice.hash) for choice in tuning.choices)
