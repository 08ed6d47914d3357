"""What a run recorded, in one line at its end; and what to add where that is nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from backend.counted import counted
from backend.disk.layout import Layout
from backend.disk.sessions import read_log
from backend.model.events import (
    ChoiceSelected,
    Event,
    GraphCompiled,
    HooksOff,
    SessionStarted,
    TuningMeasured,
    TuningStarted,
)
from backend.model.session import Session

MOST_OTHERS = 64
"""Of more ranks under other runs the one of rank 0 alone tells: each would read the logs of all."""
TUNE_TOO = "to tune: rocm-tui run --max-autotune -- CMD"


@dataclass(frozen=True, slots=True)
class Recorded:
    """`untuned`: of the graphs, those that were compiled with tuning off. `unhooked` is why a
    process was not recorded to its end, if one was not. `measured` are kernels that were measured
    in the program, `ranks` the logs of a job's ranks, `others` those of ranks under other runs that
    were at work meanwhile, maybe of the same job."""

    tunings: int = 0
    graphs: int = 0
    untuned: int = 0
    unhooked: str | None = None
    measured: int = 0
    ranks: tuple[Path, ...] = ()
    others: tuple[Path, ...] = ()

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
    tunings, measured, graphs, untuned, unhooked = 0, 0, set[str](), set[str](), None
    ranks: list[Path] = []
    others: list[Path] = []
    leads = False
    for path, session, events in _logs(layout, started):
        ours = session.id.startswith(run)
        leads |= ours and session.rank == 0
        if session.rank is not None:
            (ranks if ours else others).append(path)
        if not ours:
            continue
        tunings += _tunings(events)
        measured += sum(isinstance(event, TuningMeasured) for event in events)
        compiled = [event.graph for event in events if isinstance(event, GraphCompiled)]
        graphs |= {graph.id for graph in compiled}
        untuned |= {graph.id for graph in compiled if graph.max_autotune is False}
        unhooked = next((e.reason for e in events if isinstance(e, HooksOff)), unhooked)
    if len(others) > MOST_OTHERS and not leads:
        others = []
    counts = tunings, len(graphs), len(untuned), unhooked, measured
    return Recorded(*counts, tuple(ranks), tuple(others))


def _tunings(events: list[Event]) -> int:
    """Rows that the screen has of them: what was asked for again and came from a cache adds none,
    but where nothing else of its key was recorded."""
    again = {e.n for e in events if isinstance(e, ChoiceSelected) and e.by == "cache"}
    own, cached = 0, set[tuple[str, str, str]]()
    seen = set[tuple[str, str, str]]()
    for event in events:
        if isinstance(event, TuningStarted):
            key = event.op, event.inputs, event.precision
            if event.n in again:
                cached.add(key)
            else:
                own += 1
                seen.add(key)
    return own + len(cached - seen)


def _logs(layout: Layout, started: float) -> Iterator[tuple[Path, Session, list[Event]]]:
    """Each log that was written since, with its process."""
    for path in sorted(layout.sessions.glob("*.jsonl")):
        try:
            if path.stat().st_mtime < started - 1:
                continue
        except OSError:
            continue  # removed meanwhile; the exit code that follows matters more
        events, _ = read_log(path)
        first = next(iter(events), None)
        if isinstance(first, SessionStarted):
            yield path, first.session, events


def measured_text(found: Recorded) -> str:
    """What `--measure-kernels` came to."""
    if found.measured:
        kernels = counted(found.measured, "Triton kernel")
        return f"{kernels} measured in the program; `rocm-tui show ID` has the verdicts"
    return (
        "no Triton kernel was measured, since none was tuned among several configs. What a run "
        "before this one tuned comes from caches: with --cache-dir NEW all are tuned, "
        "and measured, with TRITON_CACHE_DIR=NEW those of @triton.autotune"
    )


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
