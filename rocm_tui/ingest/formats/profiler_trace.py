"""`torch.profiler` traces: what `export_chrome_trace` writes (`.json`, `.json.gz`).

It holds no tunings but compiled graphs: how often each was called, how long that took, and the
kernels in it. `session.graphs` finds out which tuning a kernel is. Such a file is one JSON object
of hundreds of megabytes, so it is never held: only the results of single events are kept.

PyTorch marks each call of a compiled graph, when a profiler is on, by a span on the host named
`## Call CompiledFxGraph <key> ##` (torch 2.9 to 2.15, `_inductor/output_code.py`), with the key of
Inductor's cache of compiled graphs. Kernels of a GPU have the `correlation` of the runtime's call
that launched them, which lies within the span, on the same thread; all kernels of a replayed CUDA
or HIP graph have that of the one call that launched it. So the time of a call of a graph is that of
all kernels that were launched within its span; where there are none, as on a CPU, the span's own.

The name of a library's kernel does not say what it is for; `External id` gives the op that launched
it (`aten::mm`). On a CPU such ops are all that is seen within a span.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from backend.model.graph import Graph, GraphKind, GraphTimes
from backend.model.tuning import LATEST
from rocm_tui.harmless import clean
from rocm_tui.ingest.formats.reader import DOCUMENTS, Complaints, Format
from rocm_tui.ingest.records import GraphSeen, KernelTime, Record

MAX_EVENT = 4 << 20
"""Characters of one event; a longer one is damage."""
_HEAD = 64 << 10
"""Characters before the events that are kept: they hold facts on the process."""
_EVENTS = re.compile(r'"traceEvents"\s{0,100}:\s{0,100}\[')
_BETWEEN = re.compile(r"[\s,]*")
_DECODE = json.JSONDecoder().raw_decode


class TraceEvents:
    """Takes bytes and gives objects. `head` is the text before the events; `ended` means that all
    of them were read, `damaged` that the rest makes no sense and is left out."""

    def __init__(self) -> None:
        self.head = ""
        self.ended = False
        self.damaged = False
        self._text = ""
        self._inside = False
        self._tried = 0
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    @property
    def torn(self) -> bool:
        """Whether the text that has come stops before the end of the events."""
        return not self.ended and not self.damaged

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Take the next bytes; the events that are whole by now."""
        if self.ended or self.damaged:
            return
        self._text += self._decode(data)
        if not self._inside and not self._enter():
            return
        if len(self._text) >= 2 * self._tried:  # one long event is not tried again and again
            yield from self._objects()

    def rest(self) -> Iterator[dict[str, Any]]:
        """The events that are whole, should no more come for now."""
        if self._inside and self.torn:
            yield from self._objects()

    def _enter(self) -> bool:
        """Find where the events begin."""
        start = _EVENTS.search(self._text)
        end = len(self._text) - 400 if start is None else start.end()
        if end > 0:
            self.head = (self.head + self._text[:end])[:_HEAD]
            self._text = self._text[end:]
        self._inside = start is not None
        return self._inside

    def _objects(self) -> Iterator[dict[str, Any]]:
        text, at, self._tried = self._text, 0, 0
        while True:
            between = _BETWEEN.match(text, at)
            at = between.end() if between else at
            if at >= len(text):
                break
            if text[at] == "]":
                self.ended = True
                break
            try:
                event, at = _DECODE(text, at)
            except (ValueError, RecursionError):
                self.damaged = len(text) - at > MAX_EVENT or text[at] != "{"
                self._tried = len(text) - at
                break
            if isinstance(event, dict):
                yield event
        self._text = "" if self.ended or self.damaged else text[at:]


CALL = re.compile(r"## Call CompiledFxGraph (\w{1,128}) ##")
_KINDS: dict[str, GraphKind] = {
    "CompiledFunction": "forward",
    "CompiledFunctionBackward": "backward",
}
_REGION = "Torch-Compiled Region: "
_HOST = ("cpu_op", "user_annotation")
_LAUNCHES = ("cuda_runtime", "cuda_driver", "privateuse1_runtime", "privateuse1_driver")
"""HIP's calls are `cuda_runtime` too."""
_KERNELS = ("kernel", "gpu_memcpy", "gpu_memset")
MOST_GRAPHS = 10_000
MOST_SPANS = 1 << 20
MOST_EVENTS = 1 << 22
MOST_NAMES = 1 << 16
"""The most that is kept; a trace with more is not counted to its end."""
_WARM_UP = 5.0
"""A call that takes this many medians compiled or tuned something: it is not counted."""
_FEW = 3

