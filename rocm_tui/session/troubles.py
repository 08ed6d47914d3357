"""Problems as a person reads them: what a source says thirty times is one line with a count."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocm_tui.format import plain

if TYPE_CHECKING:
    from backend.model.session import Fault


@dataclass(frozen=True, slots=True)
class Trouble:
    """A problem, where it was seen first, and how often its source tells of it."""

    problem: Fault
    count: int = 1

    @property
    def what(self) -> str:
        """In one line, harmless to a terminal."""
        told = plain(self.problem.what)
        return told if self.count == 1 else f"{told} ({self.count} times)"

    def line(self) -> str:
        """The same with the place, unless the words name it."""
        problem = self.problem
        where = problem.source if problem.line is None else f"{problem.source}:{problem.line}"
        where = plain(where)
        return self.what if where in self.what else f"{where}: {self.what}"


def troubles(problems: Iterable[Fault]) -> list[Trouble]:
    """Each thing that each source says, once, in the order of the last time it was said."""
    first: dict[tuple[str, str], Fault] = {}
    counts: dict[tuple[str, str], int] = {}
    for problem in problems:
        key = (problem.source, problem.what)
        first.setdefault(key, problem)
        counts[key] = counts.pop(key, 0) + 1
    return [Trouble(first[key], count) for key, count in counts.items()]
