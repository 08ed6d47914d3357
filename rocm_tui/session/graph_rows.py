"""Compiled graphs as rows: how often a program calls each, its share, the tunings in it.

The texts of graphs that only a profiler saw are read in the cache dir that has them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from backend.disk import safe
from backend.disk.layout import Layout
from backend.model.choice import Choice
from backend.model.graph import Graph, GraphTimes, Trial, TuningUse
from backend.model.origin import kind_of
from backend.model.problem import TuningKey
from backend.model.session import Session
from backend.pins.graphs.index import MAX_BYTES, FolderMemory, GraphEntry, read_entry
from backend.pins.graphs.match import GraphUse, GraphUses, WantedChoice
from backend.pins.graphs.parts import ChoiceSources
from backend.pins.graphs.text import read_graph_text
from rocm_tui.errors import NoSuchGraph
from rocm_tui.ingest.records import GraphSeen, GraphTold, KernelTime, Record
from rocm_tui.session.find import with_id
from rocm_tui.session.graphs import (
    GraphScale,
    ProgramGraphs,
    ShareBasis,
    call_ms,
    part_of,
    process_of,
)
from rocm_tui.session.model import Model, Row


@dataclass(frozen=True, slots=True)
class GraphTuning:
    """A tuning that a graph holds: its `row`, if a source has one. `share` is of the graph's time,
    `basis` is which time that is."""

    use: TuningUse
    row: Row | None = None
    share: float | None = None
    basis: ShareBasis = "once"


@dataclass(frozen=True, slots=True)
class GraphRow:
    """A compiled graph as the latest program called it; ranks are added up.

    `share` is its part of the program's time in compiled graphs, None where no call was timed.
    `session` is that of one process, None for a profiler's trace. `path` is where its text lies,
    None where it is not kept. `tunings` are longest first, `kernels` as a profiler saw them.
    """

    graph: Graph
    times: GraphTimes
    program: str
    session: Session | None = None
    when: float = 0.0
    share: float | None = None
    tunings: Mapping[TuningKey, GraphTuning] = field(default_factory=dict)
    kernels: tuple[KernelTime, ...] = ()
    trials: tuple[Trial, ...] = ()
    path: Path | None = None

    @property
    def id(self) -> str:
        return self.graph.id


def graph_rows(model: Model, layout: Layout) -> list[GraphRow]:
    """Each graph of the model once, of the latest program that called it; longest share first."""
    rows: dict[TuningKey, list[Row]] = {}
    for row in model.rows():
        if row.tuning.key is not None:
            rows.setdefault(row.tuning.key, []).append(row)
    rows_by_id: dict[str, GraphRow] = {}
    for program in model.graphs.programs():  # the latest first
        by_id: dict[str, list[GraphSeen]] = {}
        for seen in program.graphs:
            by_id.setdefault(seen.graph.id, []).append(seen)
        for id, same in by_id.items():
            earlier = rows_by_id.get(id)
            called = any(seen.times.calls for seen in same if seen.times)
            if earlier is None or (called and not earlier.times.calls):
                rows_by_id[id] = _row(program, same, rows, model, layout)
    return sorted(rows_by_id.values(), key=lambda row: (-(row.share or 0.0), -row.when, row.id))


def find_graph(rows: Sequence[GraphRow], text: str) -> GraphRow:
    """The graph whose id is or begins with `text`. Raises NoSuchGraph."""
    return with_id(rows, text, "graph", "graphs", NoSuchGraph)[0]


def _row(
    program: ProgramGraphs,
    same: Sequence[GraphSeen],
    rows: Mapping[TuningKey, Sequence[Row]],
    model: Model,
    layout: Layout,
) -> GraphRow:
    """A graph of a program, which several ranks may have called; the longest of them speaks."""
    seen = same[0]
    graph, process = seen.graph, process_of(seen)
    shares = [program.share(each) for each in same]
    timed = [share for share in shares if share is not None]
    by_key: dict[TuningKey, list[GraphTuning]] = {}
    uses = [(use, _row_of(rows.get(use.use.key, ()), process)) for use in program.uses_of(seen)]
    fit = GraphScale.of(
        seen.times.ms if seen.times else None,
        (call_ms(row.tuning if row else None, use) for use, row in uses),
    )
    for use, row in uses:
        part, _, how = part_of(row.tuning if row else None, use, fit)
        tuning = GraphTuning(use.use, row, part.share, how)
        by_key.setdefault(use.use.key, []).append(tuning)
    tunings = sorted(map(_united, by_key.values()), key=lambda tuning: -(tuning.share or 0.0))
    path = layout.graphs / f"{graph.id}.py"
    return GraphRow(
        graph,
        _times(same),
        program.name,
        model.sessions.get(process),
        seen.when or 0.0,
        sum(timed) if timed else None,
        {tuning.use.key: tuning for tuning in tunings},
        seen.kernels,
        model.graphs.trials(graph.id),
        path if safe.exists(path) else None,
    )


def _united(same: Sequence[GraphTuning]) -> GraphTuning:
    """A tuning of which the graph's nodes may call several choices, by what is fused with each."""
    first, hashes = same[0], {tuning.use.hash for tuning in same}
    shares = [tuning.share for tuning in same if tuning.share is not None]
    use = replace(
        first.use,
        count=sum(tuning.use.count for tuning in same),
        hash=first.use.hash if len(hashes) == 1 else None,
    )
    share = sum(shares) if len(shares) == len(same) else None
    return replace(first, use=use, share=share)


