"""`TORCH_TRACE=<dir>`: one structured log a process.

A record is a line `V1120 10:10:29.070000 6512 file.py:2350] {json}` and, if that has `has_payload`,
lines that begin with a tab. Payloads of `chromium_event` are JSON events; a tuning is the pair
of `<op>_template_autotuning` with `"ph": "B"` and `"E"`. From torch 2.9 on the end carries
`autotune_choices_stats`, the only place where the trace names a choice and its time.

For each graph torch also writes records with the reproducer (which names the settings), with the
graph after Inductor's passes, and with the generated code, in that order, on a hit of the graph
cache as well (read in torch 2.8 to 2.15, `_inductor/compile_fx.py`, `graph.py`, `codecache.py`).
Together they are the text that a compiled-graph entry holds, and `TraceCode` gives them as such.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

from backend.model.choice import Choice, sort_choices
from backend.model.tuning import Seconds, Tuning
from rocm_tui.harmless import clean
from rocm_tui.ingest.formats.autotune_lines import (
    Stats,
    is_dtype,
    parse_shapes,
    parse_stride_list,
    stats_of,
)
from rocm_tui.ingest.formats.event_folds import finite
from rocm_tui.ingest.formats.reader import (
    LOGS,
    Complaints,
    Format,
    WholeLines,
    is_silent,
    json_object,
    timed_choice,
)
from rocm_tui.ingest.records import Dropped, Record, Seen, uid_of

_TUNING = "_template_autotuning"
_PRECOMPILING = "_template_precompiling"
MAX_EVENT = 4 << 20
MAX_LINE = 8 << 20
MAX_PROBLEMS = 50
_TORN = "an event of an autotuning that is torn"


class TorchTrace:
    """A streaming reader."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._lines = WholeLines(MAX_LINE)
        self._payload: list[bytes] | None = None
        self._size = 0
        self._rank: int | None = None
        self._n = 0
        self._number = 0
        self._complaints = Complaints(source, MAX_PROBLEMS)
        self._open: dict[str, tuple[int, float, Tuning]] = {}
        self._precompiling: dict[str, float] = {}
        self._precompiled: dict[str, float | None] = {}
        self._records: list[Record] = []
        self._silent = False

    def feed(self, data: bytes) -> list[Record]:
        """Take the next bytes of the log."""
        self._silent = False
        for line in self._lines.feed(data):
            self._line(line)
        return self._take()

    def close(self) -> list[Record]:
        """The log has ended: a tuning without its end is cut off."""
        self._line(self._lines.rest())
        self._records += self._cut()
        self._open.clear()
        return self._take()

    def _cut(self) -> list[Record]:
        return [
            Seen(uid_of(self.source, n), replace(tuning, state="cut"))
            for n, _, tuning in self._open.values()
        ]

    @property
    def waits(self) -> bool:
        """Whether a tuning has no end yet."""
        return bool(self._open) and not self._silent

    def settle(self) -> list[Record]:
        """A quiet process may be compiling: what has no end is cut after a long silence alone, and
        its end may come yet."""
        if not self.waits or not is_silent(self.source):
            return []
        self._silent = True
        return self._cut()

    def _take(self) -> list[Record]:
        records, self._records = self._records, []
        return records

    def _line(self, line: bytes) -> None:
        self._number += 1
        if not line.startswith(b"\t"):
            if self._payload is not None and _TUNING.encode() in b"".join(self._payload):
                self._problem(_TORN)
            self._payload = None
            if b'{"chromium_event"' in line:
                self._payload, self._size = [], 0
                self._rank = _rank(line)
        elif self._payload is not None:
            self._payload.append(line)
            self._size += len(line)
            if self._size > MAX_EVENT:
                self._payload = None
            elif line == b"\t}":
                self._end_payload(b"\n".join(self._payload))

    def _end_payload(self, payload: bytes) -> None:
        """Take an event, up to the first brace alone on a line; a text that is no JSON is none."""
        self._payload = None
        if _TUNING.encode() not in payload and _PRECOMPILING.encode() not in payload:
            return
        event = json_object(payload)
        if event is not None:
            self._event(event)
        elif _TUNING.encode() in payload:
            self._problem(_TORN)

    def _problem(self, what: str) -> None:
        self._records += self._complaints.about(what, self._number)

    def _event(self, event: dict[str, Any]) -> None:
        name, at, phase = event.get("name"), event.get("ts"), event.get("ph")
        if not isinstance(name, str) or not isinstance(at, float | int):
            return
        try:
            seconds = float(at) / 1e6
        except OverflowError:
            return
        if name.endswith(_PRECOMPILING):
            self._precompile(name.removesuffix(_PRECOMPILING), seconds, phase)
        elif name.endswith(_TUNING):
            args = event.get("args")
            details = args if isinstance(args, dict) else {}
            self._tuning(name.removesuffix(_TUNING), seconds, phase, details)

    def _precompile(self, op: str, at: float, phase: Any) -> None:
        if phase == "B":
            self._precompiling[op] = at
        elif op in self._precompiling:
            self._precompiled[op] = finite(at - self._precompiling.pop(op))

    def _tuning(self, op: str, at: float, phase: Any, args: dict[str, Any]) -> None:
        if phase == "B":
            self._n += 1
            tuning = self._started(op, at, args)
            self._open[op] = (self._n, at, tuning)
            self._records.append(Seen(uid_of(self.source, self._n), tuning))
        elif phase == "E" and op in self._open:
            n, start, tuning = self._open.pop(op)
            document = json_object(args.get("autotune_choices_stats")) or {}
            stats = stats_of(document)
            uid = uid_of(self.source, n)
            if stats is None:
                self._records.append(Dropped(uid))
                if "autotune_choices_stats" in args:
                    self._problem(f"statistics of {clean(op)[:60]} that cannot be read")
                return
            seconds = Seconds(finite(at - start), self._precompiled.pop(op, None))
            choices = sort_choices(_choices(stats, document))
            tuning = replace(tuning, choices=choices, num_choices=stats.num_choices)
            self._records.append(Seen(uid, replace(tuning, seconds=seconds, state="done")))

    def _started(self, op: str, at: float, args: dict[str, Any]) -> Tuning:
        dtypes = tuple(d for d in _text(args, "autotune_dtypes").split(", ") if d)
        if not all(map(is_dtype, dtypes)):
            self._problem(f"dtypes of {clean(op)[:60]} that are none: {', '.join(dtypes)[:100]}")
            dtypes = ()
        return Tuning(
            op=clean(op),
            shapes=parse_shapes(_text(args, "autotune_shape")) or (),
            strides=parse_stride_list(_text(args, "autotune_strides")) or (),
            dtypes=dtypes,
            state="running",
            rank=self._rank,
            when=finite(at),
            sources=(self.source,),
        )


