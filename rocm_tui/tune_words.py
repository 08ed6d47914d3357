"""What a person types behind `rocm-tui tune`, as problems: ids, or an op with shapes and types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from backend.model.problem import Problem, Shape
from rocm_tui.errors import UsageError
from rocm_tui.session.model import Row
from rocm_tui.tune_request import BACKENDS, problem_of

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
_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}", re.ASCII)


def is_shape(word: str) -> bool:
    return _SHAPE.fullmatch(word) is not None


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
    shapes = tuple(_sizes(word, "shape") for word in rest)
    if dtype is None:
        raise UsageError(f"say the type of the operands of {op}, such as --dtype bf16")
    dtypes = tuple(_dtype(name) for name in dtype.split(","))
    if len(dtypes) not in (1, len(shapes)):
        raise UsageError(f"{len(dtypes)} types for {len(shapes)} operands; give one, or one each")
    steps = tuple(_sizes(word, "stride") for word in strides.split(",")) if strides else ()
    if steps and [len(step) for step in steps] != [len(shape) for shape in shapes]:
        raise UsageError("--strides needs as many numbers for each operand as its shape has")
    if precision not in (None, "highest", "high", "medium"):
        raise UsageError(f"{precision} is no precision; there are highest, high and medium")
    each = dtypes * len(shapes) if len(dtypes) == 1 else dtypes
    return Problem(op, shapes, steps, each, device, precision)


def _sizes(word: str, what: str) -> Shape:
    if not is_shape(word):
        raise UsageError(f"{word} is no {what}; write it as 8x128x256")
    return tuple(int(number) for number in re.split("[x×]", word))


def _dtype(name: str) -> str:
    bare = name.strip().removeprefix("torch.")
    if not _NAME.fullmatch(bare):
        raise UsageError(f"{name} is no type; write it as bf16 or bfloat16")
    return f"torch.{_TYPES.get(bare, bare)}"


def backends(text: str | None) -> tuple[str, ...] | None:
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
    found: dict[Problem, Row] = {}
    for row in rows:
        found.setdefault(problem_of(row.tuning), row)
    return list(found.values())
