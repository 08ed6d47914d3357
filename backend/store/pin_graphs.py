"""Compiled graphs that contradict a pin, moved aside; those that a released pin hides, restored."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

from backend.store import graphs
from backend.store.graph_match import Wanted
from backend.store.graphs import GraphEntry, GraphIndex
from backend.store.paths import Layout
from backend.store.pin_edit import is_time
from backend.store.pin_file import Record
from backend.store.raised import INFINITY


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

    def stale(self, record: Record, entries: list[GraphEntry]) -> list[GraphEntry]:
        """Those of `entries` that contradict a pin; of a released one, what the pin had made."""
        if record.released:
            # What was there before the pin is none of its doing: on a GPU Inductor may have timed
            # fusions and taken another choice than the fastest alone.
            entries = [entry for entry in entries if entry.mtime > record.made]
            ruling, trusted = winner(record), (math.inf, math.inf)
        elif not any(is_time(texts.get(record.hash, INFINITY)) for texts in record.tokens.values()):
            return []  # never timed here, so nothing could take the place of these graphs
        else:
            ruling, trusted = record.hash, (record.applied, math.inf)
        if ruling is None:
            return []
        rivals = {
            n for texts in record.tokens.values() for n, text in texts.items() if is_time(text)
        }
        config = record.config if ruling == record.hash else {}
        wanted = Wanted(record.op, record.inputs, ruling, tuple(sorted(rivals)), config)
        return [
            entry
            for entry in entries
            if graphs.is_stale(self._index.verdict(entry, wanted), entry, trusted)
        ]

    def folder(self, record: Record) -> Path:
        digest = hashlib.sha256("\n".join(record.identity).encode()).hexdigest()[:16]
        return self._layout.evicted / digest


def winner(record: Record) -> str | None:
    """The choice that wins by the measured times."""
    times = record.timings.get(record.precision, {})
    real = {name: ms for name, ms in times.items() if math.isfinite(ms)}
    return min(real, key=lambda name: real[name]) if real else None
