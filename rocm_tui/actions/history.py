"""The history of a problem: what the model tells, what happened to pins, what cache files say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from backend.disk.layout import Layout
from backend.errors import StoreError
from backend.pins.file import HistoryEntry
from rocm_tui.actions.pin import pin_history
from rocm_tui.session.history import History, Versions, cache_files, history, system_versions
from rocm_tui.session.model import Model, Row


@dataclass(frozen=True, slots=True)
class Beside:
    """What files beside the sources tell: of pins, and of systems by their hash."""

    pins: tuple[HistoryEntry, ...] = ()
    versions: Mapping[str, Versions] = field(default_factory=dict)


_SYSTEM = re.compile(r"[0-9a-f]{64}")
"""A log may call its system anything; a cache file is named by a hash."""


def read_beside(layout: Layout, files: Mapping[str, str]) -> Beside:
    """`files` are paths of cache files by system, else they are looked for in `layout`. Reads
    files: call it off the event loop. What cannot be read is not told."""
    pins: tuple[HistoryEntry, ...] = ()
    with suppress(StoreError):
        pins = pin_history(layout)
    paths = {name: Path(path or layout.autotune / name) for name, path in files.items()}
    versions = {n: system_versions(path) for n, path in paths.items() if _SYSTEM.fullmatch(n)}
    return Beside(pins, versions)


def problem_history(model: Model, row: Row, layout: Layout) -> History:
    """Of the problem of `row`, all that is known."""
    beside = read_beside(layout, cache_files(model, row))
    return history(model, row, beside.pins, beside.versions)
