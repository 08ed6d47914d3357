"""Achieved throughput against what a device can do: the roofline of a set of tunings.

S. Williams, A. Waterman, D. Patterson: Roofline: an insightful visual performance model for
multicore architectures, Communications of the ACM 52(4), 2009. The roof over an arithmetic
intensity of I operations a byte is min(peak operations, I x peak bandwidth) a second. The bytes
are the compulsory ones: each operand is read once, the result is written once. A kernel that reads
anything twice moves more.

One whose operands lie in a cache may get above the roof of the memory: then it is below that of
the slowest cache that holds them and is fast enough (A. Ilic, F. Pratas, L. Sousa: Cache-aware
Roofline model, IEEE Computer Architecture Letters 13(1), 2014). What is above that too cannot be:
its time is wrong or the peak is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from backend.model.choice import Choice
from backend.model.ops import flops, traffic
from backend.model.origin import device_kind
from backend.model.session import Session
from backend.model.tuning import Tuning
from backend.wire.jobs import CacheLevel
from rocm_tui.session import stats
from rocm_tui.session.devices import (
    MathKind,
    NoPeak,
    Peak,
    TunedDevice,
    attainable,
    holding,
    machine_of,
    math_kind,
    peak_of,
)
from rocm_tui.session.model import Row

Bound = Literal["memory", "cache", "compute"]
Wrong = Literal["time", "peak"]


@dataclass(frozen=True, slots=True)
class Point:
    """The winner of one tuning: operations a byte, 10^12 operations a second, the roof above it.

    `roof` and `bound` are None where the device's peak for this kind of arithmetic is not known.
    `cache` is the one whose roof it is. Above every roof, `wrong` says which number is the less to
    be believed: a time that was taken once, else the peak.
    """

    row: Row
    kind: MathKind
    intensity: float
    tflops: float
    roof: float | None = None
    bound: Bound | None = None
    cache: CacheLevel | None = None
    wrong: Wrong | None = None

    @property
    def share(self) -> float | None:
        """The share of the roof that was reached; above 1 only if a number is wrong."""
        return self.tflops / self.roof if self.roof else None


@dataclass(frozen=True, slots=True)
class Roofline:
    """The tunings of one device. `left_out` tunings are of ops whose arithmetic is not known."""

    machine: TunedDevice
    peak: Peak | NoPeak
    points: tuple[Point, ...]
    left_out: int = 0


def rooflines(
    rows: Sequence[Row],
    sessions: Mapping[str, Session],
    measured: Mapping[TunedDevice, Peak] | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[Roofline, ...]:
    """Return a roofline for each device with a finished tuning, most points first.

    Of a problem tuned several times the newest counts; `rows` are newest first. `measured` are
    peaks measured on a machine, `headers` the device names in cache files, by path.
    """
    points: dict[TunedDevice, list[Point]] = {}
    peaks: dict[TunedDevice, Peak | NoPeak] = {}
    left_out: dict[TunedDevice, int] = {}
    seen: set[tuple[TunedDevice, str]] = set()
    for row in rows:
        if row.tuning.state == "running" or stats.winner(row.tuning) is None:
            continue
        machine = machine_of(row.tuning, sessions, headers or {})
        if (machine, row.id) in seen:
            continue
        seen.add((machine, row.id))
        if machine not in peaks:
            peaks[machine] = (measured or {}).get(machine) or peak_of(machine)
        point = point_of(row, peaks[machine])
        if point is None:
            left_out[machine] = left_out.get(machine, 0) + 1
        else:
            points.setdefault(machine, []).append(point)
    roofs = [
        Roofline(machine, peak, tuple(points.get(machine, ())), left_out.get(machine, 0))
        for machine, peak in peaks.items()
    ]
    return tuple(sorted(roofs, key=lambda roof: -len(roof.points)))


def point_of(row: Row, peak: Peak | NoPeak) -> Point | None:
    """Return the point of the winner of a tuning; None if its operations or bytes are unknown."""
    tuning = row.tuning
    best = stats.winner(tuning)
    rate = stats.tflops(tuning, stats.time_ms(tuning, best))
    work, moved, kind = flops(tuning), traffic(tuning), math_kind(tuning)
    if not rate or not work or not moved or kind is None:
        return None
    intensity = work / moved
    if isinstance(peak, NoPeak):
        return Point(row, kind, intensity, rate)
    kind = kind if kind in peak.tflops or kind != "tf32" else "fp32"
    point = Point(row, kind, intensity, rate)
    flat, roof = peak.tflops.get(kind), attainable(peak, kind, intensity)
    if flat is None or roof is None:
        return point
    point = replace(point, roof=roof, bound="compute" if roof == flat else "memory")
    if rate <= roof * (1 + _SLACK):
        return point
    for cache in reversed(_holding(peak, tuning, best, moved)):
        higher = attainable(peak, kind, intensity, cache) or 0.0
        if higher > roof and rate <= higher * (1 + _SLACK):
            return replace(point, roof=higher, bound="cache", cache=cache)
    return replace(point, wrong="time" if stats.once(tuning, best) else "peak")


_SLACK = 0.02
"""A measured peak is what was reached in a few tries."""


def _holding(peak: Peak, tuning: Tuning, best: Choice | None, moved: int) -> tuple[CacheLevel, ...]:
    """The caches that all operands may have been in; none where they were measured cold."""
    once = stats.once(tuning, best)
    if not once and tuning.measured is not None and tuning.measured.caches == "cold":
        return ()
    return holding(peak, moved, flushed=once and device_kind(tuning) == "gpu")
