"""Why a list of tunings is empty, in sentences: what was looked at, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from backend.counted import counted
from rocm_tui.harmless import plain
from rocm_tui.ingest.follow.tree import PathKind
from rocm_tui.session.model import Model

_RUN = "`rocm-tui run --max-autotune -- CMD` records a program"


def why_nothing(model: Model, looked: Sequence[PathKind], hidden: int = 0) -> list[str]:
    """`looked` is what the paths hold, `hidden` how many tunings are kept off the list.

    What a path does not hold is left to its problem, where it has one.
    """
    if hidden:
        return [f"{counted(hidden, 'tuning')} found, none of which passes the filter"]
    told = {problem.source for problem in model.problems}
    lines = [line for at in looked if at.path not in told for line in _of_path(at)]
    count = len(model.sessions)
    if count:
        who = counted(count, "session is", "sessions are")
        lines.append(f"{who} recorded there, in which nothing was tuned; {_RUN}")
    return lines


def _of_path(at: PathKind) -> Iterator[str]:
    path, advice = plain(at.path), f"; {_RUN}" if at.cache else ""
    if at.kind == "missing":
        yield f"{path} is not there yet{advice}"
    elif at.kind == "file":
        yield f"{path}: no AUTOTUNE table and no time of a choice in it"
    elif at.kind == "folder" and at.files:
        files = counted(at.files, "file")
        yield f"{path}: {files} read, and no tuning found"
    elif at.kind == "folder":
        yield f"{path}: no autotune cache, session or log in it{advice}"
