"""A candidate kernel, how its configuration is written, and its repeated measurements."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, Literal

from backend.model.problem import TuningKey

SUBGRAPH = "-graph():\n"
"""What separates the name and the inputs in a subgraph's hash from its graph's text."""
_NODE = " " * 4
"""The indentation of each node's line in a graph's text."""


def is_hash(text: str) -> bool:
    """Return whether a text may be a choice hash: one line, or the hash of a subgraph."""
    return text.isprintable() or is_subgraph(text)


def is_subgraph(hash: str) -> bool:
    """Return whether a hash has the form of a subgraph's, such as decompose-k: its name, the sizes
    and strides of its inputs, and its graph's text with one line per node."""
    head, _, graph = hash.partition(SUBGRAPH)
    lines = graph.split("\n")
    return head.isprintable() and all(n.startswith(_NODE) and n.isprintable() for n in lines)


MOST_MS = 1e7
"""The bound of kernel times in milliseconds, three hours; a pin raises 10 ns above it."""


def is_kernel_time(ms: float) -> bool:
    """Return whether the number can be the milliseconds that a kernel takes."""
    return 0 < ms < MOST_MS


def _kernel_time(ms: float) -> str:
    return "" if is_kernel_time(ms) else f"is not a time of a kernel: {ms:g} ms"


def _cache_time(ms: float) -> str:
    failed = ms == math.inf or math.isnan(ms)
    return "" if failed else _kernel_time(ms)


KernelTime = Annotated[float, _kernel_time]
CacheTime = Annotated[int | float, _cache_time]
"""Milliseconds in Inductor's cache: infinite or NaN for a choice that failed."""


NOT_TIMED = "not timed: "
"""How the reason begins why a choice that could be timed was left out."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A candidate kernel. A field that the source did not give is None, never guessed.

    `ms` is the measured time; a failed choice has none, but may have a `reason`. `description` is
    the text behind the time in an AUTOTUNE row; `config` splits it. `offered` is False for a choice
    that has a time under the same key but was not offered beside the others: another program offers
    it (other threads, activation or search space). `quantiles` are the 20th and 80th percentiles of
    the timed calls, if the source has them. Coordinate descent derived the choice from the one with
    the hash `origin` by changing `moved`.

    In the cache of a box with several devices, `identity` is the hash of the same kernel on device
    0, if it could be determined. A `shared` choice has one hash on all devices, so its time is from
    the device that tuned last.
    """

    name: str | None = None
    hash: str | None = None
    ms: KernelTime | None = None
    description: str = ""
    failed: bool = False
    reason: str | None = None
    offered: bool = field(default=True, metadata={"derived": True})
    quantiles: tuple[float, float] | None = field(default=None, metadata={"derived": True})
    origin: str | None = field(default=None, metadata={"derived": True})
    moved: str | None = field(default=None, metadata={"derived": True})
    identity: str | None = field(default=None, metadata={"derived": True})
    shared: bool = field(default=False, metadata={"derived": True})

    @property
    def label(self) -> str:
        """The name to display: the choice's name, else its hash with a short digest, else `?`."""
        if self.name or not self.hash:
            return self.name or "?"
        if is_subgraph(self.hash):
            stem = self.hash.partition("-")[0]
            return f"{stem}-{zlib.crc32(self.hash.encode('utf-8', 'surrogatepass')):08x}"
        stem, dash, digest = self.hash.rpartition("-")
        return f"{stem}-{digest[:8]}" if dash else self.hash

    @property
    def skipped(self) -> bool:
        """Whether a budget was spent before its turn: it counts as failed, and may be as fast."""
        return self.failed and (self.reason or "").startswith(NOT_TIMED)

    @property
    def typed(self) -> str:
        """The name to type in a command: the hash, or the label if it is missing or multi-line."""
        return self.hash if self.hash and "\n" not in self.hash else self.label

    @property
    def config(self) -> dict[str, str]:
        """The `KEY=VALUE` pairs of the description; other text is left out."""
        return parse_config(self.description)


def sort_choices(choices: list[Choice]) -> tuple[Choice, ...]:
    """Sort choices by time, then untimed, failed and not offered ones. The sort is stable."""

    def rank(choice: Choice) -> tuple[int, float]:
        if not choice.offered:
            return 3, choice.ms or 0.0
        if choice.failed:
            return 2, 0.0
        return (1, 0.0) if choice.ms is None else (0, choice.ms)

    plain = all(each.ms is not None and each.offered and not each.failed for each in choices)
    return tuple(sorted(choices, key=_MS if plain else rank))


_MS = attrgetter("ms")


