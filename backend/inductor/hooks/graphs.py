"""The compiled graphs of this process: their contents, calls and times. Recorded if `rocm-tui run`
requests it; the text of each graph is also stored, for trials, if `ROCM_TUI_CAPTURE` is set.

A graph is identified by its text, which Inductor stores with the compiled graph, so a process that
loads it from a cache recognizes it. Its tunings are only visible while it is compiled, and are
stored for later processes in `rocm_tui/graphs/ID.tunings.json`: `{"keys": {KEY: [use, ...]}}`, with
FxGraphCache's KEY. The same graph has another key under other settings, where other tunings may
have decided; a graph that is compiled again under its key, as after a pin, replaces the stored
tunings.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.util import Finalize, register_after_fork
from pathlib import Path
from typing import Any

from backend.disk import safe
from backend.disk.layout import Layout
from backend.errors import CacheUnreadable, StoreError
from backend.inductor.guard import Stock, beside, quietly, shielded, when_aside
from backend.inductor.hooks import tuning_watch
from backend.inductor.hooks.calls import SKIPPED, SKIPPED_CUDAGRAPHS, GraphCalls
from backend.inductor.hooks.environment import CAPTURE, home, is_on
from backend.inductor.hooks.recording import Recorder
from backend.inductor.torch import captured, compiled, state, tuning
from backend.inductor.torch.compiled import GraphFacts, ReadyGraph
from backend.model.events import GraphCalled, GraphCompiled
from backend.model.graph import Graph, GraphTimes, TuningUse
from backend.wire.captured import MOST_BYTES
from backend.wire.codec import WireError, dumps, read, to_json

# The tunings of a graph

MAX_KEYS = 64
"""The number of entries kept for one graph, the newest."""

LOCK_SECONDS = 2.0
MAX_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class _Kept:
    keys: Mapping[str, tuple[TuningUse, ...]] = field(default_factory=dict)


def uses_path(layout: Layout, graph_id: str) -> Path:
    return layout.graphs / f"{graph_id}.tunings.json"


def keep_uses(layout: Layout, graph_id: str, key: str | None, uses: Sequence[TuningUse]) -> None:
    """Store the tunings of a graph for later processes. Raises StoreError or WireError, also for a
    damaged file, which stays as it is."""
    path = uses_path(layout, graph_id)
    if _read_uses(path).get(key or "") == tuple(uses):
        return
    safe.make_folder(layout.root, path.parent)
    with safe.locked(layout.root, path, LOCK_SECONDS):
        safe.check_file(layout.root, path)
        keys = dict(_read_uses(path))
        keys.pop(key or "", None)
        newest = {**dict(list(keys.items())[-(MAX_KEYS - 1) :]), key or "": tuple(uses)}
        safe.write_atomic(path, dumps(to_json(_Kept(newest))).encode() + b"\n")


def kept_uses(layout: Layout, graph_id: str, key: str | None) -> tuple[TuningUse, ...]:
    """Return the stored tunings of a graph; none from a damaged file."""
    with contextlib.suppress(CacheUnreadable, WireError):
        return _read_uses(uses_path(layout, graph_id)).get(key or "", ())
    return ()


def _read_uses(path: Path) -> Mapping[str, tuple[TuningUse, ...]]:
    if not path.is_file():
        return {}
    return read(_Kept, safe.load_json(path, safe.read_bytes(path, MAX_BYTES))).keys


# The text of a graph, taken before it is compiled, since Inductor changes it meanwhile

PATIENCE = 5.0
"""Seconds that a program waits while another one writes a graph."""


@dataclass(frozen=True, slots=True)
class _CapturedText:
    """The text of a graph, or why there is none."""

    text: str = ""
    why_not: str = ""


_frozen_of_thread = threading.local()


def install_captures() -> None:
    """Take the text of each graph before it is frozen and then compiled."""

    def note(gm: Any, example_inputs: Sequence[Any]) -> None:
        frozen = captured.frozen_inputs()
        _frozen_of_thread.frozen = _taken(gm, example_inputs, {"is_inference": True}, frozen)

    def forget() -> None:
        _frozen_of_thread.__dict__.pop("frozen", None)

    lost = "a graph is not captured"
    captured.around_freezing(shielded(lost, note), shielded(lost, forget))


def of_compile(gm: Any, example_inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> object | None:
    """Return the data for `keep_text` from a graph that is about to be compiled, or loaded from the
    cache.

    `gm` is the torch.fx.GraphModule with its fake inputs, `kwargs` those of `compile_fx_inner`.
    Changes neither them nor torch's state. None if nothing can be stored.
    """
    frozen: object | None = _frozen_of_thread.__dict__.pop("frozen", None)
    return frozen or _taken(gm, example_inputs, kwargs)


def _taken(
    gm: Any,
    example_inputs: Sequence[Any],
    kwargs: Mapping[str, Any],
    frozen: Sequence[int] | None = None,
) -> _CapturedText:
    try:
        return _CapturedText(captured.graph_text(gm, example_inputs, kwargs, frozen=frozen))
    except captured.NotCapturable as error:
        return _CapturedText(why_not=str(error))


def keep_text(graph_id: str, text: object) -> tuple[bool, str]:
    """Store a text as the graph `graph_id`; return whether that succeeded (`Graph.captured`), and
    why not (`Graph.uncaptured`)."""
    if not isinstance(text, _CapturedText) or text.why_not:
        return False, getattr(text, "why_not", "")
    data = text.text.encode()
    if len(data) > MOST_BYTES:
        return False, f"its text has {len(data) >> 20} MiB"
    try:
        _write(Layout(home.current()), f"{graph_id}.py", data)
    except StoreError as error:
        return False, str(error)
    return True, ""


def _write(layout: Layout, name: str, data: bytes) -> None:
    """Write the file, unless it has the same content. Raises StoreErrors."""
    path = layout.graphs / name
    safe.make_folder(layout.root, layout.graphs)
    safe.check_file(layout.root, path)
    if _is_there(path, data):
        return
    with safe.locked(layout.root, layout.graphs / "captured", PATIENCE):
        if not _is_there(path, data):
            safe.write_atomic(path, data)


def _is_there(path: Path, data: bytes) -> bool:
    try:
        return safe.exists(path) and safe.read_bytes(path, MOST_BYTES) == data
    except CacheUnreadable:
        return False


UNRECORDED = "a graph is not recorded"

FIRST_WRITE, LAST_WRITE = 2.0, 600.0
WRITE_SHARE = 1 / 20
WRITE_COST = 1 / 500
MOST_REST = 30.0
"""Seconds between two writes of counts: a share of the time since the first graph, so that a killed
process loses at most that share; and, up to MOST_REST, long enough to make them cheap."""

ID_DIGITS = 7


# Graphs


def graph_id(text: str) -> str:
    """Return the id of a graph's text, without its comments, whose locations in files change."""
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
    calls: GraphCalls
    g: int | None = None
    written: GraphTimes | None = None


