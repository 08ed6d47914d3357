"""What the sessions of a run recorded, read when it has ended."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from backend.cache import configs
from backend.disk.layout import Layout
from backend.disk.sessions import read_log
from backend.model.events import (
    ActivityChanged,
    ChoiceSelected,
    Event,
    GraphCompiled,
    HooksOff,
    SessionStarted,
    TuningMeasured,
    TuningStarted,
)
from backend.model.inductor_kernel import is_digest
from backend.model.session import Session
from rocm_tui.launch.run import RUN_LOG, FinishedRun

MOST_OTHERS = 64
"""Beyond this number of ranks under other runs only rank 0 reports: each would read all logs."""
_CLOCK_LAG = 0.1
"""Seconds by which the clock of a file system may be behind."""


@dataclass(frozen=True, slots=True)
class RunRecords:
    """What the sessions of a run recorded.

    `untuned` counts the graphs that were compiled with max_autotune off, `warm` those of processes
    that selected nothing for them, since Inductor loaded them from its cache. `unhooked` is why a
    process was not recorded to its end, if one was not. `measured` counts kernels measured in the
    program, `kept` the tunings of `@triton.autotune` that were kept. `sessions` are the ids of the
    run's processes that loaded our hooks, and `moved_to` the cache dir of one that set another than
    the run's, if one did; `torch` is whether the program itself was seen to load
    torch. `ranks` are the logs of a job's ranks, `others` those of ranks under other runs that
    worked at the same time, maybe for the same job. `logs` are all logs of this run.
    """

    tunings: int = 0
    graphs: int = 0
    untuned: int = 0
    unhooked: str | None = None
    warm: int = 0
    measured: int = 0
    kept: int = 0
    torch: bool = False
    sessions: tuple[str, ...] = ()
    moved_to: str | None = None
    ranks: tuple[Path, ...] = ()
    others: tuple[Path, ...] = ()
    logs: tuple[Path, ...] = ()
    selected_by: frozenset[str] = frozenset()

    @property
    def nothing(self) -> bool:
        return not (self.tunings or self.graphs or self.kept)


def read_records(run: FinishedRun) -> RunRecords:
    """Read what the sessions of the run recorded."""
    tunings, measured, torch, leads, unhooked, moved_to = 0, 0, False, False, None, None
    graphs, untuned, selected_by = set[str](), set[str](), set[str]()
    warm = set[str]()
    sessions: list[str] = []
    ranks: list[Path] = []
    others: list[Path] = []
    logs: list[Path] = []
    for path, session, events in _logs(run.layout, run.started):
        ours = session.id.startswith(run.id)
        is_run_log = path.name.endswith(RUN_LOG)
        leads |= ours and session.rank == 0
        if session.rank is not None and not is_run_log:
            (ranks if ours else others).append(path)
        if not ours:
            continue
        logs.append(path)
        if is_run_log:
            torch |= any(isinstance(event, ActivityChanged) for event in events)
            continue
        sessions.append(session.id)
        places = [e.session.cache_dir for e in events if isinstance(e, SessionStarted)]
        moved_to = places[-1] if places[-1] != places[0] else moved_to
        tunings += _count_tunings(events)
        selected_by |= {event.by for event in events if isinstance(event, ChoiceSelected)}
        measured += sum(isinstance(event, TuningMeasured) for event in events)
        compiled = [event.graph for event in events if isinstance(event, GraphCompiled)]
        graphs |= {graph.id for graph in compiled}
        if not any(isinstance(event, TuningStarted) for event in events):
            warm |= {graph.id for graph in compiled if graph.tunings}
        untuned |= {graph.id for graph in compiled if graph.max_autotune is False}
        unhooked = next((e.reason for e in events if isinstance(e, HooksOff)), unhooked)
    if len(others) > MOST_OTHERS and not leads:
        others = []
    return RunRecords(
        tunings=tunings,
        graphs=len(graphs),
        untuned=len(untuned),
        warm=len(warm),
        unhooked=unhooked,
        measured=measured,
        kept=_kept(run) if run.options.cache_triton else 0,
        torch=torch,
        sessions=tuple(sessions),
        moved_to=moved_to,
        ranks=tuple(ranks),
        others=tuple(others),
        logs=tuple(logs),
        selected_by=frozenset(selected_by),
    )


def _logs(layout: Layout, started: float) -> Iterator[tuple[Path, Session, list[Event]]]:
    """Yield each log that was written since `started`, with its process and events."""
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


def _count_tunings(events: Sequence[Event]) -> int:
    """Count the rows that the screen has for these events.

    A tuning that was answered from a cache adds none, unless nothing else of its key was recorded.
    """
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


def _kept(run: FinishedRun) -> int:
    """Count the tunings that programs kept in Triton's cache since the start."""
    folders = configs.folders_of(run.layout.root, run.env)
    return sum(_kept_in(folder, run.started - _CLOCK_LAG) for folder in folders)


def _kept_in(folder: Path, since: float) -> int:
    count = 0
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if is_digest(entry.name) and entry.stat(follow_symlinks=False).st_mtime >= since:
                count += any(map(configs.is_file, Path(entry.path).iterdir()))
    return count
