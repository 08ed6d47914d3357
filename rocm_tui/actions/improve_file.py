"""A search as a file beside its graph: `rocm_tui/graphs/ID.improve.json`.

It is written whole after each step, so that a search that was killed goes on where it was. What is
read is checked: a file that does not hold a search is refused, never overwritten unasked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from math import isfinite
from pathlib import Path

from backend.disk import safe
from backend.disk.layout import Layout
from backend.errors import Busy, CacheUnreadable
from backend.wire.codec import WireError, dumps, loads, read, to_json
from rocm_tui.errors import RocmTuiError
from rocm_tui.search.types import VERSION, Search, Try

MAX_BYTES = 64 << 20


class SearchUnreadable(RocmTuiError):
    """What lies in the place of a search is none; one line says why."""


class AlreadyRunning(RocmTuiError):
    """Another process searches for the same graph."""


def search_path(layout: Layout, graph: str) -> Path:
    """Raises SearchUnreadable for what is no graph's id."""
    if not (graph.isascii() and graph.isalnum()):
        raise SearchUnreadable("that is no id of a graph")
    return layout.graphs / f"{graph}.improve.json"


@contextlib.contextmanager
def alone(layout: Layout, graph: str) -> Iterator[None]:
    """Nobody else searches for this graph meanwhile. Raises AlreadyRunning and StoreErrors."""
    path = search_path(layout, graph)
    safe.make_folder(layout.root, path.parent)
    try:
        with safe.locked(layout.root, path, seconds=0.0):
            yield
    except Busy as error:
        raise AlreadyRunning(
            f"graph {graph} is being improved by another process; let it end, or end it"
        ) from error


def read_search(layout: Layout, graph: str) -> Search | None:
    """The search as it was left; None if there was none. Raises SearchUnreadable."""
    path = search_path(layout, graph)
    advice = "move it away, or begin anew with --restart"
    try:
        if not safe.exists(path):
            return None
        search = read(Search, loads(safe.read_bytes(path, MAX_BYTES)))
    except (WireError, CacheUnreadable, RecursionError) as error:
        raise SearchUnreadable(f"{path} does not hold a search ({error}); {advice}") from error
    if search.version != VERSION or search.graph != graph or not _sound(search):
        raise SearchUnreadable(f"{path} does not hold a search of graph {graph}; {advice}")
    return search


def _sound(search: Search) -> bool:
    """Whether its parts fit each other."""
    return all(_fits(attempt, len(search.subjects)) for attempt in search.tries)


def _fits(attempt: Try, subjects: int) -> bool:
    if attempt.subject >= max(1, subjects) or not attempt.arms or not 0 < attempt.error <= 1:
        return False
    if attempt.kind == "confirm" and len(attempt.arms) != 2:
        return False
    times = [arm.ms for arm in attempt.trial.arms] if attempt.trial else []
    times += [arm.ratio for arm in attempt.trial.arms] if attempt.trial else []
    return all(value is None or (isfinite(value) and value > 0) for value in times)


def write_search(layout: Layout, search: Search) -> None:
    """The caller is `alone`. Raises StoreErrors."""
    path = search_path(layout, search.graph)
    safe.check_file(layout.root, path)
    safe.write_atomic(path, (dumps(to_json(search)) + "\n").encode())
