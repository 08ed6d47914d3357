"""One question to a tuner's tables, what was said of it, and the tally of a log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from backend.tables.model import Device, Fields

UNTOLD = Device()
"""Of which nothing is said."""
MAX_ASKS = 200_000
"""Different questions that are kept of all files: no program has as many, a damaged file may."""


class Answer(Enum):
    """What the line says came of it."""

    MISSED = "missed"
    FOUND = "found"
    UNTOLD = "untold"
    """Asked for; whether a table had it is not said."""
    NOTED = "noted"
    """About a question that another line counts."""


@dataclass(frozen=True, slots=True)
class Ask:
    """`op`, `key` and `device` are those of the entry that would answer it, as far as told."""

    tuner: str
    op: str
    key: Fields
    device: Device = UNTOLD


@dataclass(frozen=True, slots=True)
class Said:
    """One line. `way` is what was run then; `table` the file that was looked into, `device` on
    which, `call` how to make that call again, each as far as it is told."""

    ask: Ask
    answer: Answer
    way: str = ""
    table: str = ""
    device: Device = UNTOLD
    call: str = ""


@dataclass(slots=True)
class Tally:
    """How often a question was answered so or so, and what was run how often instead."""

    missed: int = 0
    found: int = 0
    untold: int = 0
    noted: int = 0
    ways: dict[str, int] = field(default_factory=dict)
    table: str = ""
    call: str = ""

    @property
    def times(self) -> int:
        """How often it was asked. A note alone counts once: its question had no line."""
        return self.missed + self.found + self.untold or min(self.noted, 1)

    def add(self, said: Said, times: int = 1) -> None:
        name = said.answer.value
        setattr(self, name, getattr(self, name) + times)
        if said.way:
            way = said.way if said.way in self.ways or len(self.ways) < _WAYS else "other ways"
            self.ways[way] = self.ways.get(way, 0) + times
        self.table = self.table or said.table
        self.call = self.call or said.call

    @property
    def way(self) -> str:
        """What was run most often."""
        return max(self.ways, key=lambda way: self.ways[way], default="")


_WAYS = 8


@dataclass(slots=True)
class Asked:
    """All that some files say. `nameless` counts, by tuner, misses whose line does not tell of
    what; `left` the questions beyond `MAX_ASKS`."""

    tallies: dict[Ask, Tally] = field(default_factory=dict)
    devices: set[Device] = field(default_factory=set)
    nameless: Counter[str] = field(default_factory=Counter)
    left: int = 0

    def add(self, said: Said, times: int = 1) -> None:
        tally = self.tallies.get(said.ask)
        if tally is None:
            if len(self.tallies) >= MAX_ASKS:
                self.left += times
                return
            tally = self.tallies[said.ask] = Tally()
        tally.add(said, times)
        if said.device != UNTOLD:
            self.devices.add(said.device)


Sayings = Iterator[Said]


@dataclass(frozen=True, slots=True)
class Marker:
    """What a line of a log is found by. `read` is given the line from `begins`, the last one before
    the word, or from the word itself; None for what only looks like one."""

    word: bytes
    read: Callable[[str], Said | None]
    begins: bytes = b""
