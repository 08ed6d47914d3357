"""What is tuned: an op on inputs of given sizes, in a precision; and Inductor's keys for it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

Shape = tuple[int, ...]
"""Sizes or strides of one operand; `()` is a 0-dim tensor."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input of an inputs key. `strides` has the length of `sizes`; all in elements."""

    device: str
    dtype: str
    sizes: Shape
    strides: Shape
    offset: int


@dataclass(frozen=True, slots=True)
class TuningKey:
    """The three keys of Inductor's persistent autotune cache, as text, suffixes included."""

    op: str
    inputs: str
    precision: str


@dataclass(frozen=True, slots=True)
class Problem:
    """An op on inputs, as far as its source tells.

    `shapes`, `strides`, `dtypes` have one entry an operand, or are empty where unknown. `dims` is
    what an MM log calls (M, K, N), which it gives instead of shapes: the first two sizes of the
    last operand but one, and the last size of the last operand. `threads` is how many the process
    had: on a CPU the hashes of C++ choices depend on it.
    """

    op: str
    shapes: tuple[Shape, ...] = ()
    strides: tuple[Shape, ...] = ()
    dtypes: tuple[str, ...] = ()
    device: str | None = None
    precision: str | None = None
    inputs_key: str | None = None
    dims: Shape = field(default=(), kw_only=True)
    threads: int | None = field(default=None, kw_only=True)

    @property
    def id(self) -> str:
        """Seven hex digits that name it; see `tuning_id`."""
        return tuning_id(self)

    @property
    def key(self) -> TuningKey | None:
        """Where the persistent cache holds it, if all three keys are known."""
        if self.inputs_key is None or self.precision is None:
            return None
        return TuningKey(self.op, self.inputs_key, self.precision)


def tuning_id(problem: Problem) -> str:
    """Seven hex digits of a SHA-256 of op, inputs and precision.

    The inputs are the inputs key where it is known, else shapes, strides and dtypes, else `dims`.
    """
    inputs = problem.inputs_key
    if inputs is None:
        inputs = f"{problem.shapes}{problem.strides}{problem.dtypes}"
        inputs += f"{problem.dims}" if problem.dims and not problem.shapes else ""
    text = "\n".join((problem.op, inputs, problem.precision or ""))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:7]
