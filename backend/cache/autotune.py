"""Inductor's persistent autotune cache: `cache/<system hash>`, one JSON file a system, read.

    {"system": {...}, "cache": {op: {inputs: {precision: {choice hash: milliseconds}}}}}

A failed choice is `Infinity`, which Python's json writes and strict parsers refuse. A number that a
pin raised out of reach is read as the time that was measured.

That is how a pin lets its choice win without breaking another program: Inductor takes the smallest
number among the choices that a program offers, and a program that is left with nothing but
`Infinity` fails to compile. So the rivals of a pinned choice keep their order: each number is
multiplied by 2^40. That is exact in binary floating point, so it can be undone from the number
alone, and no kernel takes the three hours from which on a number counts as raised.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.disk.layout import Layout
from backend.disk.safe import load_json, read_bytes
from backend.errors import CacheUnreadable, brief
from backend.model.problem import TuningKey
from backend.model.session import Fault

FACTOR = 2.0**40
LEAST = 1e7
"""Milliseconds. A kernel of 10 ns, raised, is above; no real time comes near."""
_HIGHEST = 2.0**1000
"""What stands for a number that has no order (NaN) or no place left above it."""

INFINITY = "Infinity"


@dataclass(frozen=True, slots=True)
class CacheFile:
    """One file. `system` is the text of its header as JSON gave it; times are milliseconds."""

    path: Path
    system_hash: str
    system: Mapping[str, Any]
    entries: Mapping[TuningKey, Mapping[str, float]]
    problems: tuple[Fault, ...] = ()


def read_cache(path: Path) -> CacheFile:
    """Read one cache file. Raises CacheUnreadable if it is missing, too big, or not one."""
    return parse_cache(path, read_bytes(path))


def parse_cache(path: Path, data: bytes) -> CacheFile:
    """What `data`, the content of `path`, says. Raises CacheUnreadable."""
    document = load_json(path, data)
    system = document.get("system")
    problems: list[Fault] = []
    entries = dict(_entries(cache_of(path, document), str(path), problems))
    system = system if isinstance(system, dict) else {}
    return CacheFile(path, path.name, system, entries, tuple(problems))


def read_caches(layout: Layout) -> tuple[list[CacheFile], list[Fault]]:
    """Every cache file below `layout`, sorted by name; one problem for each that cannot be used."""
    files: list[CacheFile] = []
    problems: list[Fault] = []
    for path in cache_paths(layout):
        try:
            file = read_cache(path)
        except CacheUnreadable as error:
            if path.exists():
                problems.append(Fault(str(path), str(error)))
            continue
        files.append(file)
        problems.extend(file.problems)
    return files, problems


def cache_paths(layout: Layout) -> list[Path]:
    """The cache files' paths; temporary and lock files begin with a dot and are left out."""
    try:
        names = sorted(entry.name for entry in os.scandir(layout.autotune) if entry.is_file())
    except OSError:
        return []
    return [layout.autotune / name for name in names if not name.startswith(".")]


def cache_of(path: Path, document: Mapping[str, Any]) -> dict[str, Any]:
    """The "cache" object of the parsed file `path`. Raises CacheUnreadable."""
    cache = document.get("cache")
    if not isinstance(cache, dict):
        raise CacheUnreadable(f'no "cache" object in {path}; move the file away to start afresh')
    return cache


def walk(
    cache: object, odd: Callable[[str], object] = bool
) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Op, inputs, precision and timings of each tuning in a "cache" object; `odd` is told the names
    of what holds no object."""
    for op, by_inputs in _objects(cache, odd):
        for inputs, by_precision in _objects(by_inputs, odd):
            for precision, timings in _objects(by_precision, odd):
                yield op, inputs, precision, timings


def _objects(node: object, odd: Callable[[str], object]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, value in node.items() if isinstance(node, dict) else ():
        if isinstance(value, dict):
            yield name, value
        else:
            odd(name)


def _entries(
    cache: Mapping[str, Any], source: str, problems: list[Fault]
) -> Iterator[tuple[TuningKey, dict[str, float]]]:
    def odd(name: str) -> None:
        problems.append(Fault(source, f"{brief(name, 80)} holds no object"))

    for op, inputs, precision, timings in walk(cache, odd):
        times = {k: _time(v) for k, v in timings.items() if _is_number(v)}
        if len(times) != len(timings):
            what = f"a time of {brief(op, 40)} at {brief(inputs, 80)} is not a number"
            problems.append(Fault(source, what))
        yield TuningKey(op, inputs, precision), times


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _time(value: float) -> float:
    try:
        return measured_ms(float(value))
    except OverflowError:
        return float("inf")


def is_raised(ms: object) -> bool:
    """Whether a number of a cache file was raised by a pin. A failed choice's infinity was not."""
    return isinstance(ms, (float, int)) and LEAST <= ms < math.inf


def raise_ms(ms: float) -> float:
    """The number that stands for `ms` while a rival is pinned; failed and raised ones stay."""
    if ms == math.inf or is_raised(ms):
        return ms
    if math.isnan(ms):
        return _HIGHEST
    return min(max(ms * FACTOR, LEAST), _HIGHEST)


def measured_ms(ms: float) -> float:
    """The measured milliseconds that a number of a cache file stands for."""
    return ms / FACTOR if is_raised(ms) else ms


def raised(text: str) -> str:
    """`raise_ms` of a number's text."""
    ms = float(text)
    high = raise_ms(ms)
    return text if high == ms else repr(high)


def measured(text: str) -> str:
    """The text that PyTorch wrote, of a number that was raised; any other as it is."""
    ms = float(text)
    return repr(ms / FACTOR) if is_raised(ms) else text
