"""`torch.profiler` traces: what `export_chrome_trace` writes (`.json`, `.json.gz`).

Nothing of it is a tuning. It tells of compiled graphs: how often each was called, how long that
took, and the kernels in it. Which tuning a kernel is says who knows the graph, see
`session.graphs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from backend.model.session import LATEST
from rocm_tui.ingest.formats.profiler.events import TraceEvents
from rocm_tui.ingest.formats.reader import DOCUMENTS, Complaints, Format
from rocm_tui.ingest.records import GraphSeen, Record

_BASE = re.compile(r'"baseTimeNanoseconds"\s{0,9}:\s{0,9}(\d{1,19})\b')


class ProfilerTrace:
    """A streaming reader: what is known is told when the trace has ended, or rests."""

    def __init__(self, source: str) -> None:
        from rocm_tui.ingest.formats.profiler.graphs import Profile  # few sources are traces

        self.source = source
        self._events = TraceEvents()
        self._profile = Profile()
        self._complaints = Complaints(source, 20)
        self._told: dict[int, GraphSeen] = {}
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
            for g, known in enumerate(self._profile.graphs(), 1):
                when = start + known.end / 1e6
                seen = GraphSeen(
                    self.source,
                    g,
                    known.graph,
                    times=known.times,
                    when=when if base and 0 <= when <= LATEST else None,
                    kernels=known.kernels,
                )
                if self._told.get(g) != seen:
                    self._told[g] = seen
                    records.append(seen)
        if self._profile.full:
            what = "so many events that not all of them are counted"
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
