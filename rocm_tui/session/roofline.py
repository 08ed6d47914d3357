"""Achieved throughput against what a device can do: the roofline of a set of tunings.

S. Williams, A. Waterman, D. Patterson: Roofline: an insightful visual performance model for
multicore architectures, Communications of the ACM 52(4), 2009. The roof over an arithmetic
intensity of I operations a byte is min(peak operations, I x peak bandwidth) a second. The bytes
are the compulsory ones: each operand is read once, the result is written once. A kernel that reads
anything twice moves more, and one whose operands lie in a cache may get above the roof.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from backend.model.ops import factors, flops, traffic
from backend.model.problem import Problem
from backend.model.session import Session, systems_of
from backend.model.tuning import Tuning
from rocm_tui.session import stats
from rocm_tui.session.devices import MathKind, NoPeak, Peak, find
from rocm_tui.session.model import Row

Bound = Literal["memory", "compute"]

_KINDS: Mapping[str, MathKind] = {
    "float64": "fp64", "float32": "fp32", "float16": "half", "bfloat16": "half",
    "int8": "int8", "uint8": "int8",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TunedDevice:
    """A device that tuned something. `host` counts for a CPU only: its name is `cpu` everywhere."""

    name: str
    arch: str | None = None
    units: int | None = None
    host: str = ""

    @property
    def label(self) -> str:
        return f"CPU of {self.host or 'an unknown host'}" if self.name == "cpu" else self.name


@dataclass(frozen=True, slots=True)
class Point:
    """The winner of one tuning: operations a byte, 10^12 operations a second, the roof above it.

    `roof` and `bound` are None where the device's peak for this kind of arithmetic is not known.
    """

    row: Row
    kind: MathKind
    intensity: float
    tflops: float
    roof: float | None = None
    bound: Bound | None = None

    @property
    def share(self) -> float | None:
        """Of the roof; above 1 where the operands come from a cache."""
        return self.tflops / self.roof if self.roof else None


@dataclass(frozen=True, slots=True)
class Roofline:
    """The tunings of one device. `left_out` tunings are of ops whose arithmetic is not known."""

    machine: TunedDevice
    peak: Peak | NoPeak
    points: tuple[Point, ...]
    left_out: int = 0


def attainable(peak: Peak, kind: MathKind, intensity: float) -> float | None:
    """The roof in 10^12 operations a second; None if the peak of that arithmetic is not known."""
    flat = peak.tflops.get(kind)
    return None if flat is None else min(flat, intensity * peak.gbs / 1e3)


def rooflines(
    rows: Sequence[Row],
    sessions: Mapping[str, Session],
    measured: Mapping[TunedDevice, Peak] | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[Roofline, ...]:
    """One for each device of which a tuning is done, the one with most points first.

    Of a problem tuned several times the newest counts; `rows` are newest first. `measured` are
    peaks measured on a machine, `headers` the device names that cache files tell, by path.
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
    lines = [
        Roofline(machine, peak, tuple(points.get(machine, ())), left_out.get(machine, 0))
        for machine, peak in peaks.items()
    ]
    return tuple(sorted(lines, key=lambda line: -len(line.points)))


def peak_of(machine: TunedDevice) -> Peak | NoPeak:
    """From the table of known devices; a CPU has to be measured."""
    if machine.name == "cpu":
        return NoPeak("the peak of a CPU is measured, not looked up")
    if not machine.name and not machine.arch:
        return NoPeak("no source tells which device these tunings are of")
    return find(machine.name, machine.arch, machine.units)


def machine_of(
    tuning: Tuning, sessions: Mapping[str, Session], headers: Mapping[str, str]
) -> TunedDevice:
    """Which device tuned it, as far as a session or the header of a cache file tells."""
    session = sessions.get(tuning.session or "")
    on_cpu = tuning.device == "cpu"
    systems = systems_of(tuning, sessions)
    known = [session] if session else [s for s in sessions.values() if s.system_hash in systems]
    devices = {_device(session, on_cpu) for session in known}
    if len(devices) == 1:
        return devices.pop()
    if on_cpu:
        return TunedDevice("cpu")
    named = {headers[source] for source in tuning.sources if source in headers}
    return TunedDevice(named.pop() if len(named) == 1 else "")


def _device(session: Session, on_cpu: bool) -> TunedDevice:
    """A GPU is the same everywhere, a CPU is one of its host."""
    if on_cpu:
        return TunedDevice("cpu", host=session.host)
    return TunedDevice(session.device or "", session.arch, session.compute_units)


def point_of(row: Row, peak: Peak | NoPeak) -> Point | None:
    """Where the winner of a tuning stands; None if its operations or bytes are not known."""
    tuning = row.tuning
    best = stats.winner(tuning)
    again = stats.measured(tuning, best)
    rate = stats.tflops(tuning, again.ms if again else best.ms if best else None)
    work, moved, kind = flops(tuning), traffic(tuning), math_kind(tuning)
    if not rate or not work or not moved or kind is None:
        return None
    intensity = work / moved
    if isinstance(peak, NoPeak):
        return Point(row, kind, intensity, rate)
    kind = kind if kind in peak.tflops or kind != "tf32" else "fp32"
    roof = attainable(peak, kind, intensity)
    bound: Bound | None = None
    if roof is not None:
        bound = "compute" if roof == peak.tflops[kind] else "memory"
    return Point(row, kind, intensity, rate, roof, bound)


def math_kind(problem: Problem) -> MathKind | None:
    """The arithmetic of a matrix product: that of its operands, if both have one type.

    float32 counts as TF32 where the precision of float32 products is `high` or `medium`.
    """
    operands = factors(problem)
    if operands is None or len(problem.dtypes) != len(problem.shapes):
        return None
    types = {problem.dtypes[at].removeprefix("torch.") for at in operands}
    if len(types) != 1:
        return None
    dtype = types.pop()
    if dtype.startswith("float8"):
        return "fp8"
    if dtype == "float32" and problem.precision in ("high", "medium") and problem.device != "cpu":
        return "tf32"
    return _KINDS.get(dtype)
