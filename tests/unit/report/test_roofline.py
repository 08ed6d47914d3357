"""Known devices, compulsory traffic, the roof above a tuning, and the plot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.model.choice import Choice, MeasuredChoice, Measurement
from backend.model.ops import traffic
from backend.model.session import Session
from backend.model.tuning import Tuning
from backend.wire.jobs import CacheLevel
from rocm_tui.render import pages
from rocm_tui.report.roofline import Roofline, point_of, rooflines
from rocm_tui.session.devices import (
    Device,
    MathKind,
    NoPeak,
    Peak,
    TunedDevice,
    attainable,
    device_of,
    devices,
    fastest,
    find_peak,
    machine_of,
    math_kind,
)
from rocm_tui.session.model import Row

PER_CLOCK: dict[str, tuple[float, dict[MathKind, int]]] = {
    "gfx90a": (1.7, {"fp64": 256, "fp32": 256, "half": 1024, "int8": 1024}),
    "gfx942": (
        2.1,
        {"fp64": 256, "fp32": 256, "tf32": 1024, "half": 2048, "fp8": 4096, "int8": 4096},
    ),
    "gfx950": (2.4, {"fp64": 128, "fp32": 256, "half": 4096, "fp8": 8192, "int8": 8192}),
    "gfx1100": (2.5, {"fp32": 256, "half": 512, "int8": 512}),
    "gfx1201": (2.97, {"fp32": 256, "half": 1024, "fp8": 2048, "int8": 2048}),
    "sm_90": (1.83, {"tf32": 2048, "half": 4096, "fp8": 8192, "int8": 8192}),
}
"""Highest clock in GHz and operations a clock and unit, as the makers' white papers have them."""


@pytest.mark.parametrize("device", devices(), ids=lambda device: device.name)
def test_published_peaks_are_what_units_and_clock_give(device: object) -> None:
    found = next(one for one in devices() if one is device)
    clock, rates = PER_CLOCK[found.arch]
    for kind, rate in rates.items():
        clocks = found.peak.tflops[kind] * 1e3 / (found.units[0] * rate)
        assert clock * 0.83 < clocks < clock * 1.02, (kind, clocks)
    assert found.peak.source


@pytest.mark.parametrize(
    ("name", "arch", "expected"),
    [
        ("AMD Instinct MI300X", "gfx942:sramecc+:xnack-", "gfx942"),
        ("AMD Instinct MI300X", "gfx942:sramecc+:xnack+", "gfx942:xnack+"),
        ("NVIDIA H200", "sm_90", "sm_90"),
        ("AMD Instinct MI300X", None, "AMD Instinct MI300X"),
        ("cpu", "znver4", "cpu"),
    ],
)
def test_a_device_is_named_by_its_architecture(name: str, arch: str | None, expected: str) -> None:
    assert device_of(TunedDevice(name, arch)) == expected


@pytest.mark.parametrize(
    ("name", "arch", "units", "expected"),
    [
        ("AMD Instinct MI300X", "gfx942:sramecc+:xnack-", 304, "AMD Instinct MI300X"),
        ("AMD Instinct MI300X OAM", "gfx942", None, "AMD Instinct MI300X"),
        ("AMD Instinct MI250X/MI250", "gfx90a", 104, "AMD Instinct MI250 (one die)"),
        ("AMD Radeon RX 7900 XTX", "gfx1100", 48, "AMD Radeon RX 7900 XTX"),
        ("NVIDIA H200", "sm_90", 132, "NVIDIA H200"),
    ],
)
def test_a_device_is_known_by_its_name(
    name: str, arch: str, units: int | None, expected: str
) -> None:
    found = find_peak(name, arch, units)
    assert isinstance(found, Peak) and found.name == expected


