"""What a device tells of itself at one moment, and who asks it now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

EVERY = 0.02
"""Seconds between two readings, at least: drivers tell nothing new more often than that."""
COST = 0.02
"""Share of the time that readings may take; where one takes long, they are made less often."""


@dataclass(frozen=True, slots=True)
class State:
    """None is not known. `throttled` are the reasons why the device is, or since the last reading
    was, slower than it could be: `power cap`, `too hot`, ..."""

    clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """How much of a device is in use: busy percent, bytes of memory. None is not known."""

    busy: float | None = None
    memory_used: float | None = None
    memory_total: float | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """A device at one moment. `unread` says of what is not known why, in a few words."""

    usage: Usage
    state: State
    unread: tuple[str, ...] = ()


Sensor = Callable[[], State]
"""Reads the state of a device. May raise anything: then it is not asked again."""


class Watch:
    """Asks a sensor, but not too often: between two readings the last one holds."""

    def __init__(self, sensor: Sensor | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._sensor = sensor
        self._clock = clock
        self._due = 0.0
        self._last = State()

    def state(self) -> State:
        begin = self._clock()
        if self._sensor is None or begin < self._due:
            return self._last
        try:
            self._last = self._sensor()
        except Exception:  # a library or a driver of any kind; what is measured matters more
            self._sensor, self._last = None, State()
        end = self._clock()
        self._due = end + max(EVERY, (end - begin) / COST)
        return self._last


class Risen:
    """Counters that only rise while something slows the device down: which did, since last time."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}

    def of(self, counters: dict[str, int]) -> tuple[str, ...]:
        """The names of those that rose; none the first time."""
        risen = [name for name, count in counters.items() if count > self._before.get(name, count)]
        self._before = counters
        return tuple(risen)


def middle(values: Iterable[float | None]) -> float | None:
    """The median of those that are known."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def number(path: Path, scale: float = 1.0) -> float | None:
    """What a file of sysfs says, times `scale`; None where it says no number."""
    try:
        return int(path.read_bytes()[:64]) * scale
    except (OSError, ValueError):
        return None


def text(path: Path, most: int = 200) -> str:
    """What a file of sysfs or proc says at its beginning; empty where it cannot be read."""
    try:
        return path.read_bytes()[:most].decode("utf-8", "replace").strip()
    except OSError:
        return ""


def why_unread(path: Path) -> str:
    """Why a file of sysfs says no number."""
    try:
        said = path.read_bytes()[:64]
    except OSError as error:
        return f"{path.name}: {error.strerror}"
    return f"{path.name} says {said.decode('utf-8', 'replace').strip()[:20]!r}"
