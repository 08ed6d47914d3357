"""Problems of sources, and reasons why a list of tunings is empty, in sentences."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backend.counted import counted
from rocm_tui.harmless import plain
from rocm_tui.ingest.follow.tree import PathKind
from rocm_tui.session.model import Model

if TYPE_CHECKING:
    from backend.model.session import Fault


@dataclass(frozen=True, slots=True)
class Trouble:
    """A problem, where it was seen first, and how often its source repeats it."""

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
"""The most sources that say the same, or problems of one form, that have a line each."""
_DETAIL = re.compile(r"\S*\d\S*")


def trouble_lines(problems: Iterable[Fault]) -> Iterator[str]:
    """Yield the same as lines: one for what more than a few sources say, and one for more than a
    few problems of a source that differ in numbers, or words with numbers, alone."""
    all_of = troubles(problems)
    sources: dict[str, dict[str, None]] = {}
    for trouble in all_of:
        sources.setdefault(trouble.what, {})[trouble.problem.source] = None
    alike = Counter(_form(each) for each in all_of if len(sources[each.what]) <= _FEW)
    for trouble in all_of:
        saying = sources.get(trouble.what, {})
        if 0 < len(saying) <= _FEW:
            count = alike[_form(trouble)]
            if count > _FEW:
                yield f"{trouble.line()} (and {count - 1:,} more like it)"
                alike[_form(trouble)] = 0
            elif count:
                yield trouble.line()
        elif saying:
            others = counted(len(saying) - 1, "other source")
            yield f"{plain(next(iter(saying)))} and {others}: {trouble.what}"
            saying.clear()


def _form(trouble: Trouble) -> tuple[str, str]:
    """Return the source and the words without the details of one case."""
    return trouble.problem.source, _DETAIL.sub("#", trouble.problem.what)


_RUN = "`rocm-tui run --max-autotune -- CMD` records a program"


def why_nothing(model: Model, looked: Sequence[PathKind], hidden: int = 0) -> list[str]:
    """`looked` is what the paths hold, `hidden` how many tunings are kept off the list.

    What a path does not hold is left to its problem, where it has one.
    """
    if hidden:
        return [f"{counted(hidden, 'tuning')} found, none of which passes the filter"]
    sources = {problem.source for problem in model.problems}
    lines = [line for at in looked if at.path not in sources for line in _of_path(at)]
    count = len(model.sessions)
    if count:
        who = counted(count, "session is", "sessions are")
        lines.append(f"{who} recorded there, in which nothing was tuned; {_RUN}")
    return lines


def why_no_tuning(model: Model) -> str:
    """Return why the programs that ended recorded no tuning, and what to do; empty before that."""
    if not model.sessions or model.processes.live:
        return ""
    graphs = [seen.graph for program in model.graphs.programs() for seen in program.graphs]
    off = sum(graph.max_autotune is False for graph in graphs)
    if off:
        whole = counted(off, "graph was", "graphs were")
        return f"{whole} compiled with max_autotune off; {_RUN}"
    if graphs:
        whole = counted(len(graphs), "graph was", "graphs were")
        return f"{whole} compiled without an op that Inductor tunes"
    return "the program compiled no graph; check that it reaches torch.compile"


def _of_path(at: PathKind) -> Iterator[str]:
    path, advice = plain(at.path), f"; {_RUN}" if at.cache else ""
    if at.kind == "missing":
        yield f"{path} is not there yet{advice}"
    elif at.kind == "file":
        yield f"{path}: no AUTOTUNE table or time of a choice recognised in it"
    elif at.kind == "folder" and at.files:
        files = counted(at.files, "file")
        yield f"{path}: {files} read, and no tuning found"
    elif at.kind == "folder":
        yield f"{path}: no autotune cache, session or log in it{advice}"
