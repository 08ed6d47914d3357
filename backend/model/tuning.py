"""One autotuning: its problem, choices and times; and a person's pin of one of its choices.

The terms are Inductor's: an *op* with an *inputs key* and a *precision* is tuned by timing its
*choices*; a choice is identified by its *hash*. Times are milliseconds unless a name says
otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Literal

from backend.model.choice import Choice, Measurement
from backend.model.problem import Problem, TuningKey

MOST = 40
"""Characters."""


def is_word(text: str) -> str:
    """Return why the text is not a word, or an empty string."""
    return "" if 0 < len(text) <= MOST and text.isprintable() else "is not a word"


Word = Annotated[str, is_word]

LATEST = 253_402_300_799.0
"""The end of the year 9999, Unix seconds; no calendar can print later times."""


def is_moment(seconds: float) -> str:
    """Return why the number is not a time, or an empty string."""
    return "" if abs(seconds) <= LATEST else "is not a time"


Moment = Annotated[int | float, is_moment]

State = Literal["running", "done", "cut"]
"""Whether a tuning is running, done, or cut off because its source ended in the middle."""

Selection = Literal["timing", "cache", "pin", "only", "deterministic", "rank", "alone"]
"""Why a choice was selected: fastest now, fastest in the cache, pinned, the only choice,
deterministic mode; in a job whose ranks agree, another rank's choice, or chosen alone because
agreement was not possible."""
REUSED: tuple[Selection, ...] = ("cache", "pin", "rank")
"""Selections for which nothing was timed."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """Wall-clock seconds of one tuning, by phase."""

    benchmark: float | None = None
    precompile: float | None = None
    prescreen: float | None = None


@dataclass(frozen=True, slots=True)
class TableEntry:
    """The origin of an entry in a tuned table: the `tuner` that wrote the file, the `line`, the
    `device` (`gfx942:304` or a name; empty if unknown). `unread` is why it is not a problem in
    torch's terms, if so."""

    tuner: str
    line: int
    device: str = ""
    unread: str = ""


@dataclass(frozen=True, slots=True)
class Tuning(Problem):
    """One autotuning of a problem, from one source or several joined ones.

    `num_choices` is the source's count of tried choices; `choices` may have fewer (only the best
    ten are printed) and is sorted: fastest first, then untimed, then failed. `timed` and `compiled`
    count the progress of a running tuning. `selected` is a choice hash. `rank` is the process rank
    of a distributed job; `process` the prefix that a log gives the process's lines; `when` is Unix
    time in seconds. `measured` is the latest repeated measurement of the same key. For a Triton
    kernel that Inductor launches, `kernel` is its name and `code` the file with its text, if known.
    In a job whose ranks agree, `decided` is the rank whose choice was adopted, `apart` why this
    rank chose alone, `awaited` the rank that a running tuning waits for. `device_index` is 1 for
    choices of `cuda:1`; None if unknown.

    A tuning with an `entry` is not Inductor's but an entry of another tuner's table: its only
    choice is the tuner's result, if it has one, and `inputs_key` the key by which the tuner looks
    it up.
    """

    choices: tuple[Choice, ...] = ()
    num_choices: int | None = None
    seconds: Seconds = field(default_factory=Seconds)
    state: State = "done"
    compiled: int = 0
    timed: int = 0
    selected: str | None = None
    selected_by: Word | None = None
    rank: int | None = None
    session: str | None = None
    when: float | None = None
    sources: tuple[str, ...] = ()
    measured: Measurement | None = None
    kernel: str = ""
    code: str = ""
    decided: int | None = None
    apart: str = ""
    awaited: int | None = None
    entry: TableEntry | None = None
    device_index: int | None = None
    process: str = ""

    @property
    def key(self) -> TuningKey | None:
        """The key in Inductor's cache; None for another tuner's entry, which is not there."""
        if self.entry is not None or self.inputs_key is None or self.precision is None:
            return None
        return TuningKey(self.op, self.inputs_key, self.precision)

    @property
    def problem(self) -> Problem:
        """The problem alone, without the tuning's results."""
        return Problem(**{field.name: getattr(self, field.name) for field in fields(Problem)})

    @property
    def borrowed(self) -> bool:
        """Whether the choice came from a cache or a pin, and no time is known."""
        reused = self.session is not None and self.selected_by in REUSED
        return reused and all(choice.ms is None for choice in self.choices)


PinState = Literal["active", "unproven", "drifted", "orphaned", "shadowed"]
"""The observed state of a pin: code calls it; a compiled graph may hide it; see docs/pins.md."""


@dataclass(frozen=True, slots=True)
class Proof:
    """Evidence from generated code about a pinned choice: `ok` if the code calls it.

    `by` is `verify`, which compiles the op alone in a worker, or `program`, a person's own. `torch`
    is the version, empty if unknown. `numbers` and `drifts` identify the pin's state at that time:
    a digest of the tuning's times, and how often the pin had drifted. `when` is Unix time.
    """

    when: Moment
    ok: bool
    by: str
    torch: str = ""
    numbers: str = ""
    drifts: int = 0


@dataclass(frozen=True, slots=True)
class PinnedKernel:
    """The tuning and the choice that a pin names, here or on its way to another machine."""

    op: str
    inputs: str
    precision: str
    hash: str
    label: str

    @property
    def key(self) -> TuningKey:
        return TuningKey(self.op, self.inputs, self.precision)

    @property
    def id(self) -> str:
        """The id of the pinned tuning."""
        return self.key.id


@dataclass(frozen=True, slots=True)
class Pin(PinnedKernel):
    """A person's decision that an (op, inputs) uses one choice until it is unpinned.

    `timings` are the tuning's times before the pin, by precision and choice hash; a failed choice
    is `inf`. `drifts` counts how often the pin had to be applied again. `config` is the choice's,
    if known. `variants` are the hashes of the same kernel by device index, as text; empty if `hash`
    is that of every device.
    """

    system_hash: str
    timings: Mapping[str, Mapping[str, float]]
    device: str | None = None
    who: str = ""
    when: float = 0.0
    note: str = ""
    drifts: int = 0
    config: Mapping[str, str] = field(default_factory=dict)
    variants: Mapping[str, str] = field(default_factory=dict)

    @property
    def hashes(self) -> frozenset[str]:
        """The hashes of the pinned kernel on all devices."""
        return frozenset((self.hash, *self.variants.values()))