Thread = tuple[Any, Any]
_Op = tuple[str, int]
"""`mm` of `aten::mm`, and which of its calls within one of the graph."""
_NO_OP: _Op = ("", 0)
_Name = tuple[str, str, int]


@dataclass(slots=True)
class _Span:
    """A call of a graph: which one, from when to when, in microseconds."""

    graph: int
    start: float
    end: float


@dataclass(slots=True)
class _Thread:
    """What is under way on a thread of the host, as its events come."""

    spans: list[_Span] = field(default_factory=list)
    kind: GraphKind = "inference"
    kind_until: float = -math.inf
    region: str = ""
    region_until: float = -math.inf
    op: _Op = _NO_OP
    op_until: float = -math.inf
    op_counts: Counter[str] = field(default_factory=Counter)
    last: float = -math.inf


@dataclass(slots=True)
class _Graph:
    key: str
    kind: GraphKind
    region: str


@dataclass(frozen=True, slots=True)
class ProfiledGraph:
    """A graph as the trace shows it; `end` is that of its last call, in microseconds."""

    graph: Graph
    times: GraphTimes
    kernels: tuple[KernelTime, ...]
    end: float


class Profile:
    """Takes the events of one trace. `full` means that some of too many were left out."""

    def __init__(self) -> None:
        self.full = False
        self._threads: dict[Thread, _Thread] = {}
        self._graphs: dict[str, int] = {}
        self._known: list[_Graph] = []
        self._names: dict[str, int] = {}
        self._ops: dict[int, _Op] = {}
        self._host_ops: list[tuple[Thread, int, int, _Op, float]] = []
        self._launches: dict[int, tuple[Thread, float]] = {}
        self._kernels: list[tuple[int, int, int, float]] = []
        self._count = 0
        self._ordered = True

    def take(self, event: dict[str, Any]) -> None:
        """Take an event in; one that is none of ours, or makes no sense, is left out."""
        category, name = event.get("cat"), event.get("name")
        start, length = _number(event.get("ts")), _number(event.get("dur"))
        if event.get("ph") != "X" or not isinstance(name, str) or start is None or length is None:
            return
        if length < 0:
            return
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        if category in _HOST:
            self._host(_thread(event), name, start, length, _id(args.get("External id")))
        elif category in _LAUNCHES:
            correlation = _id(args.get("correlation"))
            if correlation is not None and self._room():
                self._launches[correlation] = _thread(event), start
        elif category in _KERNELS:
            correlation = _id(args.get("correlation"))
            if correlation is not None and self._room():
                op = _id(args.get("External id"))
                launch = self._name(name), correlation, -1 if op is None else op, length
                self._kernels.append(launch)

    def _host(self, thread: Thread, name: str, start: float, length: float, id: int | None) -> None:
        """Spans of the host come as they begin: what lies around others comes before them."""
        state = self._threads.get(thread)
        if state is None:
            if len(self._threads) >= MOST_GRAPHS:
                self.full = True
                return
            state = self._threads[thread] = _Thread()
        self._ordered = self._ordered and start >= state.last
        state.last = start
        end = start + length
        call = CALL.fullmatch(name)
        if call is not None:
            self._call(state, call[1], start, end)
        elif name in _KINDS:
            state.kind, state.kind_until = _KINDS[name], end
        elif name.startswith(_REGION):
            state.region, state.region_until = clean(name.removeprefix(_REGION))[:40], end
        elif state.spans and start <= state.spans[-1].end and start >= state.spans[-1].start:
            if start >= state.op_until and self._room():
                state.op, state.op_until = self._op(state, name), end
                launch = thread, len(state.spans) - 1, self._name(name), state.op, length
                self._host_ops.append(launch)
            if id is not None and state.op[0] and self._room():
                self._ops[id] = state.op

    def _op(self, state: _Thread, name: str) -> _Op:
        """An op of ATen that is directly within a call of a graph; nothing for any other."""
        if not name.startswith("aten::") or len(name) > 100:
            return _NO_OP
        op = name.removeprefix("aten::")
        state.op_counts[op] += 1
        return clean(op), state.op_counts[op]

    def _call(self, state: _Thread, key: str, start: float, end: float) -> None:
        graph = self._graphs.get(key)
        if graph is None:
            if len(self._known) >= MOST_GRAPHS:
                self.full = True
                return
            graph = self._graphs[key] = len(self._known)
            kind = state.kind if start <= state.kind_until else "inference"
            region = state.region if start <= state.region_until else ""
            self._known.append(_Graph(key, kind, region))
        if len(state.spans) >= MOST_SPANS:
            self.full = True
            return
        state.spans.append(_Span(graph, start, end))
        state.op_until = -math.inf
        state.op_counts.clear()

    def _room(self) -> bool:
        self._count += 1
        self.full = self.full or self._count > MOST_EVENTS
        return self._count <= MOST_EVENTS

    def _name(self, name: str) -> int:
        name = clean(name[:300])
        if name not in self._names and len(self._names) >= MOST_NAMES:
            name = "?"
        return self._names.setdefault(name, len(self._names))

    # What it comes to

    def graphs(self) -> list[ProfiledGraph]:
        """All graphs that were called, in the order of their first calls."""
        spans, places = self._all_spans()
        device = _Sums(len(spans))
        names = list(self._names)
        for call, name, length in self._launched(spans, places):
            device.add(call, name, length)
        host = _Sums(len(spans))
        if self._ordered:
            first = {thread: at for thread, (at, _) in places.items()}
            for thread, at, name_at, op, length in self._host_ops:
                host.add(first[thread] + at, (names[name_at], *op), length)
        by_graph: dict[int, list[int]] = {}
        for at, span in enumerate(spans):
            by_graph.setdefault(span.graph, []).append(at)
        return [
            self._profiled(self._known[graph], [(at, spans[at]) for at in calls], device, host)
            for graph, calls in by_graph.items()
        ]

    def _all_spans(self) -> tuple[list[_Span], dict[Thread, tuple[int, list[float]]]]:
        """The calls of all threads, and of each thread where its own begin, and their starts."""
        spans: list[_Span] = []
        places: dict[Thread, tuple[int, list[float]]] = {}
        for thread, state in self._threads.items():
            if not self._ordered:
                state.spans.sort(key=lambda span: span.start)
            places[thread] = len(spans), [span.start for span in state.spans]
            spans += state.spans
        return spans, places

    def _launched(
        self, spans: list[_Span], places: dict[Thread, tuple[int, list[float]]]
    ) -> Iterator[tuple[int, _Name, float]]:
        """Each kernel that was launched within a call: which call, its name, microseconds."""
        names = list(self._names)
        for name, correlation, op, length in self._kernels:
            launch = self._launches.get(correlation)
            if launch is None or launch[0] not in places:
                continue
            first, starts = places[launch[0]]
            at = bisect_right(starts, launch[1]) - 1
            if at >= 0 and launch[1] <= spans[first + at].end:
                yield first + at, (names[name], *self._ops.get(op, _NO_OP)), length

    def _profiled(
        self, known: _Graph, calls: list[tuple[int, _Span]], device: _Sums, host: _Sums
    ) -> ProfiledGraph:
        on_device = any(device.totals[at] for at, _ in calls)
        if on_device:
            times = {at: device.totals[at] for at, _ in calls}
        else:
            times = {at: span.end - span.start for at, span in calls}
        counted = _counted(times)
        total = sum(times[at] for at in counted)
        kernels = (device if on_device else host).kernels(counted)
        graph = Graph(
            hashlib.sha256(known.key.encode()).hexdigest()[:7],
            known.kind,
            known.key,
            f"region {known.region}" if known.region else "",
            "gpu" if on_device else None,
        )
        mean = total / len(counted) / 1e3
        seen = GraphTimes(len(calls), len(counted), mean, "device" if on_device else "host")
        return ProfiledGraph(graph, seen, kernels, max(span.end for _, span in calls))


