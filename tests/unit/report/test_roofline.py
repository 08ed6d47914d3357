"""Known devices, compulsory traffic, the roof above a tuning, and the plot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.model.choice import Choice, MeasuredChoice, Measurement
from backend.model.ops import traffic
from backend.model.session import Session
from backend.model.tuning import Tuning
from rocm_tui.report.roofline import rooflines
from rocm_tui.session.model import Row
from rocm_tui.session.peaks import (
    DEVICES,
    MathKind,
    NoPeak,
    Peak,
    TunedDevice,
    attainable,
    find_peak,
    machine_of,
    math_kind,
)

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


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_published_peaks_are_what_units_and_clock_give(device: object) -> None:
    found = next(one for one in DEVICES if one is device)
    clock, rates = PER_CLOCK[found.arch]
    for kind, rate in rates.items():
        clocks = found.peak.tflops[kind] * 1e3 / (found.units[0] * rate)
        assert clock * 0.83 < clocks < clock * 1.02, (kind, clocks)
    assert found.peak.source


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
