"""A candidate kernel, how its configuration is written, and its times where it was timed again and
again, outside of any tuning.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, Literal

from backend.model.problem import TuningKey

_GRAPH = "-graph():\n"
_NODE = " " * 4
"""How the text of each node of a graph begins."""


def is_hash(text: str) -> bool:
    """Whether a text may be the hash of a choice: one line, or the hash of a subgraph."""
    return text.isprintable() or is_subgraph(text)


def is_subgraph(hash: str) -> bool:
    """Whether a hash has the form of a subgraph's, such as decompose-k: its name, the sizes and
    strides of its inputs, and the text of its graph, which has a line for each node."""
    head, _, graph = hash.partition(_GRAPH)
    lines = graph.split("\n")
    return head.isprintable() and all(n.startswith(_NODE) and n.isprintable() for n in lines)


MOST_MS = 1e7
"""Milliseconds. No kernel takes these three hours; one of 10 ns that a pin raised is above."""


def is_kernel_time(ms: float) -> bool:
    """Whether the number can be the milliseconds that a kernel takes."""
    return 0 < ms < MOST_MS


def _kernel_time(ms: float) -> str:
    return "" if is_kernel_time(ms) else f"is no time of a kernel: {ms:g} ms"


def _cache_time(ms: float) -> str:
    failed = ms == math.inf or math.isnan(ms)
    return "" if failed else _kernel_time(ms)


KernelTime = Annotated[float, _kernel_time]
CacheTime = Annotated[int | float, _cache_time]
"""As Inductor caches it: infinite, or no number, for a choice that failed."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One candidate kernel. What its source did not say is None, never guessed.

    `ms` is the measured time; a failed choice has none, and `reason` where one is known.
    `description` is the text behind the time in an AUTOTUNE row; `config` splits it. `offered` is
    False for one that has a time under the same key but was not put up beside the others: the
    program that offers it is another one (its threads, its activation, its search space).
    `quantiles` are the 20th and the 80th percentile of what was timed, where the source tells them.
    Coordinate descent made it of the choice with the hash `origin`, by changing `moved`.

    In the cache of a box with several devices `identity` is the hash that the same kernel has on
    device 0, where that is known. The time of a `shared` one, whose hash is the same on all
    devices, may be that of another device: the one that tuned last.
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
        """What a person calls it: the name, else the hash with a short digest, else `?`."""
        if self.name or not self.hash:
            return self.name or "?"
        if is_subgraph(self.hash):
            stem = self.hash.partition("-")[0]
            return f"{stem}-{zlib.crc32(self.hash.encode('utf-8', 'surrogatepass')):08x}"
        stem, dash, digest = self.hash.rpartition("-")
        return f"{stem}-{digest[:8]}" if dash else self.hash

    @property
    def typed(self) -> str:
        """What names it in a command: its hash; its label where that has several lines or none."""
        return self.hash if self.hash and "\n" not in self.hash else self.label

    @property
    def config(self) -> dict[str, str]:
        """`KEY=VALUE, ...` of the description; text that is not of that form is left out."""
        return parse_config(self.description)


def sort_choices(choices: list[Choice]) -> tuple[Choice, ...]:
    """Fastest first, then those without a time, failed ones, and those that were not offered beside
    the others; equal ones keep their order."""

    def rank(choice: Choice) -> tuple[int, float]:
        if not choice.offered:
            return 3, choice.ms or 0.0
        if choice.failed:
            return 2, 0.0
        return (1, 0.0) if choice.ms is None else (0, choice.ms)

    plain = all(each.ms is not None and each.offered and not each.failed for each in choices)
    return tuple(sorted(choices, key=_MS if plain else rank))


_MS = attrgetter("ms")


def parse_config(text: str) -> dict[str, str]:
    """Split `A=1, B='x, y', C=[1, 2]` at the commas outside quotes and brackets.

    One pass, no backtracking. Quotes around a whole value are kept: `FLOAT32_PRECISION="'ieee'"`
    gives `'ieee'` inside its outer quotes stripped once. A part without `=` is left out.
    """
    return dict(_parsed(text))


@lru_cache(maxsize=1024)  # a list of choices asks for each key and each time that it is drawn
def _parsed(text: str) -> tuple[tuple[str, str], ...]:
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
"""What repeated measurement says of a choice against the best one; see docs/measuring.md."""

Caches = Literal["hot", "cold"]
"""Whether what a call reads was in the caches, since the call before had read the same, or not."""


@dataclass(frozen=True, slots=True)
class Output:
    """What a choice computed, beside the others of its measurement and from the same inputs.

    Those of one `group` (a letter) gave the very same bits; so did `same` of `runs` runs of this
    one. Of `compared` elements `beyond` are further from the product in float64 than rounding
    explains, the worst one by `excess` times what is allowed; 0 compared where none is known.
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
    """What repeated measurement says of one choice.

    `ms` is the median time of a call, `low` to `high` its own 95 % interval; `spread` is half the
    interquartile range over the median. `ratio` is its time over the best choice's, above 1 is
    slower, `ratio_low` to `ratio_high` its interval, joint with all others of the measurement; from
    0 to infinity where nothing is known. The best choice has ratio 1 and is `faster` only if every
    rival is slower.
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
    """Older logs tell whether the caches were flushed."""
    return "cold" if members.get("flushed") is True else "hot"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One repeated measurement of choices of an (op, inputs, precision), best choice first.

    `failed` are choices that could not be run, with their reasons. `trouble` says in sentences what
    disturbed it. `reference_ms` is the median of a kernel that is the same on every run of this
    machine, measured in every round. Hot and cold ones (`caches`) are about different questions.
    `resolution_ms` is the smallest difference of two calls' times that the clock can tell. `when`
    is Unix time in seconds, `seconds` what it took.

    Of the device, where it can be asked: the medians of its clock, power and temperature while it
    was measured, and how many rounds it was `throttled` in, which do not count.
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
        """What it says of the choice with this hash, if that was measured."""
        return next((choice for choice in self.choices if choice.hash == hash), None)