class _Sums:
    """What was seen within calls: microseconds a call, and of each name."""

    def __init__(self, calls: int) -> None:
        self.totals = [0.0] * calls
        self._by_call: dict[int, dict[_Name, list[float]]] = {}

    def add(self, call: int, name: _Name, length: float) -> None:
        self.totals[call] += length
        sums = self._by_call.setdefault(call, {}).setdefault(name, [0, 0.0])
        sums[0] += 1
        sums[1] += length

    def kernels(self, calls: Sequence[int]) -> tuple[KernelTime, ...]:
        """The means of these calls, longest first."""
        counts: Counter[_Name] = Counter()
        times: dict[_Name, float] = {}
        number = len(calls)
        for call in calls:
            for name, (count, time) in self._by_call.get(call, {}).items():
                counts[name] += int(count)
                times[name] = times.get(name, 0.0) + time
        kernels = [
            KernelTime(name, counts[name, op, nth] / number, time / number / 1e3, op, nth)
            for (name, op, nth), time in times.items()
        ]
        return tuple(sorted(kernels, key=lambda kernel: -kernel.ms))


def _counted(times: dict[int, float]) -> list[int]:
    """Return the calls without the slow ones: the first of a program may compile."""
    if len(times) < _FEW:
        return list(times)
    most = median(times.values()) * _WARM_UP
    return [at for at, time in times.items() if time <= most]


