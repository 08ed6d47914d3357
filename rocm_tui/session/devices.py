"""Devices: what they can do at best, which one tuned something, and times that none can have had.

The table has the peaks that makers publish: dense figures, not those with structured sparsity,
10^12 operations a second by kind of arithmetic, matrix units where the device has them, and 10^9
bytes a second. A figure that is not published is left out. Where it was checked: rate a clock and
compute unit, times units, times clock.

Three kinds of single times are suspicious. A call on a busy CPU waits for its neighbour's time
slice, so that its time is a multiple of 4 ms, a tick of Linux's scheduler at its usual 250 Hz (8.0
and 16.0 ms in real logs, of kernels that took 0.8 ms when measured). A kernel cannot be faster than
its device computes, nor, if its operands come from memory, than that gives them; on a CPU the
operands of one call are in the caches after the call before, so that only the arithmetic counts.
And where the next choice or ATen takes 50 times as long, one of both times is wrong more often than
not: 578 times became 1.9 times when measured. A measurement settles it, also one in which the
choice could not be run. Limits: one time of a hundred is a multiple of 4 ms by chance, and a CPU
has no published peak.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal, get_args

from backend.model.choice import Choice
from backend.model.ops import factors, flops, traffic
from backend.model.origin import device_kind
from backend.model.problem import Problem
from backend.model.session import Session, systems_of
from backend.model.tuning import Tuning
from rocm_tui.session import numbers as fmt
from rocm_tui.session import stats

MathKind = Literal["fp64", "fp32", "tf32", "half", "fp8", "int8"]
"""Kinds of arithmetic: `tf32` is float32 operands on TF32 or XF32 units, `half` fp16 and bf16."""


@dataclass(frozen=True, slots=True)
class CacheLevel:
    """A cache: `gbs` is 10^9 bytes per second at best, None if it is not published."""

    name: str
    bytes: int
    gbs: float | None = None


@dataclass(frozen=True, slots=True)
class Peak:
    """What a device can do at best: `gbs` from memory, and from `caches`, the smallest first."""

    name: str
    tflops: Mapping[MathKind, float]
    gbs: float
    caches: tuple[CacheLevel, ...] = ()


@dataclass(frozen=True, slots=True)
class Device:
    """A row of the table.

    `units` are the compute units (or SMs) that PyTorch reports; a Radeon may report pairs of them.
    The dies of a module are devices of their own, each with its share of the module's figures.
    """

    name: str
    arch: str
    units: tuple[int, ...]
    peak: Peak


_TABLE = """
name                    arch     units dies    GB/s   fp64   fp32   tf32    half     fp8    int8
AMD Instinct MI210      gfx90a     104    1  1638.4   45.3   45.3      -   181.0       -   181.0
AMD Instinct MI250      gfx90a     104    2  3276.8   90.5   90.5      -   362.1       -   362.1
AMD Instinct MI250X     gfx90a     110    2  3276.8   95.7   95.7      -   383.0       -   383.0
AMD Instinct MI300A     gfx942     228    1  5300.0  122.6  122.6  490.3   980.6  1961.2  1961.2
AMD Instinct MI300X     gfx942     304    1  5300.0  163.4  163.4  653.7  1307.4  2614.9  2614.9
AMD Instinct MI325X     gfx942     304    1  6000.0  163.4  163.4  653.7  1307.4  2614.9  2614.9
AMD Instinct MI350X     gfx950     256    1  8000.0   72.1  144.2      -  2306.9  4613.7  4613.7
AMD Instinct MI355X     gfx950     256    1  8000.0   78.6  157.3      -  2516.6  5033.2  5033.2
AMD Radeon RX 7900 XTX  gfx1100     96    1   960.0      -   61.4      -   122.8       -   122.8
AMD Radeon RX 7900 XT   gfx1100     84    1   800.0      -   51.6      -   103.2       -   103.2
AMD Radeon RX 7900 GRE  gfx1100     80    1   576.0      -   46.0      -    92.0       -    92.0
AMD Radeon RX 9070 XT   gfx1201     64    1   640.0      -   48.7      -   195.0   389.0   389.0
AMD Radeon RX 9070      gfx1201     56    1   640.0      -   36.1      -   145.0   289.0   289.0
NVIDIA H100 80GB HBM3   sm_90      132    1  3350.0   66.9   66.9  494.7   989.4  1978.9  1978.9
NVIDIA H100 PCIe        sm_90      114    1  2000.0   51.2   51.2  378.0   756.5  1513.0  1513.0
NVIDIA H200             sm_90      132    1  4800.0   66.9   66.9  494.7   989.4  1978.9  1978.9
"""
"""From AMD's data sheets of the Instinct MI200, MI300 and MI350 series, its white papers on CDNA 2
to 4, and its product pages of Radeon cards, with the WMMA rates of RDNA 3 and 4 without sparsity;
from NVIDIA's data sheets, half of the figures with sparsity."""
_CACHES: Mapping[str, tuple[CacheLevel, ...]] = {
    "MI2": (CacheLevel("L2", 8 << 20, 6963.0),),
    "MI300A": (
        CacheLevel("L2", 4 << 20, 25804.0),
        CacheLevel("Infinity Cache", 256 << 20, 17200.0),
    ),
    "MI3": (CacheLevel("L2", 4 << 20, 34406.0), CacheLevel("Infinity Cache", 256 << 20, 17200.0)),
    "MI35": (CacheLevel("L2", 4 << 20), CacheLevel("Infinity Cache", 256 << 20)),
    "7900 XTX": (CacheLevel("Infinity Cache", 96 << 20, 3500.0),),
    "7900 XT": (CacheLevel("Infinity Cache", 80 << 20, 2900.0),),
    "7900 GRE": (CacheLevel("Infinity Cache", 64 << 20),),
    "9070": (CacheLevel("Infinity Cache", 64 << 20),),
    "H100": (CacheLevel("L2", 50 << 20),),
    "H200": (CacheLevel("L2", 50 << 20),),
}
"""By the longest of these that is in a device's name; of a module, those of one die.

CDNA 2 and 3 white papers: an L2 gives 128 bytes a clock and channel, of which a die has 32 (at 1.7
GHz) or 16 (at 2.1 GHz, 8 dies, of the MI300A 6; what fits in one die's 4 MB counts), the Infinity
Cache of the MI300 17.2 TB/s. AMD's product pages give the effective bandwidth of a Radeon's;
unpublished bandwidths are left out.
"""
_ALSO = {
    "amd instinct mi250x/mi250": ("AMD Instinct MI250X", "AMD Instinct MI250"),
    "amd instinct mi250x / mi250": ("AMD Instinct MI250X", "AMD Instinct MI250"),
}
"""Names under which drivers report one of several devices."""


