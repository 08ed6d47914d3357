"""The data that the program and the PyTorch side share: frozen, without torch.

The words are Inductor's own: an *op* with an *inputs key* and a *precision* is tuned by timing its
*choices*; a choice is known by its *hash*. Times are milliseconds unless a name says otherwise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

LATEST = 253_402_300_799.0
"""The end of the year 9999, Unix seconds; what is later no calendar can print."""

Shape = tuple[int, ...]
"""Sizes or strides of one operand; `()` is a 0-dim tensor."""

RUNNING, DONE, CUT = "running", "done", "cut"
State = Literal["running", "done", "cut"]
"""A tuning is running, done, or cut off (its source ended in the middle of it)."""

Selection = Literal["timing", "cache", "pin", "only", "deterministic"]
"""Why a choice was selected: fastest now, fastest in the cache, pinned, no rival, deterministic."""


Verdict = Literal["faster", "tied", "slower", "unclear"]
"""What repeated measurement says of a choice against the best one; see docs/measuring.md."""


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
class Choice:
    """One candidate kernel. What its source did not say is None, never guessed.

    `ms` is the measured time; a failed choice has none, and `reason` where one is known.
    `description` is the text behind the time in an AUTOTUNE row; `config` splits it. `offered` is
    False for one that has a time under the same key but was not put up beside the others: the
    program that offers it is another one (its threads, its activation, its search space).
    """

    name: str | None = None
    hash: str | None = None
    ms: float | None = None
    description: str = ""
    failed: bool = False
    reason: str | None = None
    offered: bool = field(default=True, metadata={"derived": True})

    @property
    def label(self) -> str:
        """What a person calls it: the name, else the hash with a short digest, else `?`."""
        if self.name or not self.hash:
            return self.name or "?"
        stem, dash, digest = self.hash.rpartition("-")
        return f"{stem}-{digest[:8]}" if dash else self.hash

    @property
    def config(self) -> dict[str, str]:
        """`KEY=VALUE, ...` of the description; text that is not of that form is left out."""
        from backend.config_text import parse_config

        return parse_config(self.description)


@dataclass(frozen=True, slots=True)
class Seconds:
    """Wall-clock seconds that one tuning took, by phase."""

    benchmark: float | None = None
    precompile: float | None = None
    prescreen: float | None = None


@dataclass(frozen=True, slots=True)
class MeasuredChoice:
    """What repeated measurement says of one choice.

    `ms` is the median time of a call, `low` to `high` its own 95 % interval; `spread` is half the
    interquartile range over the median. `ratio` is its time over the best choice's, above 1 is
    slower, `ratio_low` to `ratio_high` its interval, joint with all others of the measurement; from
    0 to infinity where nothing is known. The best choice has ratio 1 and is `faster` only if every
    rival is slower.
    """

    hash: str
    ms: float
    low: float
    high: float
    spread: float
    rounds: int
    ratio: float
    ratio_low: float
    ratio_high: float
    verdict: Verdict
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One repeated measurement of choices of an (op, inputs, precision), best choice first.

    `failed` are choices that could not be run, with their reasons. `trouble` says in sentences what
    disturbed it. `reference_ms` is the median of a kernel that is the same on every run of this
    machine, measured in every round; `flushed` tells whether the caches were emptied before each
    call. `when` is Unix time in seconds, `seconds` what it took.
    """

    op: str
    inputs: str
    precision: str
    when: float
    choices: tuple[MeasuredChoice, ...]
    failed: tuple[Choice, ...] = ()
    rounds: int = 0
    seconds: float = 0.0
    flushed: bool = False
    reference_ms: float | None = None
    trouble: tuple[str, ...] = ()
    device: str | None = None
    system_hash: str | None = None
    session: str | None = None

    @property
    def key(self) -> TuningKey:
        return TuningKey(self.op, self.inputs, self.precision)

    def of(self, hash: str | None) -> MeasuredChoice | None:
        """What it says of the choice with this hash, if that was measured."""
        return next((choice for choice in self.choices if choice.hash == hash), None)


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


def sort_choices(choices: list[Choice]) -> tuple[Choice, ...]:
    """Fastest first, then those without a time, failed ones, and those that were not offered beside
    the others; equal ones keep their order."""

    def rank(choice: Choice) -> tuple[int, float]:
        if not choice.offered:
            return 3, choice.ms or 0.0
        if choice.failed:
            return 2, 0.0
        return (1, 0.0) if choice.ms is None else (0, choice.ms)

    return tuple(sorted(choices, key=rank))


@dataclass(frozen=True, slots=True)
class Session:
    """One process that tuned something, as the header of its event log tells it.

    `backends` are those that it asked Inductor for (`TRITON`, `CK`, ...; empty: not told), and
    `absent` says for some of them, as `NAME: reason`, why they cannot appear there. `threads` is
    how many of them its kernels for the CPU are made for. `locked` tells that the writer of the log
    holds a lock of it as long as it lives.
    """

    id: str
    host: str = ""
    pid: int = 0
    rank: int | None = None
    argv: tuple[str, ...] = ()
    python: str = ""
    torch: str = ""
    device: str | None = None
    arch: str | None = None
    compute_units: int | None = None
    cache_dir: str = ""
    system_hash: str | None = None
    started: float = 0.0
    backends: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    threads: int | None = None
    locked: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a source that could not be used: where and what, in one line."""

    source: str
    what: str
    line: int | None = None


PinState = Literal["active", "unproven", "drifted", "orphaned", "shadowed"]
"""What was seen of a pin: code calls it; a compiled graph may hide it; see docs/pins.md."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A person's decision that an (op, inputs) shall use one choice, kept until unpinned.

    `timings` are the numbers of the tuning as they were before the pin, by precision and choice
    hash; a failed choice is `inf`. `drifts` counts how often it had to be applied again.
    """

    op: str
    inputs: str
    precision: str
    hash: str
    label: str
    system_hash: str
    timings: Mapping[str, Mapping[str, float]]
    device: str | None = None
    who: str = ""
    when: float = 0.0
    note: str = ""
    drifts: int = 0

    @property
    def key(self) -> TuningKey:
        return TuningKey(self.op, self.inputs, self.precision)

    @property
    def id(self) -> str:
        """The id of the tuning that it pins."""
        return tuning_id(Tuning(op=self.op, inputs_key=self.inputs, precision=self.precision))