@pytest.mark.parametrize(
    ("name", "arch", "units", "says"),
    [
        ("gfx942:sramecc+:xnack-", None, None, "may be AMD Instinct MI300A or AMD Instinct MI300X"),
        (None, "gfx1100", 96, "may be AMD Radeon RX 7900 XTX or"),
        ("AMD Instinct MI300X", "gfx942", 38, "38 compute units, not 304: a partition"),
        ("AMD Instinct MI250X/MI250", "gfx90a", None, "MI250 or AMD Instinct MI250X"),
        ("NVIDIA H200 NVL", "sm_90", 132, "no data sheet of NVIDIA H200 NVL"),
        ("AMD Radeon Graphics", "gfx1100", 48, "no data sheet of AMD Radeon Graphics"),
    ],
)
def test_no_peak_is_guessed(
    name: str | None, arch: str | None, units: int | None, says: str
) -> None:
    found = find_peak(name, arch, units)
    assert isinstance(found, NoPeak) and says in found.reason


def gemm(op: str, *shapes: tuple[int, ...], dtype: str = "torch.bfloat16", ms: float = 0.5) -> Row:
    choices = (Choice(hash="a-1", ms=ms), Choice(hash="mm-2", ms=ms * 2))
    strides = tuple((shape[-1], 1) if len(shape) == 2 else (1,) * len(shape) for shape in shapes)
    tuning = Tuning(op, shapes, strides, (dtype,) * len(shapes), "cuda", "highest", "key", choices)
    return Row(f"{op}{shapes}", f"{abs(hash((op, shapes))):x}"[:7], 1, tuning)


MM = gemm("mm", (4096, 4096), (4096, 4096))


def test_traffic_is_each_operand_and_the_result_once() -> None:
    assert traffic(MM.tuning) == 3 * 4096 * 4096 * 2
    bias = gemm("addmm", (64, 32), (64, 16), (16, 32), dtype="torch.float32").tuning
    every = (64 * 32 + 64 * 16 + 16 * 32 + 64 * 32) * 4
    assert traffic(bias) == every
    row_of_bias = replace(bias, strides=((0, 1), *bias.strides[1:]))
    assert traffic(row_of_bias) == every - 63 * 32 * 4
    small = gemm("_int_mm", (32, 64), (64, 16), dtype="torch.int8").tuning
    assert traffic(small) == 32 * 64 + 64 * 16 + 32 * 16 * 4
    packed = gemm("packed_linear", (32, 64), (9999, 1), (16, 64), dtype="torch.float32").tuning
    assert traffic(packed) == (32 * 64 + 64 * 16 + 32 * 16) * 4
    assert traffic(gemm("convolution", (1, 3, 8, 8), (4, 3, 3, 3)).tuning) is None
    assert traffic(replace(MM.tuning, dtypes=("torch.complex64",) * 2)) is None


def test_the_kind_of_arithmetic_is_that_of_the_factors() -> None:
    assert math_kind(MM.tuning) == "half"
    single = gemm("mm", (8, 8), (8, 8), dtype="torch.float32").tuning
    assert math_kind(single) == "fp32"
    assert math_kind(replace(single, precision="high")) == "tf32"
    assert math_kind(replace(single, precision="high", device="cpu")) == "fp32"
    scaled = Tuning(
        "_scaled_mm",
        ((8, 8), (8, 8), (), ()),
        dtypes=("torch.float8_e4m3fnuz",) * 2 + ("torch.float32",) * 2,
    )
    assert math_kind(scaled) == "fp8"
    assert math_kind(replace(MM.tuning, dtypes=("torch.int8", "torch.bfloat16"))) is None


def test_the_roof_is_bandwidth_below_the_ridge_and_arithmetic_above() -> None:
    peak = Peak("x", {"half": 1000.0}, 5000.0, "here")
    assert attainable(peak, "half", 100.0) == 500.0
    assert attainable(peak, "half", 200.0) == 1000.0
    assert attainable(peak, "half", 1e6) == 1000.0
    assert attainable(peak, "fp8", 1.0) is None


MI300X = Session("s", device="AMD Instinct MI300X", arch="gfx942", compute_units=304)


