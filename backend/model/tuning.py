"""One autotuning: its problem, its choices, their times; and a person's pin for one of its choices.

The words are Inductor's own: an *op* with an *inputs key* and a *precision* is tuned by timing its
*choices*; a choice is known by its *hash*. Times are milliseconds unless a name says otherwise.
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
    """What is wrong with it, or nothing."""
    return "" if 0 < len(text) <= MOST and text.isprintable() else "is no word"


Word = Annotated[str, is_word]

LATEST = 253_402_300_799.0
"""The end of the year 9999, Unix seconds; what is later no calendar can print."""


def is_moment(seconds: float) -> str:
    """What is wrong with it, or nothing."""
    return "" if abs(seconds) <= LATEST else "is no time"


Moment = Annotated[int | float, is_moment]

State = Literal["running", "done", "cut"]
"""A tuning is running, done, or cut off (its source ended in the middle of it)."""

Selection = Literal["timing", "cache", "pin", "only", "deterministic", "rank", "alone"]
"""Why a choice was selected: fastest now, fastest in the cache, pinned, no rival, deterministic; of
a rank of a job that agrees, taken from another rank, or chosen alone since that was not possible.
"""
REUSED: tuple[Selection, ...] = ("cache", "pin", "rank")
"""Those for which nothing was timed."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """Wall-clock seconds that one tuning took, by phase."""

    benchmark: float | None = None
    precompile: float | None = None
    prescreen: float | None = None


@dataclass(frozen=True, slots=True)
class TableEntry:
    """Where a tuned table has it: the `tuner` who wrote that, its `line`, the `device` it is for
    (`gfx942:304`, a name; empty where nothing tells). `unread` is why it is no problem in torch's
    words, where it is none."""

    tuner: str
    line: int
    device: str = ""
    unread: str = ""


@dataclass(frozen=True, slots=True)
class Tuning(Problem):
    """One autotuning of a problem, as one source or several joined tell it.

    `num_choices` is what the source says was tried; `choices` may hold fewer (only the best ten
    are printed) and is sorted: fastest first, then not yet timed, then failed.
    `timed` and `compiled` count the progress of a running one. `selected` is a choice hash.
    `rank` is the process rank of a distributed job; `process` the words by which a log names the
    process before its lines; `when` is Unix time in seconds. `measured` is
    the latest repeated measurement of the same key. Of a Triton kernel that Inductor launches
    `kernel` is its name, and `code` the file with its text, where the source tells them. `decided`
    is the rank from which a rank of a job has its choice, `apart` why it chose by itself, `awaited`
    the rank for whose choice a running one waits. `device_index` is 1 where it was tuned on
    `cuda:1`, and its choices are those of that device; None where nothing shows it.

    With an `entry` it is no tuning of Inductor's, but an entry of another tuner's table: its one
    choice is what that took, if it has one, and its `inputs_key` what the tuner looks it up by.
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
        """As of any problem; Inductor's cache knows nothing of another tuner's entry."""
        if self.entry is not None or self.inputs_key is None or self.precision is None:
            return None
        return TuningKey(self.op, self.inputs_key, self.precision)

    @property
    def problem(self) -> Problem:
        """What was tuned, without what came of it."""
        return Problem(**{field.name: getattr(self, field.name) for field in fields(Problem)})

    @property
    def borrowed(self) -> bool:
        """Whether its choice was taken from a cache or a pin, and nothing tells a time of it."""
        reused = self.session is not None and self.selected_by in REUSED
        return reused and all(choice.ms is None for choice in self.choices)


PinState = Literal["active", "unproven", "drifted", "orphaned", "shadowed"]
"""What was seen of a pin: code calls it; a compiled graph may hide it; see docs/pins.md."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What was seen in generated code of the choice that a pin asks for: `ok` if it is called.

    `by` is what compiled it: `verify`, the op alone in a worker, or `program`, a person's own.
    `torch` is its version, empty where it is unknown. `numbers` and `drifts` tell what the pin
    stood on: a digest of the tuning's times, and how often it had drifted. `when` is Unix time.
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
        """The id of the tuning that it pins."""
        return self.key.id


@dataclass(frozen=True, slots=True)
class Pin(PinnedKernel):
    """A person's decision that an (op, inputs) shall use one choice, kept until unpinned.

    `timings` are the numbers of the tuning as they were before the pin, by precision and choice
    hash; a failed choice is `inf`. `drifts` counts how often it had to be applied again. `config`
    is that of the choice, where it is known. `variants` are the hashes of the same kernel by device
    index, as text; empty where `hash` is that of every device.
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
