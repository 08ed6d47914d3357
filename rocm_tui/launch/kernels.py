"""What `@triton.autotune` timed during a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from backend.cache import configs
from backend.model.inductor_kernel import is_digest

_TICK = 0.1
"""Seconds by which the clock of a file system may be behind."""


def timed_since(root: Path, env: Mapping[str, str], since: float) -> int:
    """How many tunings programs of this environment, with the cache dir `root`, kept since then."""
    return sum(_kept_in(folder, since - _TICK) for folder in configs.folders_of(root, env))


def _kept_in(folder: Path, since: float) -> int:
    count = 0
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if is_digest(entry.name) and entry.stat(follow_symlinks=False).st_mtime >= since:
                count += any(map(configs.is_file, Path(entry.path).iterdir()))
    return count