def _text(args: dict[str, Any], name: str) -> str:
    """An argument's text; with numbers in place of symbols where the version has that."""
    text = args.get(f"{name}_hinted", args.get(name))
    return clean(text) if isinstance(text, str) else ""


def _choices(stats: Stats, document: dict[str, Any]) -> list[Choice]:
    """The best of all, and the best of Triton's."""
    choices = [_choice(stats.best_kernel, stats.best_time, document.get("best_kernel_desc"))]
    name, time = document.get("best_triton_kernel"), document.get("best_triton_time")
    if isinstance(name, str) and isinstance(time, float):
        choices.append(_choice(clean(name), time, document.get("best_triton_kernel_desc")))
    return choices


def _choice(name: str, ms: float, description: Any) -> Choice:
    text = clean(description) if isinstance(description, str) else ""
    return timed_choice(ms if ms >= 0 else math.inf, name=name, description=text)


def _rank(line: bytes) -> int | None:
    """`"rank": 3` of a record's head, where torch writes one."""
    head = json_object(line[line.index(b"{") :]) or {}
    rank = head.get("rank")
    return rank if isinstance(rank, int) and not isinstance(rank, bool) else None


FORMAT = Format(
    "torch trace",
    begins=re.compile(rb"V\d{4} \d\d:\d\d:\d\d\.\d{3,9} \d+ [^\s:]{1,300}:\d+\] \{"),
    suffixes=LOGS,
    stream=TorchTrace,
)


