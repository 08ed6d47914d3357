"""Folding the journal into Inductor's own cache file, which stock PyTorch reads.

Stock PyTorch replaces the cache file by a copy that it read minutes ago and added to. Timings
folded in between are then gone from the file, and the process that measured them may have ended. So
folds of the last day are kept in `<system hash>.kept.jsonl`, and our next process that reads a file
written by someone else compares the two.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from backend.cache.autotune import (
    cache_of,
    cache_paths,
    dump,
    lower,
    merge_missing,
    raise_ms,
    recorded_pins,
)
from backend.cache.journal import (
    Index,
    Journal,
    JournalRead,
    Tuned,
    append_lines,
    line_of,
    missing_timings,
    tuned_in,
)
from backend.disk import exchange, safe
from backend.disk.layout import Layout
from backend.disk.safe import load_json, read_bytes
from backend.errors import Busy, CacheUnreadable, StoreError

SECONDS = 86_400.0
"""A process that tunes for longer than this between two writes loses what others folded."""

MOST_BYTES = 64 << 20
LEAST_BYTES = 1 << 20
"""Below this size, and below twice the cache file's, duplicate lines are not compacted."""


Pinned = Callable[[Path], Mapping[tuple[str, str], frozenset[str]]]
"""Returns the pins in a cache file: for each (op, inputs) the hashes of the winning choice, one per
device; none if the pin is not held by this file's numbers. Raises CacheUnreadable."""


def fold(
    root: Path,
    path: Path,
    system: Mapping[str, Any],
    pinned: Pinned,
    patience: float = safe.LOCK_SECONDS,
) -> None:
    """Fold the journal of the cache file `path` into it, and begin a new journal.

    Timings that others removed by writing an old copy are restored, and numbers raised for former
    pins are lowered. `system` is the header for a new file; others may hold the locks for
    `patience` seconds. Raises CacheUnreadable, UnsafePath, NotWritable and Busy; the journal is
    then kept for a later fold.
    """
    journal, kept = Journal(root, path), RecentFolds(root, path)
    journal.patience = patience
    unfolded = journal.read()
    if not unfolded.lines and unfolded.is_all_of(exchange.signature_of(path)):
        return
    safe.make_folder(root, path.parent)
    safe.check_file(root, path)
    with safe.locked(root, path, patience):
        unfolded = journal.read()
        if not path.exists():  # somebody cleared the cache on purpose
            kept.forget()
            if not unfolded.lines:
                return
        edit = _Edit(path, unfolded, kept, pinned)
        _make(path, {"system": system, "cache": {}})
        complete = not exchange.leftover_path(path).exists()
        if exchange.update(path, edit, merge_missing):
            after = edit.written()
            complete = complete and edit.calls == 1 and not edit.more
        else:
            after = exchange.signature_of(path)
            data = read_bytes(path)
            if edit(data) != data:
                return  # others wrote faster than we could; the next fold retries
            complete = not edit.more
        if not unfolded.lines:
            return
        if edit.unrestored:
            after = None  # the next reader compares the file with the kept timings
        kept.add(unfolded.lines)
        journal.rotate(unfolded, edit.before if complete else None, after)


class CacheRestorer:
    """Restores what stock PyTorch removed from the cache files, for processes that only watch. A
    file is compared once after each write by others, and again if that could not be done then."""

    def __init__(self, layout: Layout, pinned: Pinned) -> None:
        self._layout = layout
        self._pinned = pinned
        self._seen: dict[Path, exchange.Signature | None] = {}

    def recall(self) -> None:
        """Restore without waiting. Raises CacheUnreadable, UnsafePath, NotWritable, Busy."""
        errors: list[StoreError] = []
        for path in cache_paths(self._layout):
            signature = exchange.signature_of(path)
            if self._seen.get(path) == signature:
                continue
            try:
                self._restore(path, signature)
            except StoreError as error:
                errors.append(error)
                if isinstance(error, Busy) or isinstance(error.__cause__, OSError):
                    continue  # it may pass; a corrupt file stays as it is
            self._seen[path] = signature
        if errors:
            raise errors[0]

    def _restore(self, path: Path, signature: exchange.Signature | None) -> None:
        root = self._layout.root
        if Journal(root, path).read().is_all_of(signature):
            return
        lost = RecentFolds(root, path).lost
        if lost({}) and lost(cache_of(path, load_json(path, read_bytes(path)))):
            fold(root, path, {}, self._pinned, 0.0)