def _thread(event: dict[str, Any]) -> Thread:
    pid, tid = event.get("pid"), event.get("tid")
    return pid if isinstance(pid, int | str) else None, tid if isinstance(tid, int | str) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e18 else None


def _id(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < 1 << 63 else None


_BASE = re.compile(r'"baseTimeNanoseconds"\s{0,9}:\s{0,9}(\d{1,19})\b')


class ProfilerTrace:
    """A streaming reader: its records come when the trace has ended, or rests."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._events = TraceEvents()
        self._profile = Profile()
        self._complaints = Complaints(source, 20)
        self._seen: dict[int, GraphSeen] = {}
        self._new = False

    def feed(self, data: bytes) -> list[Record]:
        """Take the next bytes."""
        open_before = self._events.torn
        self._take(self._events.feed(data))
        if open_before and not self._events.torn:
            return self._tell()
        return []

    def _take(self, events: Iterable[dict[str, Any]]) -> None:
        for event in events:
            self._profile.take(event)
            self._new = True

    def close(self) -> list[Record]:
        """There is no more."""
        self._take(self._events.rest())
        records = self._tell()
        if self._events.torn:
            records += self._complaints.once("the trace ends in the middle", None, "torn")
        return records

    waits = False

    def settle(self) -> list[Record]:
        """Nothing came for a while."""
        self._take(self._events.rest())
        return self._tell()

    def _tell(self) -> list[Record]:
        records: list[Record] = []
        if self._new:
            self._new = False
            base = _BASE.search(self._events.head)
            start = int(base[1]) / 1e9 if base else 0.0
            for g, graph in enumerate(self._profile.graphs(), 1):
                end = start + graph.end / 1e6
                when = end if base and 0 <= end <= LATEST else None
                seen = GraphSeen(
                    self.source, g, graph.graph, None, graph.times, when, graph.kernels
                )
                if self._seen.get(g) != seen:
                    self._seen[g] = seen
                    records.append(seen)
        if self._profile.full:
            what = "too many events: not all of them are counted"
            records += self._complaints.once(what, None, "full")
        if self._events.damaged:
            what = "an event that is no JSON: only what is before it was read"
            records += self._complaints.once(what, None, "damaged")
        return records


FORMAT = Format(
    "profiler trace",
    begins=re.compile(
        rb'\{\s*"(?:schemaVersion|deviceProperties|traceEvents|displayTimeUnit|trace_id|traceName'
        rb'|baseTimeNanoseconds|distributedInfo)"\s*:'
    ),
    suffixes=DOCUMENTS,
    stream=ProfilerTrace,
)