# The generated code

MAX_CODE_LINE = 32 << 20
MAX_PAYLOAD = 64 << 20
"""Bytes of one record; a longer one counts as damaged."""
_CONTEXTS = 256
"""Compiles that may be under way at once in one process."""

_CODE, _GRAPH, _SETTINGS = "code", "graph", "settings"
_RECORDS = {
    "inductor_output_code": _CODE,
    "inductor_aot_wrapper_code": _CODE,
    "inductor_post_grad_graph": _GRAPH,
    "after_post_grad_graph": _GRAPH,  # torch 2.8 and 2.9, where it is compiled
    "fx_graph_runnable": _SETTINGS,
}
_NAMED = ("artifact", "graph_dump")
"""Records whose `name` is their kind."""

Context = tuple[Any, ...]


@dataclass(slots=True)
class TraceCode:
    """Reads one log. `damaged` counts code of which the log has not all: cut off, or two processes
    wrote at once; each record carries a checksum."""

    damaged: int = 0
    _parts: dict[Context, dict[str, bytes]] = field(default_factory=dict)

    def read(self, stream: BinaryIO, most: int | None = None) -> Iterator[bytes]:
        """The text of each graph, in the order of the log; of the first `most` bytes."""
        record: _Record | None = None
        left = most
        while left is None or left > 0:
            line = stream.readline(MAX_CODE_LINE if left is None else min(left, MAX_CODE_LINE))
            if not line:
                break
            left = None if left is None else left - len(line)
            if line.startswith(b"\t"):
                if record is not None:
                    record.take(line[1:])
                continue
            yield from self._end(record)
            record = _record(line)
        yield from self._end(record)

    def _end(self, record: _Record | None) -> Iterator[bytes]:
        """A record is complete: code is given with what was said before in the same compile."""
        if record is None:
            return
        parts = self._parts.setdefault(record.context, {})
        payload = record.payload()
        if record.kind != _CODE:
            if payload is not None:
                parts[record.kind] = payload
            while len(self._parts) > _CONTEXTS:
                del self._parts[next(iter(self._parts))]
            return
        del self._parts[record.context]
        if payload is None:
            self.damaged += 1
            return
        yield b"\n".join((payload, parts.get(_SETTINGS, b""), parts.get(_GRAPH, b"")))


@dataclass(slots=True)
class _Record:
    """The head of a record, and its payload as it comes."""

    kind: str
    context: Context
    digest: str
    lines: list[bytes] = field(default_factory=list)
    size: int = 0

    def take(self, line: bytes) -> None:
        self.size += len(line)
        if self.size <= MAX_PAYLOAD:
            self.lines.append(line)

    def payload(self) -> bytes | None:
        """None if it is not what torch wrote."""
        data = b"".join(self.lines).removesuffix(b"\n")
        digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
        return data if digest == self.digest else None


def _record(line: bytes) -> _Record | None:
    """The record that begins with this line, if it is one that matters and has a payload."""
    start = line.find(b"{")
    if start < 0 or not any(name.encode() in line[start : start + 200] for name in _RECORDS):
        return None
    head = json_object(line[start:])
    if head is None or not isinstance(head.get("has_payload"), str):
        return None
    name = next(iter(head))
    if name in _NAMED:
        named = head[name]
        name = str(named.get("name")) if isinstance(named, dict) else ""
    if name not in _RECORDS:
        return None
    ids = ("compiled_autograd_id", "frame_id", "frame_compile_id", "attempt")
    return _Record(_RECORDS[name], tuple(str(head.get(id)) for id in ids), head["has_payload"])
