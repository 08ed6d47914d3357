"""Memory limits of containers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60
"""Version 1 of cgroups has a number of about this size where there is no limit."""


def cgroup_limits() -> Iterator[int]:
    """Yield the bytes that our cgroup and those around it may use, of both versions of cgroups."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root, name = _CGROUPS, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = _CGROUPS / "memory", "memory.limit_in_bytes"
        else:
            continue
        inner = Path(path.lstrip("/"))
        for folder in (inner, *inner.parents):
            with contextlib.suppress(OSError, ValueError):
                limit = int((root / folder / name).read_text())  # "max" is no number
                if 0 < limit < _NO_LIMIT:
                    yield limit
