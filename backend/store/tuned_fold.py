"""Folding the journal into Inductor's own cache file, where stock PyTorch finds the timings."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from backend.store import exchange, safe
from backend.store.autotune_cache import load_json, read_bytes
from backend.store.errors import CacheUnreadable
from backend.store.graph_match import is_own
from backend.store.paths import Layout
from backend.store.pin_file import Record, read_pin_file
from backend.store.raised import raise_ms
from backend.store.tuned_journal import Journal
from backend.store.tuned_layout import dump
from backend.store.tuned_line import Tuned, decode_all


def fold(root: Path, path: Path, system: Mapping[str, Any]) -> None:
    """Put what the journal of the cache file `path` holds into it, and begin a new journal.

    `system` is the header of a file that does not exist yet. Raises CacheUnreadable, UnsafePath
    and NotWritable; the journal is kept then, and all it holds is folded another time.
    """
    journal = Journal(root, path)
    if not journal.read().lines:
        return
    safe.make_folder(root, path.parent)
    safe.check_file(root, path)
    with safe.locked(root, path):
        found = journal.read()
        if not found.lines:
            return
        edit = _Edit(root, path, decode_all(found.lines))
        _make(path, {"system": system, "cache": {}})
        told_all = not exchange.leftover_path(path).exists()
        if exchange.update(path, edit):
            after = edit.written()
            before = edit.before if told_all and edit.calls == 1 and not edit.held else None
        else:
            before = after = exchange.signature_of(path)
            data = read_bytes(path)
            if edit(data) != data:
                return  # others wrote faster than we could; next time
            if edit.held:
                before = None
        journal.rotate(found, before, after)


def cache_of(path: Path, document: Mapping[str, Any]) -> dict[str, Any]:
    """The "cache" object of the parsed file `path`. Raises CacheUnreadable."""
    cache = document.get("cache")
    if not isinstance(cache, dict):
        raise _unusable(path)
    return cache


class _Edit:
    """The new content of the file from the old, and what can be said of the two."""

    def __init__(self, root: Path, path: Path, news: Iterable[Tuned]) -> None:
        self._path = path
        self._news = list(news)
        self._pins = Layout(root).pins
        self.calls = 0
        self.held = False
        """Whether a pin raised a time in the file."""
        self.before: exchange.Signature | None = None
        self._content = b""

    def __call__(self, data: bytes) -> bytes:
        self.calls += 1
        self.before = exchange.signature_of(self._path)
        document = load_json(self._path, data)
        cache = cache_of(self._path, document)
        pins = {
            (pin.op, pin.inputs): pin
            for pin in read_pin_file(self._pins).pins
            if pin.system_hash == self._path.name
        }
        changed = False
        for tuned in self._news:
            pin = pins.get((tuned.op, tuned.inputs))
            changed = self._put(cache, tuned, pin) or changed
        self._content = dump(document) if changed else data
        return self._content

    def written(self) -> exchange.Signature | None:
        """The signature of the file if its content is still ours."""
        signature = exchange.signature_of(self._path)
        with contextlib.suppress(CacheUnreadable):
            same = read_bytes(self._path) == self._content
            if same and exchange.signature_of(self._path) == signature:
                return signature
        return None

    def _put(self, cache: dict[str, Any], tuned: Tuned, pin: Record | None) -> bool:
        timings = cache
        for name in (tuned.op, tuned.inputs, tuned.precision):
            timings = timings.setdefault(name, {})
            if not isinstance(timings, dict):
                raise _unusable(self._path)
        holds = pin is not None and _holds(pin, {**timings, **tuned.timings})
        changed = False
        for name, ms in tuned.timings.items():
            new = raise_ms(ms) if pin is not None and holds and name != pin.hash else ms
            self.held = self.held or new != ms
            if name not in timings or not _same(timings[name], new):
                timings[name] = new
                changed = True
        return changed


def _holds(pin: Record, timings: Mapping[str, Any]) -> bool:
    """Whether a pin's rivals stay out of reach; see `pin_edit.holding`."""
    own = timings.get(pin.hash)
    is_time = isinstance(own, (float, int)) and math.isfinite(own)
    return is_time and not is_own(pin.hash)


def _same(first: object, second: float) -> bool:
    return first == second or (first != first and second != second)  # NaN is NaN


def _make(path: Path, document: Mapping[str, Any]) -> None:
    """Make the file if there is none. What another process makes meanwhile is left alone."""
    if path.exists():
        return
    temporary = safe.temporary_path(path)
    safe.write_temporary(temporary, json.dumps(document, indent=4).encode(), like=path)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return
    except OSError:  # a file system without links
        with contextlib.suppress(OSError):
            temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _unusable(path: Path) -> CacheUnreadable:
    return CacheUnreadable(f"{path} is no autotune cache; move the file away to start afresh")
