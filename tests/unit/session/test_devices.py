"""What a device can do at best, which one tuned something, and times that none can have had."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from backend.model.choice import Choice, MeasuredChoice, Measurement
from backend.model.session import Session
from backend.model.tuning import Tuning
from backend.wire.jobs import CacheLevel
from rocm_tui.session.devices import (
    NoPeak,
    Peak,
    TunedDevice,
    attainable,
    fastest,
    find_peak,
    holding,
    is_wait,
    machine_of,
    math_kind,
    peak_of,
    published,
    suspicion,
)

L2, INFINITY = CacheLevel("L2", 1 << 20, 4000.0), CacheLevel("Infinity Cache", 4 << 20, 400.0)
PEAK = Peak("MI300X (one die)", {"fp32": 100.0}, 40.0, "a data sheet", (L2, INFINITY))


@pytest.mark.parametrize(
    ("device", "label"),
    [
        (TunedDevice("cpu", host="node7"), "CPU of node7"),
        (TunedDevice("cpu"), "CPU of an unknown host"),
        (TunedDevice("MI300X", "gfx942", host="node7"), "MI300X"),
        (TunedDevice("", "gfx942"), "gfx942"),
        (TunedDevice(""), "an unknown device"),
    ],
)
def test_what_a_device_is_called(device: TunedDevice, label: str) -> None:
    assert device.label == label


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        (TunedDevice("cpu", "znver4"), "has to be measured"),
        (TunedDevice(""), "not recorded"),
        (TunedDevice("A card"), "no data sheet of A card"),
        (TunedDevice("", "gfx1030"), "no data sheet of gfx1030"),
        (TunedDevice("gfx942:xnack-", "gfx942"), "may be AMD Instinct MI300A or"),
        (TunedDevice("", "gfx942:xnack-"), "may be AMD Instinct MI300A or"),
    ],
)
def test_why_no_peak_is_known(device: TunedDevice, reason: str) -> None:
    found = peak_of(device)
    assert isinstance(found, NoPeak) and reason in found.reason and published(device) is None


def test_the_peak_of_a_device_that_is_known() -> None:
    device = TunedDevice("AMD Instinct MI300X", "gfx942", 304)
    assert published(device) is peak_of(device) and isinstance(peak_of(device), Peak)
    assert "this device" in str(find_peak(None, None, None))


def test_the_roof_of_a_cache() -> None:
    assert attainable(PEAK, "fp32", 1.0, L2) == 4.0 and attainable(PEAK, "fp32", 99.0, L2) == 100.0
    assert attainable(PEAK, "fp32", 1.0, CacheLevel("L3", 1)) == 100.0, "it has no slope"
    assert attainable(PEAK, "fp8", 1.0, L2) is None


@pytest.mark.parametrize(
    ("moved", "flushed", "caches"),
    [
        (1 << 20, False, (L2, INFINITY)),
        (1 << 20, True, (INFINITY,)),
        ((1 << 20) + 1, False, (INFINITY,)),
        ((4 << 20) + 1, False, ()),
    ],
)
def test_caches_that_hold_what_is_moved(
    moved: int, flushed: bool, caches: tuple[CacheLevel, ...]
) -> None:
    assert holding(PEAK, moved, flushed=flushed) == caches
    if flushed:
        assert fastest(PEAK, moved) == 400.0


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


def test_the_device_that_a_session_or_a_cache_file_names() -> None:
    gpu = Session("s", host="node7", device="MI300X", arch="gfx942", compute_units=304)
    sessions = {"s": gpu, "t": replace(gpu, id="t", device="MI325X")}
    own = replace(MM, session="s")
    assert machine_of(own, sessions, {}) == TunedDevice("MI300X", "gfx942", 304)
    assert machine_of(replace(own, device="cpu"), sessions, {}) == TunedDevice("cpu", host="node7")
    assert machine_of(replace(MM, device="cpu"), {}, {"/a": "gfx942"}) == TunedDevice("cpu")
    headers = {"/a": "gfx942", "/b": "gfx942", "/c": "gfx90a"}
    for sources, name in ((("/a", "/b", "/l"), "gfx942"), (("/a", "/c"), ""), (("/l",), "")):
        assert machine_of(replace(MM, sources=sources), {}, headers) == TunedDevice(name)
    assert machine_of(replace(own, session="u"), sessions, {}) == TunedDevice("")


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
