"""Timing calls: on the CPU by the clock, on a GPU by events; warm, or after emptying the caches."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from statistics import median
from typing import Protocol

import torch

from backend.inductor.torch.choices import Run, gpu_spin

SAMPLE_MS = 1.0
"""A sample is at least about this long: clocks and events are exact enough for that."""
PART_MS = 0.05
"""On a CPU a sample is the median of parts at least that long."""
MOST_CALLS = 500
"""In one sample. The queue of a GPU takes about a thousand before the host has to wait."""
GPU_FLUSH_BYTES = 512 << 20
"""At least; twice the largest last-level cache there is (256 MiB, of the MI300 series)."""
CPU_FLUSH_BYTES = 128 << 20
"""Where the system does not tell the size of its caches."""

STALL_NS = 10_000_000
"""Nanoseconds after which no further part is begun: the CPU was taken away."""

_SPIN = 1 << 20
"""GPU cycles whose time is measured once, to know how long a cycle is."""
_MOST_LEAD_MS = 20.0


@dataclass(frozen=True, slots=True)
class Repeat:
    """A sample is the median of `parts`, each the mean of so many `calls`."""

    parts: int = 1
    calls: int = 1

    def enough(self, call_ms: float) -> bool:
        """Whether a sample is long enough if a call takes so long. Trials on a busy machine may
        have promised longer calls."""
        return self.calls >= MOST_CALLS or self.parts * self.calls * call_ms > SAMPLE_MS / 2


class Timer(Protocol):
    """Times calls on one device."""

    flushes: bool
    """Whether it empties the caches, so that a sample is one call."""

    def repeat(self, run: Run) -> Repeat:
        """How often to call it for one sample, after a few trials, which warm it up."""

    def sample(self, run: Run, repeat: Repeat) -> float:
        """Milliseconds of one call."""

    def wait(self) -> None:
        """Return when the device has nothing left to do. Raises what went wrong there."""

    def waited_ns(self) -> int | None:
        """How long all threads together have waited for a CPU; None where that is not told, or
        does not matter."""


def timer_for(device: torch.device, *, flush: bool) -> Timer:
    """`flush`: write twice the last-level cache before each call, and time single calls."""
    if device.type == "cpu":
        return CpuTimer(_filler(device, _cpu_flush_bytes()) if flush else None)
    return GpuTimer(_filler(device, _gpu_flush_bytes(device)) if flush else None)


def _calls_for(timer: Timer, run: Run, wanted_ms: float) -> int:
    """Calls that take `wanted_ms` at least, as far as `MOST_CALLS` reach."""
    calls = 1
    while True:
        call_ms = min(timer.sample(run, Repeat(calls=calls)) for _ in range(3))
        if calls * call_ms >= wanted_ms / 4 or calls >= MOST_CALLS:
            return max(1, min(MOST_CALLS, ceil(wanted_ms / max(call_ms, 1e-6))))
        calls *= 4


class CpuTimer:
    """A thread that is put aside loses milliseconds in one call, which the median leaves out."""

    def __init__(self, flush: Run | None = None) -> None:
        self._flush = flush
        self.flushes = flush is not None

    def repeat(self, run: Run) -> Repeat:
        if self.flushes:
            self.sample(run, Repeat())
            return Repeat()
        calls = _calls_for(self, run, PART_MS)
        part_ms = self.sample(run, Repeat(3, calls)) * calls
        return Repeat(ceil(SAMPLE_MS / part_ms), calls)

    def sample(self, run: Run, repeat: Repeat) -> float:
        if self._flush is not None:
            self._flush()
        elif repeat.parts > 1:
            run()  # wakes the other threads up
        parts, calls = range(repeat.parts), range(repeat.calls)
        now, times = time.perf_counter_ns, []
        start = now()
        for _ in parts:
            begin = now()
            for _ in calls:
                run()
            times.append(now() - begin)
            if now() - start > STALL_NS:
                break
        return median(times) / repeat.calls / 1e6

    def wait(self) -> None:
        """A CPU is done when the call returns."""

    def waited_ns(self) -> int | None:
        return _waited_ns()


class GpuTimer:
    """The GPU spins until all calls are queued, so that no gap between two of them is timed."""

    def __init__(self, flush: Run | None = None) -> None:
        self._flush = flush
        self.flushes = flush is not None
        self._queue_ms: deque[float] = deque([0.05], maxlen=16)
        self._begin = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)
        gpu_spin(_SPIN)
        self._cycles_a_ms = _SPIN / max(self._timed(lambda: gpu_spin(_SPIN), 1), 1e-3)

    def repeat(self, run: Run) -> Repeat:
        if self.flushes:
            self.sample(run, Repeat())
            return Repeat()
        return Repeat(calls=_calls_for(self, run, SAMPLE_MS))

    def sample(self, run: Run, repeat: Repeat) -> float:
        lead_ms = min(_MOST_LEAD_MS, 1.5 * max(self._queue_ms) * repeat.calls)
        gpu_spin(int(lead_ms * self._cycles_a_ms))
        if self._flush is not None:
            self._flush()
        return self._timed(run, repeat.calls) / repeat.calls

    def wait(self) -> None:
        torch.cuda.synchronize()

    def waited_ns(self) -> int | None:
        return None

    def _timed(self, run: Run, calls: int) -> float:
        self._begin.record()
        begin = time.perf_counter()
        for _ in range(calls):
            run()
        self._queue_ms.append((time.perf_counter() - begin) * 1000 / calls)
        self._end.record()
        self._end.synchronize()
        return float(self._begin.elapsed_time(self._end))


def _filler(device: torch.device, size: int) -> Run:
    buffer = torch.zeros(size, dtype=torch.uint8, device=device)
    return lambda: buffer.fill_(1)


def _cpu_flush_bytes(caches: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    sizes = []
    for path in caches.glob("index*/size"):
        text = path.read_text().strip()
        if text.endswith("K") and text[:-1].isdecimal():
            sizes.append(int(text[:-1]) << 10)
    return 2 * max(sizes) if sizes else CPU_FLUSH_BYTES


def _gpu_flush_bytes(device: torch.device) -> int:
    properties = torch.cuda.get_device_properties(device)
    return max(2 * int(getattr(properties, "L2_cache_size", 0)), GPU_FLUSH_BYTES)


def _waited_ns(tasks: Path = Path("/proc/self/task")) -> int | None:
    """Of all threads of this process, as Linux counts it, if it does."""
    total = 0
    try:
        for task in tasks.iterdir():
            total += int((task / "schedstat").read_bytes().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return total