def test_a_tuning_stands_below_the_roof_of_its_device() -> None:
    thin = gemm("mm", (16, 4096), (4096, 4096), ms=0.02)
    rows = [
        replace(row, tuning=replace(row.tuning, session="s"))
        for row in (MM, thin, gemm("convolution", (1, 3, 8, 8), (4, 3, 3, 3)))
    ]
    (found,) = rooflines([*rows, replace(rows[0], key="older")], {"s": MI300X})
    assert isinstance(found.peak, Peak) and found.left_out == 1
    square, flat = found.points
    work = 2 * 4096**3
    assert square.intensity == pytest.approx(work / (3 * 4096**2 * 2))
    assert square.tflops == pytest.approx(work / 0.5e-3 / 1e12)
    assert square.bound == "compute" and square.roof == 1307.4
    assert flat.bound == "memory" and flat.roof == pytest.approx(flat.intensity * 5.3)
    assert square.share == pytest.approx(square.tflops / 1307.4)


def test_a_measured_median_counts_more_than_the_single_number() -> None:
    again = MeasuredChoice("a-1", 1.0, 0.99, 1.01, 0.01, 30, 1.0, 1.0, 1.0, "faster")
    measured = Measurement("mm", "key", "highest", 1.0, (again,))
    row = replace(MM, tuning=replace(MM.tuning, measured=measured, session="s"))
    (found,) = rooflines([row], {"s": MI300X})
    assert found.points[0].tflops == pytest.approx(2 * 4096**3 / 1e-3 / 1e12)


def test_a_device_is_told_by_a_session_of_the_same_cache_or_by_its_header() -> None:
    tuning = replace(MM.tuning, sources=("/c/cache/aa",))
    same = replace(MI300X, system_hash="aa")
    assert machine_of(tuning, {"s": same}, {}).name == "AMD Instinct MI300X"
    other = replace(same, id="t", device="AMD Instinct MI325X")
    assert machine_of(tuning, {"s": same, "t": other}, {}) == TunedDevice("")
    header = {"/c/cache/aa": "gfx942:sramecc+:xnack-"}
    (found,) = rooflines([replace(MM, tuning=tuning)], {}, headers=header)
    assert isinstance(found.peak, NoPeak) and "may be" in found.peak.reason
    assert found.points[0].roof is None and found.points[0].share is None


def test_a_measured_cpu_counts_for_its_own_host_only() -> None:
    rows = [
        replace(MM, key=host, id=host, tuning=replace(MM.tuning, device="cpu", session=host))
        for host in ("here", "there")
    ]
    sessions = {host: Session(host, host=host, device="cpu") for host in ("here", "there")}
    measured = {TunedDevice("cpu", host="here"): Peak("cpu", {"half": 1.0}, 20.0, "measured")}
    found = {one.machine.host: one for one in rooflines(rows, sessions, measured)}
    assert isinstance(found["here"].peak, Peak) and found["here"].points[0].roof is not None
    assert isinstance(found["there"].peak, NoPeak) and found["there"].points[0].roof is None


L2, L3 = CacheLevel("L2", 1 << 20, 4000.0), CacheLevel("L3", 64 << 20, 400.0)
PEAK = Peak("x", {"fp32": 100.0}, 40.0, "here", (L2, L3))


def thin(share: float, mib: int = 4, *, cold: bool = False, once: bool = False) -> Row:
    """A product with a vector, of so many MiB, at this share of the memory's roof."""
    row = gemm("mm", (mib << 8, 1024), (1024, 1), dtype="torch.float32")
    moved = traffic(row.tuning)
    assert moved
    ms = moved / (PEAK.gbs * share) / 1e6
    choices = (Choice(hash="a-1", ms=ms), Choice(hash="mm-2", ms=ms * 2))
    found = Measurement(
        "mm",
        "key",
        "highest",
        0.0,
        tuple(
            MeasuredChoice(str(c.hash), t, t, t, 0.0, 9, t / ms, t / ms, t / ms, "slower")
            for c in choices
            for t in [c.ms or 0.0]
        ),
        caches="cold" if cold else "hot",
    )
    measured = None if once else found
    return replace(row, tuning=replace(row.tuning, choices=choices, measured=measured))


