"""What a run recorded, in one line at its end; and what to add where that is nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from backend.counted import counted
from backend.disk.layout import Layout
from backend.disk.sessions import read_log
from backend.model.events import Event, GraphCompiled, HooksOff, SessionStarted, TuningStarted

TUNE_TOO = "to tune: rocm-tui run --max-autotune -- CMD"


@dataclass(frozen=True, slots=True)
class Recorded:
    """`untuned`: of the graphs, those that were compiled with tuning off. `unhooked` is why a
    process was not recorded to its end, if one was not."""

    tunings: int = 0
    graphs: int = 0
    untuned: int = 0
    unhooked: str | None = None

    @property
    def nothing(self) -> bool:
        """Whether there is nothing to tell: neither tunings nor graphs, and that is no fault."""
        return not (self.tunings or self.graphs or self.unhooked)

    @property
    def nothing_tuned(self) -> bool:
        """Whether no graph was tuned since tuning was off."""
        return bool(self.untuned) and not self.tunings and self.unhooked is None


def recorded(layout: Layout, run: str, started: float) -> Recorded:
    """What the sessions of the run of this id told, which began at the Unix time `started`."""
    tunings, graphs, untuned, unhooked = 0, set[str](), set[str](), None
    for events in _logs(layout, run, started):
        tunings += sum(isinstance(event, TuningStarted) for event in events)
        compiled = [event.graph for event in events if isinstance(event, GraphCompiled)]
        graphs |= {graph.id for graph in compiled}
        untuned |= {graph.id for graph in compiled if graph.max_autotune is False}
        unhooked = next((e.reason for e in events if isinstance(e, HooksOff)), unhooked)
    return Recorded(tunings, len(graphs), len(untuned), unhooked)


def _logs(layout: Layout, run: str, started: float) -> Iterator[list[Event]]:
    for path in sorted(layout.sessions.glob("*.jsonl")):
        try:
            if path.stat().st_mtime < started - 1:
                continue
        except OSError:
            continue  # removed meanwhile; the exit code that follows matters more
        events, _ = read_log(path)
        first = next(iter(events), None)
        if isinstance(first, SessionStarted) and first.session.id.startswith(run):
            yield events


def summary(found: Recorded, layout: Layout) -> str:
    """What there is, or why there is nothing."""
    if found.unhooked and not found.tunings and not found.graphs:
        return f"nothing was recorded: {found.unhooked}"
    tunings, graphs = counted(found.tunings, "tuning"), counted(found.graphs, "compiled graph")
    if found.nothing_tuned:
        which = "them" if found.graphs > 1 else "it"
        return f"{tunings} recorded, with {graphs}: max_autotune was off for {which}; {TUNE_TOO}"
    text = f"{tunings} recorded in {layout.sessions}"
    text += f", with {graphs}" if found.graphs else ""
    return f"{text}, then no more: {found.unhooked}" if found.unhooked else text
