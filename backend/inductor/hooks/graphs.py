"""The compiled graphs of this process: what each contains, how often it is called, how long that
takes. Recorded where `rocm-tui run` asks for it.

A graph is known by its text, which Inductor keeps with what it compiled, so a process that loads it
from a cache knows it as the same. Which tunings it contains is seen only while it is compiled, and
kept for later processes: `hooks/graph_tunings.py`.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.util import Finalize, register_after_fork
from typing import Any

from backend.disk.layout import Layout
from backend.inductor.guard import Stock, beside, quietly, shielded, when_aside
from backend.inductor.hooks import captures, compiling, graph_tunings
from backend.inductor.hooks.calls import SKIPPED, SKIPPED_CUDAGRAPHS, Calls
from backend.inductor.hooks.environment import capture_wanted, home
from backend.inductor.hooks.recording import Recorder
from backend.inductor.torch import compiled, modes, tuning
from backend.inductor.torch.compiled import CompiledGraph, GraphFacts
from backend.model.events import GraphCalled, GraphCompiled
from backend.model.graph import Graph, GraphTimes, TuningUse

UNRECORDED = "a graph is not recorded"

FIRST_WRITE, LAST_WRITE = 2.0, 600.0
WRITE_SHARE = 1 / 20
WRITE_COST = 1 / 500
MOST_REST = 30.0
"""Seconds between two writings of counts: a share of the time since the first graph, so that a
process that is killed loses at most that share; and, up to MOST_REST, as much time as makes them
cost little."""

ID_DIGITS = 7


# What a graph is


def graph_id(text: str) -> str:
    """Of a graph's text without what only comments say: places in files, which change."""
    lines = (line.strip() for line in text.splitlines())
    code = "\n".join(line for line in lines if line and line[0] != "#")
    return hashlib.sha256(code.encode()).hexdigest()[:ID_DIGITS]


_OP = re.compile(r"^\s*\w+(?:: \"[^\"]*\")? = (?!self\.)[\w.]+\(", re.MULTILINE)


def op_count(text: str) -> int:
    return len(_OP.findall(text))


def graph_of(facts: GraphFacts, title: str) -> Graph:
    return Graph(
        id=graph_id(facts.text),
        kind=facts.kind,
        key=facts.key,
        title=title,
        device=facts.device,
        nodes=op_count(facts.text),
    )


# Recording


@dataclass
class _Entry:
    graph: Graph
    calls: Calls
    g: int | None = None
    written: GraphTimes | None = None


