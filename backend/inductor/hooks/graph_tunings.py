"""Which tunings a compiled graph contains, kept for processes that load it from a cache.

`rocm_tui/graphs/ID.tunings.json`: `{"keys": {KEY: [use, ...]}}`, KEY as FxGraphCache has it. The
same graph has another key under other settings, where other tunings may have decided; a graph that
is compiled anew under its key, as after a pin, replaces what was kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from backend.disk import safe
from backend.disk.layout import Layout
from backend.errors import CacheUnreadable
from backend.model.graph import TuningUse
from backend.wire.codec import WireError, dumps, read, to_json

MAX_KEYS = 64
"""The newest that are kept of one graph."""

LOCK_SECONDS = 2.0
MAX_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class _Kept:
    keys: Mapping[str, tuple[TuningUse, ...]] = field(default_factory=dict)


def path_of(layout: Layout, graph_id: str) -> Path:
    return layout.graphs / f"{graph_id}.tunings.json"


def keep(layout: Layout, graph_id: str, key: str | None, uses: Sequence[TuningUse]) -> None:
    """Let later processes know. Raises StoreError."""
    path = path_of(layout, graph_id)
    if _read(path).get(key or "") == tuple(uses):
        return
    safe.make_folder(layout.root, path.parent)
    with safe.locked(layout.root, path, LOCK_SECONDS):
        safe.check_file(layout.root, path)
        keys = dict(_read(path))
        keys.pop(key or "", None)
        newest = {**dict(list(keys.items())[-(MAX_KEYS - 1) :]), key or "": tuple(uses)}
        safe.write_atomic(path, dumps(to_json(_Kept(newest))).encode() + b"\n")


def kept(layout: Layout, graph_id: str, key: str | None) -> tuple[TuningUse, ...]:
    """What is known of a graph; empty if nothing is."""
    return _read(path_of(layout, graph_id)).get(key or "", ())


def _read(path: Path) -> Mapping[str, tuple[TuningUse, ...]]:
    """A file that cannot be understood is one that says nothing: it is made again."""
    if not path.is_file():
        return {}
    with contextlib.suppress(CacheUnreadable, WireError):
        return read(_Kept, safe.load_json(path, safe.read_bytes(path, MAX_BYTES))).keys
    return {}
