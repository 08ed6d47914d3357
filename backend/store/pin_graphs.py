"""Compiled graphs that contradict a pin, moved aside; those that a released pin hides, restored."""

from __future__ import annotations

import hashlib
import math
import os
from pathlib import Path

from backend.store import graphs
from backend.store.cache_edit import INFINITY
from backend.store.graph_match import Wanted
from backend.store.graphs import GraphEntry, GraphIndex
from backend.store.paths import Layout
from backend.store.pin_edit import is_time
from backend.store.pin_file import Record


class GraphSweeper:
    """Each pin has one folder of evicted graphs: those that are stale while it, or after its end
    the measured winner, rules."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._index = GraphIndex(layout)

    def live(self) -> list[GraphEntry]:
        """The compiled graphs where PyTorch finds them."""
        return self._index.live()

    def sweep(self, record: Record) -> tuple[int, int]:
        """Move stale graphs aside and bring back those that are stale no more."""
        folder = self.folder(record)
        live, aside = self._index.live(), self._index.evicted(folder)
        stale = {entry.path for entry in self.stale(record, [*live, *aside])}
        moved = graphs.move_aside(self._layout, [e for e in live if e.path in stale], folder)
        restored = graphs.restore(self._layout, [e for e in aside if e.path not in stale])
        return moved, restored

    def late(self, record: Record) -> int:
        """How many stale graphs came after the pin: out of a mega-cache, by a copying program, by
        a compile that had begun before."""
        stale = self.stale(record, self._index.live())
        return sum(entry.appeared > record.when for entry in stale)

    def stale(self, record: Record, entries: list[GraphEntry]) -> list[GraphEntry]:
        """Those of `entries` that contradict a pin; of a released one, what the pin had made."""
        wanted = wanted_of(record)
        if wanted is None:
            return []
        if record.released:
            # What was there before the pin is none of its doing: on a GPU Inductor may have timed
            # fusions and taken another choice than the fastest alone.
            entries = [entry for entry in entries if entry.mtime > record.made]
            trusted = (math.inf, math.inf)
        else:
            trusted = (record.applied, math.inf)
        folder = None if record.released else self.folder(record)
        return [entry for entry in entries if self._is_stale(entry, wanted, trusted, folder)]

    def _is_stale(
        self,
        entry: GraphEntry,
        wanted: Wanted,
        trusted: tuple[float, float],
        folder: Path | None,
    ) -> bool:
        verdict = self._index.verdict(entry, wanted)
        if graphs.is_stale(verdict, entry, trusted):
            return True
        # Its age says that the pinned choice made it; but the very same content was moved aside
        # before: it came back out of a mega-cache or a copy.
        return verdict == "unknown" and folder is not None and _returned(entry, folder)

    def folder(self, record: Record) -> Path:
        digest = hashlib.sha256("\n".join(record.identity).encode()).hexdigest()[:16]
        return self._layout.evicted / digest


def _returned(entry: GraphEntry, folder: Path) -> bool:
    """An entry's name is a hash of its content."""
    aside = folder / entry.relative
    return entry.path != aside and os.path.lexists(aside)


def wanted_of(record: Record) -> Wanted | None:
    """What compiled graphs shall call: the pinned choice, or the measured winner of a released
    pin. None where nothing could take the place of a graph: it was never timed here."""
    ruling: str | None = record.hash
    if record.released:
        ruling = winner(record)
    elif not any(is_time(texts.get(record.hash, INFINITY)) for texts in record.tokens.values()):
        return None
    if ruling is None:
        return None
    rivals = {n for texts in record.tokens.values() for n, text in texts.items() if is_time(text)}
    config = record.config if ruling == record.hash else {}
    return Wanted(record.op, record.inputs, ruling, tuple(sorted(rivals)), config)


def winner(record: Record) -> str | None:
    """The choice that wins by the measured times."""
    times = record.timings.get(record.precision, {})
    real = {name: ms for name, ms in times.items() if math.isfinite(ms)}
    return min(real, key=lambda name: real[name]) if real else None
