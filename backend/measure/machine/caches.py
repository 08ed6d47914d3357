"""The caches of the CPUs that a process may use, as Linux tells them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def cpu_caches(cpus: Iterable[int], root: Path = _CPUS) -> dict[int, int]:
    """Bytes of all data caches of each level that these CPUs have, one that several share once.

    The first level is left out: what fits there takes no time worth a roof. Empty where Linux does
    not tell.
    """
    seen: set[tuple[int, str]] = set()
    found: dict[int, int] = {}
    for cpu in cpus:
        for folder in sorted((root / f"cpu{cpu}" / "cache").glob("index*")):
            try:
                level = int(_text(folder / "level"))
                kind, size = _text(folder / "type"), _bytes(_text(folder / "size"))
                shared = _text(folder / "shared_cpu_list")
            except (OSError, ValueError):
                continue
            if level > 1 and kind != "Instruction" and (level, shared) not in seen:
                seen.add((level, shared))
                found[level] = found.get(level, 0) + size
    return dict(sorted(found.items()))


def _text(path: Path) -> str:
    return path.read_text().strip()


def _bytes(text: str) -> int:
    """`2048K`. Raises ValueError."""
    unit = _UNITS.get(text[-1:], 0)
    return int(text[:-1]) * unit if unit else int(text)
