"""What is old below the cache dir, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from backend.counted import counted
from backend.pins.leftovers import Leftover
from rocm_tui.render.table import table
from rocm_tui.session import numbers as fmt


def total(leftovers: Sequence[Leftover]) -> str:
    """`12 things, 3.4 MiB`."""
    count = len(leftovers)
    size = sum(leftover.size for leftover in leftovers)
    return f"{counted(count, 'thing')}, {fmt.size(size)}"


def leftovers_text(leftovers: Sequence[Leftover], now: float) -> str:
    """A line a kind: how many, how much, how long the last one was not used."""
    rows = []
    for kind in dict.fromkeys(leftover.kind for leftover in leftovers):
        group = [leftover for leftover in leftovers if leftover.kind == kind]
        size = fmt.size(sum(leftover.size for leftover in group))
        latest = max(leftover.used for leftover in group)
        rows.append([kind, fmt.count(len(group)), size, fmt.age(latest, now)])
    return table(["WHAT", "COUNT", "SIZE", "LAST USED"], rows, "lrrr")


def leftover_json(leftover: Leftover, removed: bool) -> dict[str, Any]:
    return {
        "kind": leftover.kind,
        "paths": [str(path) for path in leftover.files],
        "bytes": leftover.size,
        "last_used": leftover.used,
        "removed": removed,
    }
