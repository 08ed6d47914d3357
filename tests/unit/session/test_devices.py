"""What a device can do at best, which one tuned something, and times that none can have had."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from backend.model.choice import Choice, MeasuredChoice, Measurement
from backend.model.session import Session
from backend.model.tuning import Tuning
from rocm_tui.session.devices import (
    CacheLevel,
    Device,
    MathKind,
    Peak,
    TunedDevice,
    device_of,
    devices,
    fastest,
    is_wait,
    machine_of,
    math_kind,
    published,
    suspicion,
)

L2, INFINITY = CacheLevel("L2", 1 << 20, 4000.0), CacheLevel("Infinity Cache", 4 << 20, 400.0)
PEAK = Peak("MI300X", {"fp32": 100.0}, 40.0, (L2, INFINITY))
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
def test_published_peaks_are_what_units_and_clock_give(device: Device) -> None:
    clock, rates = PER_CLOCK[device.arch]
    for kind, rate in rates.items():
        clocks = device.peak.tflops[kind] * 1e3 / (device.units[0] * rate)
        assert clock * 0.83 < clocks < clock * 1.02, (kind, clocks)


INSTINCT = [device for device in devices() if "Instinct" in device.name]


@pytest.mark.parametrize("device", INSTINCT, ids=lambda device: device.name)
def test_memory_is_as_fast_as_its_bus_and_data_rate_give(device: Device) -> None:
    """One die of an MI250 or MI250X has four stacks of HBM2E, half of the module's memory."""
    width, low, high = {
        "gfx90a": (4096, 3.2, 3.2),
        "gfx942": (8192, 5.1, 6.0),
        "gfx950": (8192, 7.8, 8.0),
    }[device.arch]
    assert low <= device.peak.gbs * 8 / width <= high


@pytest.mark.parametrize("device", devices(), ids=lambda device: device.name)
def test_caches_are_faster_the_smaller_and_than_the_memory(device: Device) -> None:
    caches = device.peak.caches
    assert caches and [level.bytes for level in caches] == sorted(level.bytes for level in caches)
    rates = [level.gbs for level in caches if level.gbs] + [device.peak.gbs]
    assert rates == sorted(rates, reverse=True)


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
    ("device", "name"),
    [
        (TunedDevice("AMD Instinct MI300X", "gfx942:xnack-", 304), "AMD Instinct MI300X"),
        (TunedDevice("AMD Instinct MI300X OAM", "gfx942"), "AMD Instinct MI300X"),
        (TunedDevice("AMD Instinct MI250X/MI250", "gfx90a", 104), "AMD Instinct MI250"),
        (TunedDevice("AMD Radeon RX 7900 XTX", "gfx1100", 48), "AMD Radeon RX 7900 XTX"),
        (TunedDevice("NVIDIA H200", "sm_90", 132), "NVIDIA H200"),
    ],
)
def test_a_device_is_known_by_its_name(device: TunedDevice, name: str) -> None:
    peak = published(device)
    assert peak is not None and peak.name == name


@pytest.mark.parametrize(
    "device",
    [
        TunedDevice("cpu", "znver4"),
        TunedDevice(""),
        TunedDevice("", "gfx1030"),
        TunedDevice("", "gfx942:xnack-"),
        TunedDevice("", "gfx1100", 96),
        TunedDevice("gfx942:xnack-", "gfx942"),
        TunedDevice("AMD Instinct MI300X", "gfx942", 38),
        TunedDevice("AMD Instinct MI250X/MI250", "gfx90a"),
        TunedDevice("NVIDIA H200 NVL", "sm_90", 132),
        TunedDevice("AMD Radeon Graphics", "gfx1100", 48),
    ],
)
def test_no_peak_is_guessed(device: TunedDevice) -> None:
    assert published(device) is None


