"""What was folded within a day, so that it can be brought back: `<system hash>.kept.jsonl`.

Stock PyTorch replaces the cache file by a copy that it read minutes ago and added to. What was
folded in between is then gone from the file, and the process that had measured it may have ended.
Whoever of ours looks next at a file that somebody else wrote compares it with what is kept here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from backend.store import safe
from backend.store.autotune_cache import read_bytes
from backend.store.errors import CacheUnreadable, StoreError
from backend.store.tuned_journal import append_lines
from backend.store.tuned_line import Tuned, decode_all, encode
from backend.store.tuned_view import Index, missing

SECONDS = 86_400.0
"""A process that tunes for longer than this between two writes loses what others folded."""

MOST_BYTES = 64 << 20
LEAST_BYTES = 1 << 20
"""Below this, and below twice the cache file, lines that say the same are left as they are."""


class Kept:
    """The lines of one cache file. Changed by the holder of its lock; nothing is raised."""

    def __init__(self, root: Path, cache_path: Path) -> None:
        self._root = root
        self._cache_path = cache_path
        self.path = root / "rocm_tui" / "tuned" / f"{cache_path.name}.kept.jsonl"

    def add(self, lines: bytes) -> None:
        """Keep whole lines, as well as the disk permits."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            safe.check_file(self._root, self.path)
            descriptor = os.open(self.path, flags, 0o666)
            try:
                append_lines(descriptor, lines)
                size = os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)
            if size > min(MOST_BYTES, max(LEAST_BYTES, 2 * self._cache_path.stat().st_size)):
                self._shorten()
        except (OSError, StoreError):
            return

    def lost(self, index: Index) -> list[Tuned]:
        """What `index`, all that the cache file has, lacks of what is kept."""
        try:
            found = decode_all(read_bytes(self.path, 2 * MOST_BYTES))
        except CacheUnreadable:
            return []
        return [lack for tuned in _merged(found) if (lack := missing(index, tuned)) is not None]

    def forget(self) -> None:
        """Keep nothing more of what was folded until now."""
        safe.remove(self.path)

    def _shorten(self) -> None:
        """One line a tuning, of those the newest."""
        tuned = _merged(decode_all(read_bytes(self.path, 2 * MOST_BYTES)))
        lines: list[bytes] = []
        room = MOST_BYTES // 2
        for line in map(encode, sorted(tuned, key=lambda one: one.when, reverse=True)):
            room -= len(line)
            if room < 0:
                break
            lines.append(line)
        safe.write_atomic(self.path, b"".join(reversed(lines)))


def _merged(found: Iterable[Tuned]) -> list[Tuned]:
    """One a tuning, those of a day; of two times of one choice the later line's."""
    since = time.time() - SECONDS
    by_key: dict[tuple[str, str, str], Tuned] = {}
    for tuned in found:
        if tuned.when < since:
            continue
        key = tuned.op, tuned.inputs, tuned.precision
        before = by_key.pop(key, None)
        times = {**before.timings, **tuned.timings} if before else tuned.timings
        by_key[key] = Tuned(*key, times, tuned.when)
    return list(by_key.values())
