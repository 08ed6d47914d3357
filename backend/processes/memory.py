"""Memory limits of containers, and what is left of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60
"""Version 1 of cgroups has a number of about this size where there is no limit."""


def cgroup_limits() -> Iterator[int]:
    """Yield the bytes that our cgroup and those around it may use, of both versions of cgroups."""
    return (limit for limit, _ in _limited())


def cgroup_room() -> Iterator[int]:
    """Yield the bytes that are left of each limit."""
    for limit, current in _limited():
        used = 0  # if unknown
        with contextlib.suppress(OSError, ValueError):
            used = _used(current)
        yield max(0, limit - used)


def _used(current: Path) -> int:
    """Return the bytes in use, without pages of files, which make room for ours."""
    lines = (current.parent / "memory.stat").read_text().splitlines()
    numbers = {name: int(value) for name, value in map(str.split, lines)}
    prefix = "" if current.name == "memory.current" else "total_"  # with the cgroups inside
    pages = (numbers.get(f"{prefix}{kind}_file", 0) for kind in ("active", "inactive"))
    return int(current.read_text()) - sum(pages)


def _limited() -> Iterator[tuple[int, Path]]:
    """Yield each limit, and the file with the bytes in use."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root, name, current = _CGROUPS, "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            root, name = _CGROUPS / "memory", "memory.limit_in_bytes"
            current = "memory.usage_in_bytes"
        else:
            continue
        inner = Path(path.lstrip("/"))
        for folder in (inner, *inner.parents):
            with contextlib.suppress(OSError, ValueError):
                limit = int((root / folder / name).read_text())  # "max" is no number
                if 0 < limit < _NO_LIMIT:
                    yield limit, root / folder / current
