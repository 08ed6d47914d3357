"""One autotuning: its problem, its choices, their times.

The words are Inductor's own: an *op* with an *inputs key* and a *precision* is tuned by timing its
*choices*; a choice is known by its *hash*. Times are milliseconds unless a name says otherwise.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Literal

from backend.model.choice import Choice
from backend.model.measurement import Measurement
from backend.model.problem import Shape, TuningKey

RUNNING, DONE, CUT = "running", "done", "cut"
State = Literal["running", "done", "cut"]
"""A tuning is running, done, or cut off (its source ended in the middle of it)."""

Selection = Literal["timing", "cache", "pin", "only", "deterministic"]
"""Why a choice was selected: fastest now, fastest in the cache, pinned, no rival, deterministic."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """Wall-clock seconds that one tuning took, by phase."""

    benchmark: float | None = None
    precompile: float | None = None
    prescreen: float | None = None


@dataclass(frozen=True, slots=True)
class Tuning:
    """One autotuning of an (op, inputs, precision), as one source or several joined tell it.

    `shapes`, `strides`, `dtypes` have one entry an operand, or are empty where unknown.
    `num_choices` is what the source says was tried; `choices` may hold fewer (only the best ten
    are printed) and is sorted: fastest first, then not yet timed, then failed.
    `timed` and `compiled` count the progress of a running one. `selected` is a choice hash.
    `rank` is the process rank of a distributed job; `when` is Unix time in seconds. `dims` is what
    an MM log calls (M, K, N), which it gives instead of shapes: the first two sizes of the last
    operand but one, and the last size of the last operand. `measured` is the latest repeated
    measurement of the same key. `threads` is how many the process had: on a CPU the hashes of C++
    choices depend on it.
    """

    op: str
    shapes: tuple[Shape, ...] = ()
    strides: tuple[Shape, ...] = ()
    dtypes: tuple[str, ...] = ()
    device: str | None = None
    precision: str | None = None
    inputs_key: str | None = None
    choices: tuple[Choice, ...] = ()
    num_choices: int | None = None
    seconds: Seconds = field(default_factory=Seconds)
    state: State = "done"
    compiled: int = 0
    timed: int = 0
    selected: str | None = None
    selected_by: Selection | None = None
    rank: int | None = None
    session: str | None = None
    when: float | None = None
    sources: tuple[str, ...] = ()
    dims: Shape = ()
    measured: Measurement | None = None
    threads: int | None = None

    @property
    def id(self) -> str:
        """Seven hex digits that name the problem; see `tuning_id`."""
        return tuning_id(self)

    @property
    def key(self) -> TuningKey | None:
        """Where the persistent cache holds it, if all three keys are known."""
        if self.inputs_key is None or self.precision is None:
            return None
        return TuningKey(self.op, self.inputs_key, self.precision)


def tuning_id(tuning: Tuning) -> str:
    """Seven hex digits of a SHA-256 of op, inputs and precision.

    The inputs are the inputs key where it is known, else shapes, strides and dtypes, else `dims`.
    """
    inputs = tuning.inputs_key
    if inputs is None:
        inputs = f"{tuning.shapes}{tuning.strides}{tuning.dtypes}"
        inputs += f"{tuning.dims}" if tuning.dims and not tuning.shapes else ""
    text = "\n".join((tuning.op, inputs, tuning.precision or ""))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:7]