class GraphWatch:
    """Writes the graphs that are compiled, loaded and called into the log."""

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

    # Compiling

    def compile(self, stock: Stock, gm: Any, example_inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Run the stock function that compiles one graph, and record the graph."""
        text = None
        if is_on(CAPTURE):
            with quietly("a graph is not captured"):
                text = of_compile(gm, example_inputs, kwargs)
        with tuning_watch.compiling() as this:
            result = stock(gm, example_inputs, *args, **kwargs)
        if this.graph is not None:
            with quietly(UNRECORDED):
                uses = tuning_watch.uses_of(this.tunings)
                self._add(this.graph, uses, text, tuning.wants_tuning())
        return result

    def ready(self, graph: ReadyGraph) -> None:
        """Record a graph that can now be called."""
        this = tuning_watch.current()
        if this is not None:
            this.graph = graph
        else:
            self._add(graph, (), None, tuning.wants_tuning())

    def _add(
        self,
        compiled_graph: ReadyGraph,
        uses: tuple[TuningUse, ...],
        text: object | None,
        max_autotune: bool,
    ) -> None:
        if self._off:
            return
        facts = compiled.facts_of(compiled_graph)
        graph = graph_of(facts, compiled.place_in_program())
        graph = replace(
            graph, tunings=self._with_stored_uses(graph, uses), max_autotune=max_autotune
        )
        if text is not None:
            with quietly("a graph is not captured"):
                captured, why_not = keep_text(graph.id, text)
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

    def _with_stored_uses(self, graph: Graph, uses: tuple[TuningUse, ...]) -> tuple[TuningUse, ...]:
        """Return the tunings of a graph as observed now, else as stored by an earlier process."""
        layout = Layout(home.current())
        with quietly("what graphs contain is not kept"):
            if uses:
                keep_uses(layout, graph.id, graph.key, uses)
            else:
                return kept_uses(layout, graph.id, graph.key)
        return uses

    def _number(self, entry: _Entry) -> int:
        """Write the graph under its number, or a new one."""
        g = entry.g if entry.g is not None else self._recorder.next_graph()
        entry.g = g
        self._recorder.write(GraphCompiled(g, time.time(), entry.graph))
        return g

    def _calls(self, facts: GraphFacts) -> GraphCalls:
        kind = (facts.device or "").partition(":")[0]
        stream = None
        if kind == "cuda":
            if not self._captures_watched:
                compiled.watch_captures()
                self._captures_watched = True
            stream = compiled.StreamTimes(facts.device or "cuda")
        return GraphCalls(
            stream=stream,
            host=kind == "cpu",
            skipped=SKIPPED_CUDAGRAPHS if facts.cudagraphs else SKIPPED,
            graphs=lambda: len(self._entries),
            idle=lambda: not state.modes_active(),
            after=self._sampled,
        )

    # Calling

    def _sampled(self, now: float) -> None:
        if now >= self._due:
            self.write_calls()

    def write_calls(self) -> None:
        """Write changed counts; called now and then by calls of graphs, and at the process's
        end."""
        # Another thread is writing, or this one was interrupted while writing: skip this time.
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
            cost = (
                time.thread_time() - begin if self._written else 0.0
            )  # the first write also loads code
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

    # End

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
        """Register the final write in a child whose end runs no `atexit` functions."""
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
    if is_on(CAPTURE):
        install_captures()
