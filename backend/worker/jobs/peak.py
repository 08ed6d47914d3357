"""The peak performance of this machine, measured in three seconds: square matrix products, a copy.

It is the roof of the roofline if no data sheet has one. The best time counts, not a median: a roof
is what was reached once. The copy counts each byte read and written once, as in STREAM: once with
more than the caches hold, and on a CPU with what fits into each of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from functools import partial

import torch

from backend.inductor.torch import tuning as torch_api
from backend.measure.devices import cpu_caches
from backend.processes.shared import ChoiceMark
from backend.wire.jobs import Arithmetic, CacheLevel, JobInvalid, PeakJob, PeakResult
from backend.worker.protocol import ReportProgress

_SECONDS = 0.3
"""Seconds for each kind of arithmetic, for the copy, and for that in each cache."""
_EACH = 0.05
"""Seconds for one size of matrices. A longer product is large enough for any device."""
_SMALLEST, _LARGEST = 256, 8192
_COPIED = {"cpu": 256 << 20, "cuda": 1 << 30}
"""The minimum bytes; more than a cache holds."""
_MOST_COPIED = 1 << 30
_MOST_IN_CACHE = 32 << 20
"""Bytes read and written: the last cache of a shared machine is not all ours."""
_BATCH = 16 << 20
"""The minimum bytes copied between two readings of the clock."""
_KINDS: Mapping[Arithmetic, torch.dtype] = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "half": torch.bfloat16,
}


def run(job: PeakJob, progress: ReportProgress, mark: ChoiceMark) -> PeakResult:
    """Measure the peaks. Raises JobInvalid if there is no such device."""
    device = job.device
    if device not in _COPIED or (device == "cuda" and not torch.cuda.is_available()):
        raise JobInvalid(f"this torch has no device {device} to measure")
    device_facts = torch_api.device_facts()
    on_gpu = device == "cuda"
    started = time.perf_counter()
    tflops: dict[Arithmetic, float] = {}
    for kind, dtype in _KINDS.items():
        progress(f"multiplying {kind} matrices")
        tflops[kind] = _products(device, dtype)
    progress("copying")
    levels = _cpu_levels() if device == "cpu" else {}
    gbs = _copies(device, max(levels.values(), default=0))
    return PeakResult(
        device=device_facts.name if on_gpu else "cpu",
        arch=device_facts.arch if on_gpu else None,
        compute_units=device_facts.compute_units if on_gpu else None,
        tflops=tflops,
        gbs=gbs,
        threads=torch.get_num_threads(),
        caches=_on_gpu() if on_gpu else _in_caches(levels, gbs),
        seconds=time.perf_counter() - started,
    )


def _cpu_levels() -> dict[int, int]:
    """Return bytes by cache level, of the CPUs that the threads may use."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    return cpu_caches(allowed[: torch.get_num_threads()])


def _in_caches(levels: Mapping[int, int], memory: float) -> tuple[CacheLevel, ...]:
    """Return the bandwidth of copies that stay in half of a cache. A cache that is not faster than
    memory, for example because others use it, is left out."""
    levels_measured = (
        CacheLevel(f"L{level}", size, _copies("cpu", 0, min(size // 2, _MOST_IN_CACHE) // 2))
        for level, size in levels.items()
    )
    return tuple(cache for cache in levels_measured if cache.gbs and cache.gbs > memory)


def _on_gpu() -> tuple[CacheLevel, ...]:
    """Return the size of the L2; a copy of so little takes no longer than its launch."""
    size = int(getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0))
    return (CacheLevel("L2", size),) if size else ()


def _products(device: str, dtype: torch.dtype) -> float:
    """Return 10^12 operations per second at the fastest size."""
    most, size = 0.0, _SMALLEST
    _best(_product(device, dtype, size), device, 0.0)  # loads the library, which may take seconds
    end = time.perf_counter() + _SECONDS
    while size <= _LARGEST and time.perf_counter() < end:
        best = _best(_product(device, dtype, size), device, _EACH)
        most = max(most, 2 * size**3 / best / 1e12)
        if best > _EACH:
            break
        size *= 2
    return most


def _product(device: str, dtype: torch.dtype, size: int) -> Callable[[], object]:
    left = torch.randn(size, size, device=device).to(dtype)
    right = torch.randn(size, size, device=device).to(dtype)
    return partial(torch.mm, left, right, out=torch.empty_like(left))


def _copies(device: str, cached: int, small: int = 0) -> float:
    """Return 10^9 bytes per second, read and written, of more than `cached`, or `small`, bytes."""
    size = small or min(max(_COPIED[device], cached), _MOST_COPIED)
    source = torch.ones(size // 4, device=device)
    target = torch.empty_like(source)
    times = max(1, _BATCH // size)

    def copy() -> None:
        for _ in range(times):
            target.copy_(source)

    best = _best(copy, device, _SECONDS)
    return float(2 * source.nbytes * times / best / 1e9)


def _best(work: Callable[[], object], device: str, budget: float) -> float:
    """Return the shortest of the calls that fit into `budget` seconds, after a warm-up."""
    work()
    best, end = float("inf"), time.perf_counter() + budget
    while True:
        _wait(device)
        start = time.perf_counter()
        work()
        _wait(device)
        now = time.perf_counter()
        best = min(best, now - start)
        if now >= end:
            return best


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