def _row_of(rows: Sequence[Row], process: str) -> Row | None:
    """Return the tuning that the process itself requested, else the latest that it may use."""
    asked = (row for row in rows if process in row.asked)
    return next(asked, None) or next(iter(rows), None)


def _times(same: Sequence[GraphSeen]) -> GraphTimes:
    times = [seen.times for seen in same if seen.times is not None]
    total = sum(each.total_ms or 0.0 for each in times)
    calls = sum(each.calls for each in times if each.ms is not None)
    return GraphTimes(
        sum(each.calls for each in times),
        sum(each.timed for each in times),
        total / calls if calls else None,
        times[0].by if times else "host",
    )


Choices = Mapping[str, Choice]
"""The choices of a tuning by their hashes."""


def described_graphs(model: Model, layout: Layout) -> list[GraphTold]:
    """What the texts below `layout` say of the graphs that a profiler saw.

    Reads files: call it off the event loop.
    """
    keys = model.graphs.profiled
    return read_texts(keys, tunings_of(model), layout) if keys else []


class TextReader:
    """Does so in a thread, whenever there are more such graphs or more tunings.

    `put` takes what it finds and is called from that thread.
    """

    def __init__(self, layout: Layout, put: Callable[[list[Record]], None]) -> None:
        self._layout = layout
        self._put = put
        self._seen: object = None
        self._thread: threading.Thread | None = None

    def look(self, model: Model) -> None:
        """Start reading if there is something new. Costs nothing without a profiler's graphs."""
        keys = model.graphs.profiled
        state = keys, model.held
        if not keys or state == self._seen or (self._thread and self._thread.is_alive()):
            return
        thread = threading.Thread(
            target=self._read, args=(keys, tunings_of(model)), name="graph texts", daemon=True
        )
        with suppress(RuntimeError):  # no thread is free: the next look tries again
            thread.start()
            self._seen, self._thread = state, thread

    def _read(self, keys: Sequence[str], tunings: Mapping[TuningKey, Choices]) -> None:
        self._put([*read_texts(keys, tunings, self._layout)])


def tunings_of(model: Model) -> dict[TuningKey, Choices]:
    """The choices of each tuning whose keys are known."""
    tunings: dict[TuningKey, dict[str, Choice]] = {}
    for row in model.rows():
        key = row.tuning.key
        if key is not None:
            by_graph = tunings.setdefault(key, {})
            by_graph.update({choice.hash: choice for choice in row.tuning.choices if choice.hash})
    return dict(tunings)


def read_texts(
    keys: Sequence[str], tunings: Mapping[TuningKey, Choices], layout: Layout
) -> list[GraphTold]:
    """Return what the text of each graph says that has one, by the key of Inductor's cache."""
    if not keys:
        return []
    entries: dict[str, GraphEntry] = {}
    for entry in FolderMemory().entries(layout.root, "fxgraph", 3):
        entries[entry.relative.split("/")[2]] = entry
    sources = ChoiceSources(layout.root)
    return [_read_text(key, entries[key], tunings, sources) for key in keys if key in entries]


def _read_text(
    key: str, entry: GraphEntry, tunings: Mapping[TuningKey, Choices], sources: ChoiceSources
) -> GraphTold:
    data = read_entry(entry) if entry.size <= MAX_BYTES else None
    if not data:
        return GraphTold(key)
    graph = GraphUses(read_graph_text(data))
    held = dict(_tunings_held(graph, tunings))
    held = {
        tuning: graph.chosen(part, _questions(tuning, tunings[tuning], sources))
        for tuning, part in held.items()
    }
    uses = tuple(
        TuningUse(tuning.op, tuning.inputs, tuning.precision, part.count, part.hash)
        for tuning, part in held.items()
    )
    kernels = [(name, tuning) for tuning, part in held.items() for name in sorted(part.kernels)]
    return GraphTold(key, uses, tuple(kernels), tuple(_externs(graph, held)))


def _tunings_held(
    graph: GraphUses, tunings: Iterable[TuningKey]
) -> Iterator[tuple[TuningKey, GraphUse]]:
    """Yield the tunings in a graph. Its text has no precision, so tunings that differ in that alone
    are left out."""
    parts: dict[tuple[str, str], list[TuningKey]] = {}
    for tuning in tunings:
        parts.setdefault((tuning.op, tuning.inputs), []).append(tuning)
    for (op, inputs), same in parts.items():
        part = graph.held(op, inputs) if len(same) == 1 else None
        if part is not None:
            yield same[0], part


def _questions(tuning: TuningKey, choices: Choices, sources: ChoiceSources) -> list[WantedChoice]:
    """Is it this choice? One for each."""
    rivals = tuple(sorted(choices))
    questions = []
    for hash, choice in choices.items():
        constants = sources.constants(hash, kind_of(hash))
        wanted = WantedChoice(tuning.op, tuning.inputs, hash, rivals, choice.config, constants)
        questions.append(wanted)
    return questions


def _externs(
    graph: GraphUses, held: Mapping[TuningKey, GraphUse]
) -> Iterator[tuple[str, TuningKey | None]]:
    tunings = {at: tuning for tuning, part in held.items() for at in part.externs}
    for at, name in enumerate(graph.externs):
        yield name, tunings.get(at)
