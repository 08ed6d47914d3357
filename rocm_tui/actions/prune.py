"""Removing what is old below `rocm_tui/` of a cache dir."""

from __future__ import annotations

from dataclasses import dataclass

from backend.disk.layout import Layout
from backend.pins.leftovers import Leftover, leftovers, remove


@dataclass(frozen=True, slots=True)
class Pruned:
    """The old files, those that were removed, and a line for each kind that was not checked."""

    old: tuple[Leftover, ...]
    gone: tuple[Leftover, ...]
    kept: tuple[str, ...]


def prune(layout: Layout, now: float, days: float, yes: bool) -> Pruned:
    """Without `yes` nothing is removed. Raises UnsafePath, OSError."""
    found = leftovers(layout, now, days)
    gone = (one for one in found.old if yes and remove(layout, one, now, days))
    return Pruned(found.old, tuple(gone), found.kept)
