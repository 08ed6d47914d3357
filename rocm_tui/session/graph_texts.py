"""The texts of the compiled graphs that a profiler saw, read in the cache dir that has them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from backend.disk.layout import Layout
from backend.model.choice import Choice
from backend.model.graph import TuningUse
from backend.model.origin import kind_of
from backend.model.problem import TuningKey
from backend.pins.graphs.index import MAX_BYTES, FolderMemory, GraphEntry, read_entry
from backend.pins.graphs.match import Wanted
from backend.pins.graphs.parts import ChoiceSources
from backend.pins.graphs.text import read_graph_text
from backend.pins.graphs.uses import GraphUses, Held
from rocm_tui.ingest.records import GraphTold, Record
from rocm_tui.session.model import Model

Choices = Mapping[str, Choice]
"""Those of a tuning by their hashes."""


def tell_graphs(model: Model, layout: Layout) -> list[GraphTold]:
    """What the texts below `layout` say of the graphs that a profiler saw.

    Reads files: call it off the event loop.
    """
    keys = model.profiled_graphs
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
        keys = model.profiled_graphs
        state = keys, model.held
        if not keys or state == self._seen or (self._thread and self._thread.is_alive()):
            return
        self._seen = state
        self._thread = threading.Thread(
            target=self._read, args=(keys, tunings_of(model)), name="graph texts", daemon=True
        )
        self._thread.start()

    def _read(self, keys: Sequence[str], tunings: Mapping[TuningKey, Choices]) -> None:
        self._put([*read_texts(keys, tunings, self._layout)])


def tunings_of(model: Model) -> dict[TuningKey, Choices]:
    """The choices of each tuning whose keys are known."""
    tunings: dict[TuningKey, dict[str, Choice]] = {}
    for row in model.rows():
        key = row.tuning.key
        if key is not None:
            known = tunings.setdefault(key, {})
            known.update({choice.hash: choice for choice in row.tuning.choices if choice.hash})
    return dict(tunings)


def read_texts(
    keys: Sequence[str], tunings: Mapping[TuningKey, Choices], layout: Layout
) -> list[GraphTold]:
    """Of each graph that has a text there, by the key of Inductor's cache."""
    if not keys:
        return []
    entries: dict[str, GraphEntry] = {}
    for entry in FolderMemory().entries(layout.root, "fxgraph", 3):
        entries[entry.relative.split("/")[2]] = entry
    sources = ChoiceSources(layout.root)
    return [_told(key, entries[key], tunings, sources) for key in keys if key in entries]


def _told(
    key: str, entry: GraphEntry, tunings: Mapping[TuningKey, Choices], sources: ChoiceSources
) -> GraphTold:
    data = read_entry(entry) if entry.size <= MAX_BYTES else None
    if not data:
        return GraphTold(key)
    graph = GraphUses(read_graph_text(data))
    held = dict(_held(graph, tunings))
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


def _held(graph: GraphUses, tunings: Iterable[TuningKey]) -> Iterator[tuple[TuningKey, Held]]:
    """A text does not tell the precision: of several tunings that differ in it alone, none."""
    parts: dict[tuple[str, str], list[TuningKey]] = {}
    for tuning in tunings:
        parts.setdefault((tuning.op, tuning.inputs), []).append(tuning)
    for (op, inputs), same in parts.items():
        part = graph.held(op, inputs) if len(same) == 1 else None
        if part is not None:
            yield same[0], part


def _questions(tuning: TuningKey, choices: Choices, sources: ChoiceSources) -> list[Wanted]:
    """Is it this choice? One for each."""
    rivals = tuple(sorted(choices))
    questions = []
    for hash, choice in choices.items():
        kind = kind_of(hash)
        constants = sources.constants(hash, kind) if kind else {}
        wanted = Wanted(tuning.op, tuning.inputs, hash, rivals, choice.config, constants)
        questions.append(wanted)
    return questions


def _externs(
    graph: GraphUses, held: Mapping[TuningKey, Held]
) -> Iterator[tuple[str, TuningKey | None]]:
    tunings = {at: tuning for tuning, part in held.items() for at in part.externs}
    for at, name in enumerate(graph.externs):
        yield name, tunings.get(at)
