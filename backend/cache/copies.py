"""Private copies of a cache dir's autotune caches, for programs that shall not touch the person's.

The person's files are read only. What a trial tunes itself stays in its copy: tuned again at every
trial, noise might choose another kernel each time.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from backend.cache.autotune import cache_of, cache_paths, dump, is_raised, measured_ms, walk
from backend.disk import safe
from backend.disk.layout import Layout
from backend.errors import CacheUnreadable


def copy_unpinned(layout: Layout, private: Layout) -> int:
    """Let the caches of `private` say what those of `layout` say, but for pins: each number is the
    measured one. Tunings that only the copy has stay. The number of files.

    Raises UnsafePath, NotWritable and Busy; a file that is no cache is left out.
    """
    count = 0
    _make(layout, private)
    for path in cache_paths(layout):
        try:
            document = safe.load_json(path, safe.read_bytes(path))
            cache = cache_of(path, document)
        except CacheUnreadable:
            continue
        for _, _, _, timings in walk(cache):
            for hash, ms in timings.items():
                if is_raised(ms):
                    timings[hash] = measured_ms(ms)
        copy = private.autotune / path.name
        with safe.locked(private.root, copy):
            _keep_own(cache, copy)
            content = dump(document)
            if not _holds(copy, content):
                safe.write_atomic(copy, content)
        count += 1
    return count


def copy_pinned(layout: Layout, private: Layout) -> int:
    """Let `private` have the caches and the pins of `layout` as they are. The number of files.

    Raises UnsafePath, NotWritable, Busy and CacheUnreadable.
    """
    _make(layout, private)
    paths = cache_paths(layout)
    for path in (*paths, *([layout.pins] if layout.pins.exists() else [])):
        copy = private.root / path.relative_to(layout.root)
        safe.make_folder(private.root, copy.parent)
        with safe.locked(private.root, copy):
            safe.write_atomic(copy, safe.read_bytes(path))
    return len(paths)


def discard(layout: Layout, private: Layout) -> None:
    """Remove the copy `private`, a folder below `layout`, with all that was made in it."""
    safe.check_folder(layout.root, private.root)
    shutil.rmtree(private.root, ignore_errors=True)


def _make(layout: Layout, private: Layout) -> None:
    safe.make_folder(layout.root, private.root)
    safe.make_folder(private.root, private.autotune)


def _keep_own(cache: dict[str, Any], copy: Path) -> None:
    """Add the tunings that only the copy has."""
    try:
        own = cache_of(copy, safe.load_json(copy, safe.read_bytes(copy)))
    except CacheUnreadable:
        return
    for op, inputs, precision, timings in walk(own):
        by_precision = cache.setdefault(op, {}).setdefault(inputs, {})
        if isinstance(by_precision, dict):
            by_precision.setdefault(precision, timings)


def _holds(copy: Path, content: bytes) -> bool:
    try:
        return safe.read_bytes(copy) == content
    except CacheUnreadable:
        return False
