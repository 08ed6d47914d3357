"""A campaign of faults: kills, writers, mutated inputs, rogue choices, broken disks, load.

Each module beside this one is a part: `run(folder, seconds, seed)` attacks for about so long in an
empty folder and yields what it saw. `make campaign` runs all of them; see docs/limits.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """What one attack came to."""

    what: str
    tries: int
    bad: int
    """How many tries broke the promise."""
    goal: str
    note: str = ""
    """What was seen besides; of bad ones, how to see the first again."""


Part = Callable[[Path, float, int], Iterator[Figure]]
"""`run(folder, seconds, seed)`: an empty folder, about how long, what random numbers start from."""