@cache
def devices() -> tuple[Device, ...]:
    """Return all rows of the table, whose figures are those of a module or card: each of its dies
    is a device."""
    rows = []
    head, *lines = _TABLE.strip().splitlines()
    kinds: tuple[MathKind, ...] = get_args(MathKind)
    for line in lines:
        name, arch, units, dies, gbs, *figures = line.rsplit(maxsplit=len(head.split()) - 1)
        pairs = zip(kinds, figures, strict=True)
        tflops = {kind: float(cell) / int(dies) for kind, cell in pairs if cell != "-"}
        caches = _CACHES[max((part for part in _CACHES if part in name), key=len)]
        peak = Peak(name, tflops, float(gbs) / int(dies), caches)
        pairs_of_units = (int(units) // 2,) if "Radeon" in name else ()
        rows.append(Device(name, arch, (int(units), *pairs_of_units), peak))
    return tuple(rows)


def _called(name: str) -> list[Device]:
    wanted = name.lower().removesuffix(" oam").strip()
    several = _ALSO.get(wanted, ())
    return [
        device for device in devices() if device.name.lower() == wanted or device.name in several
    ]


_KINDS: Mapping[str, MathKind] = {
    "float64": "fp64", "float32": "fp32", "float16": "half", "bfloat16": "half",
    "int8": "int8", "uint8": "int8",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TunedDevice:
    """A device that tuned something, as its session names it."""

    name: str
    arch: str | None = None
    units: int | None = None


def fastest(peak: Peak, moved: int) -> float | None:
    """Return the best 10^9 bytes a second for this many bytes; None if a cache that holds them from
    one call to the next has an unknown bandwidth.

    Inductor's benchmarks flush the L2 before each call, but not a cache behind that.
    """
    rates = [peak.gbs]
    for level in peak.caches:
        if level.name != "L2" and moved <= level.bytes:
            if level.gbs is None:
                return None
            rates.append(level.gbs)
    return max(rates)


@lru_cache(maxsize=256)
def published(machine: TunedDevice) -> Peak | None:
    """Return the published peak of a device, found by the name that PyTorch reports.

    The unit count separates devices of one name. None if the device is unknown, a partition or a
    variant, or only known by its architecture, which other devices have too.
    """
    units = machine.units
    fits = [d for d in _called(machine.name) if units is None or units in d.units]
    return fits[0].peak if len(fits) == 1 else None


def device_of(machine: TunedDevice) -> str:
    """Its architecture, which is short and what kernels are made for, else its name.

    Of the features behind an AMD architecture (`gfx942:sramecc+:xnack-`) the unusual one is kept.
    """
    if not machine.arch or machine.name == "cpu":
        return machine.name
    arch, *features = machine.arch.split(":")
    return ":".join([arch, *(feature for feature in features if feature == "xnack+")])


def machine_of(tuning: Tuning, sessions: Mapping[str, Session]) -> TunedDevice:
    """Return the device that tuned it, as far as its session, or all those of its system, agree."""
    if tuning.device == "cpu":
        return TunedDevice("cpu")
    session = sessions.get(tuning.session or "")
    hashes = systems_of(tuning, sessions)
    matching = [session] if session else [s for s in sessions.values() if s.system_hash in hashes]
    machines = {TunedDevice(s.device or "", s.arch, s.compute_units) for s in matching}
    return machines.pop() if len(machines) == 1 else TunedDevice("")


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


SCHEDULER_TICK = 4.0
"""Milliseconds."""
OFF = 50.0
"""How many times as long as the fastest a rival takes that is not believed."""
ROOM = 1.1
"""How much faster than the published peak a time may be: clocks are boosted, sizes rounded."""


def suspicion(tuning: Tuning, peak: Peak | None = None) -> str | None:
    """Why the times that decide a tuning are not to be believed, in a sentence; else None.

    Those are the winner's, its nearest rival's and ATen's, as far as they were taken once. `peak`
    is what the device can do at best, where that is known.
    """
    timed = stats.ranked(tuning) if tuning.state != "running" else ()
    if not timed:
        return None
    best, slowest = timed[0].ms or 0.0, timed[-1].ms or 0.0
    on_cpu = slowest > SCHEDULER_TICK / 2 and device_kind(tuning) == "cpu"  # else none waited
    impossible = _too_fast(tuning, best, peak) if peak is not None or best <= 0 else None
    if impossible or on_cpu or slowest >= OFF * best:
        deciding = _deciding(tuning, timed)
        if impossible and not _is_measured(tuning, timed[0]):
            return impossible
        return (_ticks(tuning, deciding) if on_cpu else None) or _off(tuning, deciding)
    return None


def _deciding(tuning: Tuning, timed: Sequence[Choice]) -> list[Choice]:
    """The winner, its nearest rival, and ATen's best, each once."""
    choices = list(timed[:2])
    library = stats.aten(tuning)
    return choices if library is None or library in choices else [*choices, library]


def _is_measured(tuning: Tuning, choice: Choice) -> bool:
    if tuning.measured is None or choice.hash is None:
        return False
    failed = any(failure.hash == choice.hash for failure in tuning.measured.failed)
    return failed or tuning.measured.of(choice.hash) is not None


def _too_fast(tuning: Tuning, best: float, peak: Peak | None) -> str | None:
    if best <= 0:
        return "its time is not above 0"
    if peak is None:
        return None
    for least, what in (
        (_computing_ms(tuning, peak), "its arithmetic takes there at least"),
        (_moving_ms(tuning, peak), "memory takes to give its operands at least"),
    ):
        if least is not None and best * ROOM < least:
            return (
                f"{fmt.duration(best)} is beyond the roofline of {peak.name}: {what} "
                f"{fmt.duration(least)}"
            )
    return None


def _computing_ms(tuning: Tuning, peak: Peak) -> float | None:
    work, kind = flops(tuning), math_kind(tuning)
    if not work or kind is None:
        return None
    flat = peak.tflops.get(kind if kind in peak.tflops or kind != "tf32" else "fp32")
    return work / flat / 1e9 if flat else None


def _moving_ms(tuning: Tuning, peak: Peak) -> float | None:
    """None on a CPU, and if the bandwidth of a cache is unknown."""
    moved = traffic(tuning) if device_kind(tuning) == "gpu" else None
    gbs = fastest(peak, moved) if moved else None
    return moved / gbs / 1e6 if moved and gbs else None


def _ticks(tuning: Tuning, deciding: Sequence[Choice]) -> str | None:
    for choice in deciding:
        ms = choice.ms
        if ms is not None and is_wait(ms) and not _is_measured(tuning, choice):
            whose = "" if choice is deciding[0] else f" of {choice.label}"
            text = f"{fmt.duration(ms)}{whose} is a multiple of {SCHEDULER_TICK:.0f} ms"
            return f"{text}, as of a call that waits on a busy CPU"
    return None


def is_wait(ms: float) -> bool:
    """Whether a time is a multiple of the scheduler's tick."""
    if not SCHEDULER_TICK / 2 < ms < stats.LONGEST:
        return False
    return abs(ms - round(ms / SCHEDULER_TICK) * SCHEDULER_TICK) <= stats.NEAR_SLICE


def _off(tuning: Tuning, deciding: Sequence[Choice]) -> str | None:
    best, *rivals = deciding
    for rival in rivals:
        if not best.ms or best.ms < 0 or rival.ms is None or rival.ms < OFF * best.ms:
            continue
        if not (_is_measured(tuning, best) and _is_measured(tuning, rival)):
            by = fmt.factor(rival.ms / best.ms, fmt.rounding(rival.ms, best.ms))
            return f"{rival.label} took {by} as long, which is rare"
    return None