def bare_pairs(text: str) -> str:
    """Return `A=1, B=2` of `FlyDSL template flydsl_mm_flydsl_7 (A=1, B=2)`, as torch describes the
    kernels of FlyDSL and CuTe; other text unchanged."""
    words, bracket, pairs = text.partition(" (")
    return pairs[:-1] if bracket and pairs.endswith(")") and "=" not in words else text


def parse_config(text: str) -> dict[str, str]:
    """Split `A=1, B='x, y', C=[1, 2]` at the commas outside quotes and brackets.

    Takes one pass, without backtracking. Double quotes around a whole value are removed, so that
    `FLOAT32_PRECISION="'ieee'"` gives `'ieee'`. A part without `=` is left out.
    """
    return dict(_parsed(text))


@lru_cache(maxsize=1024)  # called for every key on every redraw of a list of choices
def _parsed(text: str) -> tuple[tuple[str, str], ...]:
    text = bare_pairs(text)
    config: dict[str, str] = {}
    depth, quote, start = 0, "", 0
    parts: list[str] = []
    for at, char in enumerate(text):
        if quote:
            if char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth = max(0, depth - 1)
        elif char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    for part in parts:
        key, equals, value = part.strip().partition("=")
        if equals and key.isidentifier():
            config[key] = _unquote(value)
    return tuple(config.items())


def _unquote(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] == '"':
        return value[1:-1]
    return value


Verdict = Literal["faster", "tied", "slower", "unclear"]
"""The result of repeated measurement of a choice against the best one; see docs/measuring.md."""

Caches = Literal["hot", "cold"]
"""Whether the inputs of a timed call were in the caches, because the previous call read them."""


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a choice, compared with the other choices of its measurement on the same
    inputs.

    Choices of one `group` (a letter) gave identical bits; `same` of `runs` runs of this choice did.
    Of `compared` elements, `beyond` differ from the product in float64 by more than rounding
    explains, the worst by `excess` times the tolerance. `compared` is 0 if no reference is
    available.
    """

    group: str
    runs: int
    same: int
    compared: int = 0
    beyond: int = 0
    excess: float = 0.0

    @property
    def steady(self) -> bool:
        """Whether every run gave the same bits."""
        return self.same == self.runs


@dataclass(frozen=True, slots=True)
class MeasuredChoice:
    """The result of repeated measurement for one choice.

    `ms` is the median time of a call, `low` to `high` its own 95 % interval; `spread` is half the
    interquartile range over the median. `ratio` is its time over the best choice's (above 1 is
    slower); `ratio_low` to `ratio_high` is its interval, joint with all others of the measurement,
    and from 0 to infinity if nothing is certain. The best choice has ratio 1 and is `faster` only
    if every rival is slower.
    """

    hash: str
    ms: KernelTime
    low: float
    high: float
    spread: float
    rounds: int
    ratio: float
    ratio_low: float
    ratio_high: float
    verdict: Verdict
    name: str | None = None
    output: Output | None = None


def _older_caches(members: Mapping[str, Any]) -> Caches:
    """Read `caches` from an older log, which records whether the caches were flushed."""
    return "cold" if members.get("flushed") is True else "hot"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One repeated measurement of the choices of an (op, inputs, precision), best choice first.

    `failed` are choices that could not run, with their reasons. `trouble` has a sentence for each
    disturbance. `reference_ms` is the median of a kernel that is the same in every measurement on
    this machine, timed in every round. Hot and cold measurements (`caches`) are not comparable.
    `resolution_ms` is the smallest difference between two calls that the clock can resolve. `when`
    is Unix time in seconds, `seconds` the duration.

    `clock_mhz`, `power_w` and `temperature_c` are medians during the measurement, if the device has
    such sensors. Rounds in which it was `throttled` do not count.
    """

    op: str
    inputs: str
    precision: str
    when: float
    choices: tuple[MeasuredChoice, ...]
    failed: tuple[Choice, ...] = ()
    rounds: int = 0
    seconds: float = 0.0
    caches: Caches = field(default="hot", metadata={"missing": _older_caches})
    reference_ms: float | None = None
    trouble: tuple[str, ...] = ()
    device: str | None = None
    system_hash: str | None = None
    session: str | None = None
    resolution_ms: float | None = None
    clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttled: int = 0

    @property
    def key(self) -> TuningKey:
        return TuningKey(self.op, self.inputs, self.precision)

    def of(self, hash: str | None) -> MeasuredChoice | None:
        """Return the result of the choice with this hash, if it was measured."""
        return next((choice for choice in self.choices if choice.hash == hash), None)