class _Edit:
    """The edit of a cache file, and its statistics."""

    def __init__(
        self, path: Path, unfolded: JournalRead, kept: RecentFolds, pinned: Pinned
    ) -> None:
        self._path = path
        self._unfolded = unfolded
        self._news = tuned_in(unfolded.lines)
        self._kept = kept
        self._pinned = pinned
        self.calls = 0
        self.more = False
        """Whether the file got more than the journal's timings: other numbers, or restored ones."""
        self.unrestored = False
        """Whether lost timings may be missing, since the kept ones could not be read."""
        self.before: exchange.Signature | None = None
        self._content = b""

    def __call__(self, data: bytes) -> bytes:
        self.calls += 1
        self.before = exchange.signature_of(self._path)
        document = load_json(self._path, data)
        cache = cache_of(self._path, document)
        pins = self._pinned(self._path)
        changed = False
        news = self._news
        if not self._unfolded.is_all_of(self.before):
            # An old copy of the file has the raised numbers of former pins.
            changed = lower(cache, recorded_pins(self._path) - pins.keys())
            lost: list[Tuned] = []
            try:
                lost = self._kept.lost(cache)
            except CacheUnreadable:
                self.unrestored = True
            self.more = self.more or changed or bool(lost)
            news = [*lost, *news]
        for tuned in news:
            winners = pins.get((tuned.op, tuned.inputs), frozenset())
            changed = self._put(cache, tuned, winners) or changed
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

    def _put(self, cache: dict[str, Any], tuned: Tuned, winners: frozenset[str]) -> bool:
        timings = cache
        for name in (tuned.op, tuned.inputs, tuned.precision):
            timings = timings.setdefault(name, {})
            if not isinstance(timings, dict):
                raise CacheUnreadable(
                    f"{self._path} is not an autotune cache; move the file away to start afresh"
                )
        # The rivals of a choice that has no time are not raised; see `pins.numbers.holding`.
        times = {**timings, **tuned.timings}
        own = (times.get(name) for name in winners)
        holds = any(isinstance(ms, (float, int)) and math.isfinite(ms) for ms in own)
        changed = False
        for name, ms in tuned.timings.items():
            new = raise_ms(ms) if holds and name not in winners else ms
            self.more = self.more or new != ms
            if name not in timings or not _same(timings[name], new):
                timings[name] = new
                changed = True
        return changed


def _same(first: object, second: float) -> bool:
    return first == second or (first != first and second != second)  # NaN is NaN


def _make(path: Path, document: Mapping[str, Any]) -> None:
    """Make the file if there is none. A file that another process makes meanwhile is kept."""
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


class RecentFolds:
    """The lines kept for one cache file. Changed by the holder of its lock; only `lost` raises."""

    def __init__(self, root: Path, cache_path: Path) -> None:
        self._root = root
        self._cache_path = cache_path
        self.path = root / "rocm_tui" / "tuned" / f"{cache_path.name}.kept.jsonl"

    def add(self, lines: bytes) -> None:
        """Keep whole lines, as far as the disk permits."""
        try:
            safe.check_file(self._root, self.path)
            size = append_lines(self.path, lines)
            if size > min(MOST_BYTES, max(LEAST_BYTES, 2 * self._cache_path.stat().st_size)):
                self._shorten()
        except (OSError, StoreError):
            return

    def lost(self, index: Index) -> list[Tuned]:
        """Return the kept timings that are missing from `index`, the cache file's content. Raises
        CacheUnreadable."""
        try:
            kept = tuned_in(read_bytes(self.path, 2 * MOST_BYTES))
        except CacheUnreadable as error:
            if error.is_absent:
                return []
            raise
        return [
            lack for tuned in _merged(kept) if (lack := missing_timings(index, tuned)) is not None
        ]

    def forget(self) -> None:
        """Drop everything kept until now."""
        safe.remove(self.path)

    def _shorten(self) -> None:
        """Keep one line per tuning, the newest."""
        tuned = _merged(tuned_in(read_bytes(self.path, 2 * MOST_BYTES)))
        lines: list[bytes] = []
        room = MOST_BYTES // 2
        for line in map(line_of, sorted(tuned, key=lambda part: part.when, reverse=True)):
            room -= len(line)
            if room < 0:
                break
            lines.append(line)
        safe.write_atomic(self.path, b"".join(reversed(lines)))


def _merged(kept: Iterable[Tuned]) -> list[Tuned]:
    """Merge to one item per tuning, of the last day; a choice has the time of its latest line."""
    since = time.time() - SECONDS
    by_key: dict[tuple[str, str, str], Tuned] = {}
    for tuned in kept:
        if tuned.when < since:
            continue
        key = tuned.op, tuned.inputs, tuned.precision
        before = by_key.pop(key, None)
        times = {**before.timings, **tuned.timings} if before else tuned.timings
        by_key[key] = Tuned(*key, times, tuned.when)
    return list(by_key.values())