@pytest.mark.parametrize(
    ("row", "bound", "cache", "wrong"),
    [
        (thin(0.5), "memory", None, None),
        (thin(1.01), "memory", None, None),
        (thin(1.8), "cache", L3, None),
        (thin(30.0, 1 << 5), "memory", None, "peak"),
        (thin(30.0), "memory", None, "peak"),
        (thin(30.0, once=True), "memory", None, "time"),
        (thin(1.8, 100), "memory", None, "peak"),
        (thin(1.8, 100, once=True), "memory", None, "time"),
        (thin(1.8, cold=True), "memory", None, "peak"),
    ],
)
def test_above_the_memorys_roof_a_cache_gives_it_or_a_number_is_wrong(
    row: Row, bound: str, cache: CacheLevel | None, wrong: str | None
) -> None:
    point = point_of(row, PEAK)
    assert point is not None and point.share is not None
    assert (point.bound, point.cache, point.wrong) == (bound, cache, wrong)
    assert (point.share > 1.02) == (wrong is not None)


def test_the_slowest_cache_that_suffices_gives_the_roof_of_what_fits_in_several() -> None:
    small = gemm("mm", (128, 1024), (1024, 1), dtype="torch.float32")
    moved = traffic(small.tuning)
    assert moved and moved < L2.bytes
    for share, cache in ((5.0, L3), (50.0, L2)):
        ms = moved / (PEAK.gbs * share) / 1e6
        tuning = replace(small.tuning, device="cpu", choices=(Choice(hash="a-1", ms=ms),))
        point = point_of(replace(small, tuning=tuning), PEAK)
        assert point and point.cache == cache and not point.wrong
        assert point.roof == attainable(PEAK, "fp32", point.intensity, cache)
    on_gpu = point_of(replace(small, tuning=replace(tuning, device="cuda")), PEAK)
    assert on_gpu and on_gpu.wrong == "time", "Inductor flushes the L2 before each call"


def test_a_cache_whose_bandwidth_nobody_knows_has_no_slope() -> None:
    peak = replace(PEAK, caches=(CacheLevel("L2", 64 << 20),))
    point = point_of(thin(3.0), peak)
    assert point and point.bound == "cache" and point.roof == 100.0
    behind = replace(PEAK, caches=(CacheLevel("Infinity Cache", 64 << 20),))
    assert fastest(behind, 1 << 20) is None and fastest(peak, 1 << 20) == PEAK.gbs
    assert fastest(PEAK, 2 << 20) == 400.0 and fastest(PEAK, 1 << 30) == 40.0


@pytest.mark.parametrize("device", devices(), ids=lambda device: device.name)
def test_caches_are_faster_the_smaller_and_than_the_memory(device: Device) -> None:
    caches = device.peak.caches
    assert caches and [one.bytes for one in caches] == sorted(one.bytes for one in caches)
    rates = [one.gbs for one in caches if one.gbs] + [device.peak.gbs]
    assert rates == sorted(rates, reverse=True)


def test_the_words_say_which_number_is_wrong() -> None:
    def said(row: Row, peak: Peak) -> str:
        (point,) = [one for one in [point_of(row, peak)] if one]
        roof = Roofline(TunedDevice("x"), peak, (point,))
        page = pages.roofline_page([(roof, point)])
        return page.cells[0]["bound"][0]

    assert said(thin(1.8), PEAK) == "in L3"
    assert said(thin(30.0, once=True), PEAK) == "time wrong (once)"
    assert said(thin(30.0), PEAK) == "peak wrong (published)"
    assert said(thin(30.0), replace(PEAK, measured=True)) == "peak wrong (measured)"
