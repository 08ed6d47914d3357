"""What this machine can do at best, measured in two seconds: square matrix products, a copy.

It is the roof of the roofline where no data sheet tells one. A best time is taken, not a median:
a roof is what was reached once. The copy counts each byte read and written once, as STREAM does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

import torch

from backend.inductor.torch import tuning as torch_api
from backend.processes.shared import Mark
from backend.wire.jobs import Arithmetic, BadJob, PeakJob, PeakResult
from backend.worker.protocol import TellProgress

_SECONDS = 0.3
"""For each kind of arithmetic, and for the copy."""
_EACH = 0.05
"""For one size of matrices. A product longer than this is large enough for any device."""
_SMALLEST, _LARGEST = 256, 8192
_COPIED = {"cpu": 256 << 20, "cuda": 1 << 30}
"""Bytes; beyond what a cache holds."""
_KINDS: Mapping[Arithmetic, torch.dtype] = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "half": torch.bfloat16,
}


def run(job: PeakJob, tell: TellProgress, mark: Mark) -> PeakResult:
    """Raises BadJob where there is no such device."""
    device = job.device
    if device not in _COPIED or (device == "cuda" and not torch.cuda.is_available()):
        raise BadJob(f"this torch has no device {device} to measure")
    device_facts = torch_api.device_facts()
    on_gpu = device == "cuda"
    started = time.perf_counter()
    tflops: dict[Arithmetic, float] = {}
    for kind, dtype in _KINDS.items():
        tell(f"multiplying {kind} matrices")
        tflops[kind] = _products(device, dtype)
    tell("copying")
    return PeakResult(
        device=device_facts.name if on_gpu else "cpu",
        arch=device_facts.arch if on_gpu else None,
        compute_units=device_facts.compute_units if on_gpu else None,
        tflops=tflops,
        gbs=_copies(device),
        threads=torch.get_num_threads(),
        seconds=time.perf_counter() - started,
    )


def _products(device: str, dtype: torch.dtype) -> float:
    """10^12 operations a second at the size that reaches most."""
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


def _copies(device: str) -> float:
    """10^9 bytes a second, read and written."""
    source = torch.ones(_COPIED[device] // 4, device=device)
    target = torch.empty_like(source)
    best = _best(lambda: target.copy_(source), device, _SECONDS)
    return float(2 * source.nbytes / best / 1e9)


def _best(work: Callable[[], object], device: str, budget: float) -> float:
    """The shortest of as many calls as fit into `budget` seconds, after one to warm up."""
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