@pytest.mark.parametrize(
    ("moved", "caches", "gbs"),
    [
        (1 << 20, (L2, INFINITY), 400.0),
        (1 << 20, (L2,), 40.0),
        (4 << 20, (INFINITY,), 400.0),
        ((4 << 20) + 1, (INFINITY,), 40.0),
        (1 << 20, (CacheLevel("L2", 4 << 20),), 40.0),
        (1 << 20, (CacheLevel("Infinity Cache", 4 << 20),), None),
    ],
)
def test_the_bandwidth_of_the_caches_that_a_benchmark_does_not_flush(
    moved: int, caches: tuple[CacheLevel, ...], gbs: float | None
) -> None:
    assert fastest(replace(PEAK, caches=caches), moved) == gbs


MM = Tuning("mm", ((512, 512), (512, 512)), dtypes=("torch.float32",) * 2, device="cuda")


@pytest.mark.parametrize(
    ("dtypes", "precision", "device", "kind"),
    [
        ("float32 float32", "medium", "cuda", "tf32"),
        ("float32 float32", "highest", "cuda", "fp32"),
        ("float32 float32", "high", "cpu", "fp32"),
        ("bfloat16 bfloat16", "high", "cuda", "half"),
        ("float8_e5m2 float8_e5m2", None, "cuda", "fp8"),
        ("complex64 complex64", None, "cuda", None),
        ("float32", None, "cuda", None),
    ],
)
def test_the_arithmetic_of_a_product(
    dtypes: str, precision: str | None, device: str, kind: str | None
) -> None:
    names = tuple(f"torch.{name}" for name in dtypes.split())
    assert math_kind(replace(MM, dtypes=names, precision=precision, device=device)) == kind
    assert math_kind(replace(MM, op="pointwise")) is None


def test_the_device_that_a_session_names() -> None:
    gpu = Session("s", device="MI300X", arch="gfx942", compute_units=304, system_hash="aa")
    sessions = {"s": gpu, "t": replace(gpu, id="t", device="MI325X", system_hash="bb")}
    own = replace(MM, session="s")
    assert machine_of(own, sessions) == TunedDevice("MI300X", "gfx942", 304)
    assert machine_of(replace(own, device="cpu"), sessions) == TunedDevice("cpu")
    assert machine_of(replace(own, session="u"), sessions) == TunedDevice("")
    cached = replace(MM, sources=("/c/cache/aa",))
    assert machine_of(cached, sessions) == TunedDevice("MI300X", "gfx942", 304)
    both = {"s": gpu, "t": replace(sessions["t"], system_hash="aa")}
    assert machine_of(cached, both) == TunedDevice("")


@pytest.mark.parametrize(
    ("ms", "waits"),
    [
        (4.0, True), (8.02, True), (7.98, True), (8.03, False), (6.0, False), (0.0, False),
        (2.0, False), (9996.0, True), (10_000.0, False), (inf, False),
    ],
)  # fmt: skip
def test_a_multiple_of_the_schedulers_tick(ms: float, waits: bool) -> None:
    assert is_wait(ms) is waits


def timed(device: str, *times: float | None, **more: float) -> Tuning:
    """ATen's time is the last one of `more`, which names choices."""
    names = [f"{'cpp' if device == 'cpu' else 'triton'}_mm_{n}" for n, _ in enumerate(times)]
    choices = [Choice(name, name, ms) for name, ms in zip(names, times, strict=True)]
    choices += [Choice(name, f"{name}-c", ms) for name, ms in more.items()]
    return replace(MM, device=device, choices=tuple(choices))


@pytest.mark.parametrize(
    ("tuning", "words"),
    [
        (timed("cuda", 1.0, 49.9), None),
        (timed("cuda", 1.0, 50.0), "triton_mm_1 took 50"),
        (timed("cuda", 1.0, 2.0, 60.0), None),  # which no decision is about
        (timed("cuda", 1.0, 2.0, mm=60.0), "mm took 60"),
        (timed("cuda", 0.0, 1.0), "not above 0"),
        (timed("cuda", -1.0), "not above 0"),
        (timed("cuda", 8.0, 9.0), None),
        (timed("cpu", 8.0, 9.1), "8.000 ms is a multiple of 4 ms"),
        (timed("cpu", 7.1, 8.0), "8.000 ms of cpp_mm_1 is a multiple of 4 ms"),
        (timed("cpu", 7.1, 7.2, 8.0), None),
        (timed("cpu", 7.1, 7.2, mm=8.0), "8.000 ms of mm is"),
        (timed("cpu", 1.0, 2.0), None),
        (timed("cpu", 0.1, 7.1), "cpp_mm_1 took 71"),
        (timed("cuda"), None),
    ],
)
def test_times_that_are_not_believed(tuning: Tuning, words: str | None) -> None:
    found = suspicion(tuning)
    assert found is None if words is None else found is not None and words in found


