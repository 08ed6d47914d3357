"""What a path turned out to hold, for a person whom it told nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rocm_tui.ingest.follow.tree import Walker
from rocm_tui.ingest.records import STDIN


@dataclass(frozen=True, slots=True)
class Looked:
    """`files` are the sources of a folder; `cache` is set for the cache dir in force."""

    path: str
    kind: Literal["missing", "file", "folder", "unreadable"]
    files: int = 0
    cache: bool = False


def look_at(paths: Sequence[str], cache_dir: str) -> list[Looked]:
    """Each path, looked at again. Never raises."""
    return [_look_at(path, path == cache_dir) for path in dict.fromkeys(paths)]


def _look_at(path: str, cache: bool) -> Looked:
    if path != STDIN and not os.path.lexists(path):
        return Looked(path, "missing", cache=cache)
    if not os.path.isdir(path):  # noqa: PTH112
        return Looked(path, "file", 1, cache)
    try:
        return Looked(path, "folder", len(Walker().walk(path).members), cache)
    except OSError:
        return Looked(path, "unreadable", cache=cache)
