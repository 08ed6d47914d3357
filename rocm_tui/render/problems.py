"""Problems of sources as a person reads them: what one says thirty times is one line with a count.

The first screen needs this before anything else of a session is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backend.counted import counted
from rocm_tui.harmless import plain

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
        words = plain(self.problem.what)
        return words if self.count == 1 else f"{words} ({self.count:,} times)"

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


_FEW = 3
"""So many sources that say the same are named, each in a line of its own."""


def trouble_lines(problems: Iterable[Fault]) -> Iterator[str]:
    """The same as lines; what more than a few sources say is one."""
    all_of = troubles(problems)
    sources: dict[str, dict[str, None]] = {}
    for trouble in all_of:
        sources.setdefault(trouble.what, {})[trouble.problem.source] = None
    for trouble in all_of:
        saying = sources.get(trouble.what, {})
        if 0 < len(saying) <= _FEW:
            yield trouble.line()
        elif saying:
            others = counted(len(saying) - 1, "other source")
            yield f"{plain(next(iter(saying)))} and {others}: {trouble.what}"
            saying.clear()


def problem_json(problem: Fault) -> dict[str, Any]:
    return {"source": problem.source, "line": problem.line, "what": problem.what}