def with_measured(tuning: Tuning, *hashes: str, failed: str = "") -> Tuning:
    choices = tuple(
        MeasuredChoice(hash, 1.0, 1.0, 1.0, 0.0, 9, 1.0, 1.0, 1.0, "tied") for hash in hashes
    )
    gone = (Choice(hash=failed, failed=True),) if failed else ()
    return replace(tuning, measured=Measurement("mm", "", "", 1.0, choices, failed=gone))


def test_a_measurement_settles_it() -> None:
    far = timed("cuda", 1.0, 50.0)
    first, second = "triton_mm_0", "triton_mm_1"
    assert suspicion(with_measured(far, first)) and suspicion(with_measured(far, second))
    assert suspicion(with_measured(far, first, second)) is None
    assert suspicion(with_measured(far, first, failed=second)) is None
    unhashed = replace(far, choices=(replace(far.choices[0], hash=None), far.choices[1]))
    assert suspicion(with_measured(unhashed, first, second))
    zero = timed("cuda", 0.0, 1.0)
    assert "not above 0" in (suspicion(with_measured(zero, second)) or "")
    assert suspicion(with_measured(zero, first)) is None
    waits = timed("cpu", 8.0, 9.1)
    assert suspicion(with_measured(waits, "cpp_mm_0")) is None


WORK = 2 * 512**3 / 100.0 / 1e9
"""Milliseconds that the arithmetic takes at best."""
MOVED = 3 * 512 * 512 * 4 / 40.0 / 1e6
"""Milliseconds that memory takes to give the operands and to take the result."""


@pytest.mark.parametrize(
    ("ms", "peak", "words"),
    [
        (WORK / 1.11, replace(PEAK, gbs=1e9), "its arithmetic takes"),
        (WORK / 1.09, replace(PEAK, gbs=1e9), None),
        (MOVED / 1.11, replace(PEAK, caches=()), "memory takes"),
        (MOVED / 1.09, replace(PEAK, caches=()), None),
        (MOVED / 1.11, PEAK, None),  # from the cache behind the one that is flushed
        (MOVED / 12.0, PEAK, "memory takes"),
        (MOVED / 1.11, replace(PEAK, caches=(replace(INFINITY, gbs=None),)), None),
    ],
)
def test_times_beyond_the_roofline(ms: float, peak: Peak, words: str | None) -> None:
    tuning = timed("cuda", ms, mm=ms * 1.01)
    found = suspicion(tuning, peak)
    if words is None:
        assert found is None
    else:
        assert found is not None and words in found and "of MI300X:" in found
        assert suspicion(with_measured(tuning, "triton_mm_0"), peak) is None
    assert suspicion(replace(tuning, state="running"), peak) is None


def test_reduced_precision_has_the_peak_of_float32_where_it_has_none_of_its_own() -> None:
    single = replace(timed("cuda", WORK / 1.11), precision="high")
    peak = replace(PEAK, gbs=1e9)
    assert suspicion(single, peak)
    assert suspicion(single, replace(peak, tflops={"fp32": 100.0, "tf32": 400.0})) is None
    assert suspicion(single, replace(peak, tflops={})) is None
    assert suspicion(replace(single, op="pointwise"), peak) is None
    assert suspicion(replace(single, dtypes=("torch.float16",) * 2), peak) is None
    assert suspicion(replace(timed("cpu", MOVED / 11.0)), replace(PEAK, tflops={})) is None