class GraphWatch:
    """Hears of graphs that are compiled, loaded and called, and writes it into the log."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._lock = threading.RLock()
        self._writing = False
        self._entries: dict[str, _Entry] = {}
        self._begun = time.perf_counter()
        self._due = self._begun + FIRST_WRITE
        self._written = False
        self._captures_watched = False
        self._off = False
        os.register_at_fork(after_in_child=shielded(UNRECORDED, self._forked))
        register_after_fork(self, shielded(UNRECORDED, GraphWatch._forked_by_multiprocessing))
        when_aside(self._stepped_aside)
        recorder.before_end(self.write_calls)

    # torch compiles

    def compile(self, stock: Stock, gm: Any, example_inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Stands in for what compiles one graph."""
        taken = None
        if capture_wanted():
            with quietly("a graph is not captured"):
                taken = captures.of_compile(gm, example_inputs, kwargs)
        with compiling.compiling() as this:
            result = stock(gm, example_inputs, *args, **kwargs)
        if this.graph is not None:
            with quietly(UNRECORDED):
                uses = compiling.uses_of(this.tunings)
                self._add(this.graph, uses, taken, tuning.wants_tuning())
        return result

    def ready(self, graph: CompiledGraph) -> None:
        """A graph may be called from now on."""
        this = compiling.current()
        if this is not None:
            this.graph = graph
        else:
            self._add(graph, (), None, tuning.wants_tuning())

    def _add(
        self,
        compiled_graph: CompiledGraph,
        uses: tuple[TuningUse, ...],
        taken: object | None,
        max_autotune: bool,
    ) -> None:
        if self._off:
            return
        facts = compiled.facts_of(compiled_graph)
        graph = graph_of(facts, compiled.place_in_program())
        graph = replace(graph, tunings=self._known(graph, uses), max_autotune=max_autotune)
        if taken is not None:
            with quietly("a graph is not captured"):
                captured, why_not = captures.keep(graph.id, taken)
                graph = replace(graph, captured=captured, uncaptured=why_not)
        with self._lock:
            entry = self._entries.get(graph.id)
            if entry is None:
                entry = self._entries[graph.id] = _Entry(graph, self._calls(facts))
                self._number(entry)
            elif entry.graph != (graph := replace(graph, title=entry.graph.title)):
                entry.graph = graph
                entry.g = self._number(entry)
        compiled.wrap_calling(compiled_graph, entry.calls.wrap)

    def _known(self, graph: Graph, uses: tuple[TuningUse, ...]) -> tuple[TuningUse, ...]:
        """The tunings of a graph: as seen now, else as an earlier process saw them."""
        layout = Layout(home.current())
        with quietly("what graphs contain is not kept"):
            if uses:
                graph_tunings.keep(layout, graph.id, graph.key, uses)
            else:
                return graph_tunings.kept(layout, graph.id, graph.key)
        return uses

    def _number(self, entry: _Entry) -> int:
        """Write what the graph is, under the number that it has or gets."""
        g = entry.g if entry.g is not None else self._recorder.next_graph()
        entry.g = g
        self._recorder.write(GraphCompiled(g, time.time(), entry.graph))
        return g

    def _calls(self, facts: GraphFacts) -> Calls:
        kind = (facts.device or "").partition(":")[0]
        stream = None
        if kind == "cuda":
            if not self._captures_watched:
                compiled.watch_captures()
                self._captures_watched = True
            stream = compiled.StreamTimes(facts.device or "cuda")
        return Calls(
            stream=stream,
            host=kind == "cpu",
            skipped=SKIPPED_CUDAGRAPHS if facts.cudagraphs else SKIPPED,
            graphs=lambda: len(self._entries),
            idle=lambda: not modes.modes_active(),
            after=self._sampled,
        )

    # The program calls

    def _sampled(self, now: float) -> None:
        if now >= self._due:
            self.write_calls()

    def write_calls(self) -> None:
        """Write the counts that have changed; the thread that calls a graph does it now and then,
        and the last one at the end of the process."""
        # Another thread writes, or this one does and was interrupted by a signal: some other time.
        if self._off or self._writing or self._recorder.busy():
            return
        if not self._lock.acquire(blocking=False):
            return
        self._writing = True
        try:
            begin = time.thread_time()
            with quietly("calls of graphs are not recorded"):
                for entry in list(self._entries.values()):
                    self._write(entry)
            now = time.perf_counter()
            rest = min(max((now - self._begun) * WRITE_SHARE, FIRST_WRITE), LAST_WRITE)
            cost = time.thread_time() - begin if self._written else 0.0  # the first loads code
            self._due = now + max(rest, min(cost / WRITE_COST, MOST_REST))
            self._written = True
        finally:
            self._writing = False
            self._lock.release()

    def _write(self, entry: _Entry) -> None:
        times = entry.calls.times()
        if times.calls == 0 or times == entry.written:
            return
        g = self._number(entry) if entry.g is None else entry.g
        self._recorder.write(
            GraphCalled(g, time.time(), times.calls, times.timed, times.ms, times.by)
        )
        entry.written = times

    # Ends

    def _stepped_aside(self, reason: str) -> None:
        self._off = True
        for entry in list(self._entries.values()):
            entry.calls.stop()

    def _forked(self) -> None:
        self._lock = threading.RLock()  # a thread of the parent may have held it
        self._writing = False
        self._begun = time.perf_counter()
        self._due = self._begun + FIRST_WRITE
        for entry in self._entries.values():
            entry.g = entry.written = None
            entry.calls.restart()
        atexit.register(self._recorder.end_in, os.getpid())

    def _forked_by_multiprocessing(self) -> None:
        """Such a child runs no `atexit` functions."""
        Finalize(self, self._recorder.end_in, (os.getpid(),), exitpriority=0)


def install(recorder: Recorder) -> None:
    """Watch the graphs of this process; once, as soon as Inductor's compiler has been imported."""
    watch = GraphWatch(recorder)
    compiled.watch_ready(shielded(UNRECORDED, watch.ready))

    def wrap(stock: Callable[..., Any]) -> Callable[..., Any]:
        def compile_graph(*args: Any, **kwargs: Any) -> Any:
            return beside(stock, watch.compile, *args, **kwargs)

        return compile_graph

    compiled.wrap_compiling(wrap)
    if capture_wanted():
        captures.install()
