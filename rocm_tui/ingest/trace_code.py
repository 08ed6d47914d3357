"""The generated code in a log of `TORCH_TRACE`: what one process compiled, or found compiled.

For each graph torch writes records with the reproducer (which names the settings), with the graph
after Inductor's passes, and with the generated code, in that order, on a hit of the graph cache as
well (read in torch 2.8 to 2.15, `_inductor/compile_fx.py`, `graph.py`, `codecache.py`). Together
they are the text that a compiled-graph entry holds, and are given as such.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

MAX_LINE = 32 << 20
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
"""Records whose kind stands in `name`."""

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
            line = stream.readline(MAX_LINE if left is None else min(left, MAX_LINE))
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
        found = hashlib.md5(data, usedforsecurity=False).hexdigest()
        return data if found == self.digest else None


def _record(line: bytes) -> _Record | None:
    """The record that begins with this line, if it is one that matters and has a payload."""
    start = line.find(b"{")
    if start < 0 or not any(name.encode() in line[start : start + 200] for name in _RECORDS):
        return None
    try:
        head = json.loads(line[start:])
    except (ValueError, RecursionError):
        return None
    if not isinstance(head, dict) or not isinstance(head.get("has_payload"), str):
        return None
    name = next(iter(head))
    if name in _NAMED:
        named = head[name]
        name = str(named.get("name")) if isinstance(named, dict) else ""
    if name not in _RECORDS:
        return None
    ids = ("compiled_autograd_id", "frame_id", "frame_compile_id", "attempt")
    return _Record(_RECORDS[name], tuple(str(head.get(id)) for id in ids), head["has_payload"])
