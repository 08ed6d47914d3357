"""Sample choices: time calls, place their operands in memory, compare their outputs.

Calls are timed by the clock on a CPU and by events on a GPU, with hot or with cold caches. A hot
sample is a series of calls that all read the same memory. A cold sample flushes the caches first
and then makes a series of calls, each of which reads its own copy: so even a clock coarser than one
call is exact enough, and no call finds an earlier one's data in the caches.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice, pairwise
from math import ceil, log2
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from backend.inductor.torch.state import gpu_spin
from backend.measure.devices import cpu_caches
from backend.measure.rounds import Sample
from backend.measure.sensors import (
    AmdSensor,
    CpuSensor,
    DeviceState,
    NvidiaSensor,
    Sensor,
    SensorWatch,
)
from backend.model.choice import Caches, Output
from backend.processes.memory import cgroup_room

if TYPE_CHECKING:
    from backend.inductor.result_checks import Distance, Exact

T = TypeVar("T")
Run = Callable[[], object]
"""Starts a choice once."""

SAMPLE_MS = 1.0
"""The minimum duration of a sample: clocks and events are exact enough for that."""
PART_MS = 0.05
"""On a CPU a sample is the median of parts at least this long."""
MOST_CALLS = 500
"""The maximum number of calls in a sample. A GPU's queue takes about a thousand."""
MOST_COPIES = 64
"""The maximum number of calls of a cold sample, each with its own copy: 3 us each are resolved to
16 ns by a clock of 1 us."""
GPU_FLUSH_BYTES = 512 << 20
"""The minimum; twice the largest existing last-level cache (256 MiB, of the MI300 series)."""
CPU_CACHE_BYTES = 64 << 20
"""The default if the system does not report the size of its caches."""

STALL_NS = 10_000_000
"""Nanoseconds after which no further part is begun: the thread was preempted."""
WAITED = 0.02
"""The share of the timed calls' time that threads may wait for a CPU in a clean sample."""

_SPIN = 1 << 20
"""GPU cycles that are timed once, to determine the duration of a cycle."""
_MOST_LEAD_MS = 20.0
_TICK_TRIALS = 64
_TICK_SPIN = 600
"""GPU cycles: spins with increasing multiples are timed to see the step of event times."""
_GPU_TICK_MS = 1e-3
"""The step if all spins took the same time."""
_SAME = 1e-6
"""The relative difference below which two times are equal, for single precision."""


def no_preparation() -> None:
    """Do nothing before a sample."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """A sample is the median of `parts`, each the mean of `calls` calls."""

    parts: int = 1
    calls: int = 1

    def enough(self, call_ms: float) -> bool:
        """Return whether a sample is long enough if a call takes `call_ms`. Trials on a busy
        machine may have suggested longer calls."""
        return self.calls >= MOST_CALLS or self.parts * self.calls * call_ms > SAMPLE_MS / 2

    @property
    def copies(self) -> int:
        """Return the number of copies if no two calls may read the same one."""
        return self.parts * self.calls

    def within(self, copies: int) -> Repeat:
        """Return the same with at most `copies` copies."""
        if self.copies <= copies:
            return self
        calls = min(self.calls, copies)
        return Repeat(copies // calls, calls)


def timer_for(device: torch.device, caches: Caches) -> Timer:
    """Return the timer of a device. A cold one keeps a buffer of twice the last-level cache."""
    if device.type == "cpu":
        return CpuTimer(_filler(device, 2 * cpu_cache_bytes()) if caches == "cold" else None)
    if caches == "hot":
        return GpuTimer(None)
    level = int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0))
    return GpuTimer(_filler(device, max(2 * level, GPU_FLUSH_BYTES)))


def caches_of_a_model(device: torch.device, bytes_of_a_call: int) -> Caches:
    """Return the cache state of a call in a model: on a GPU its weights have left the caches; on a
    CPU only if one call alone exceeds the caches."""
    if device.type != "cpu":
        return "cold"
    return "cold" if bytes_of_a_call > cpu_cache_bytes() else "hot"


def _calls_for(timer: Timer, run: Run, wanted_ms: float, before: Run) -> int:
    """Return how many calls take at least `wanted_ms`, up to `MOST_CALLS`."""
    calls = 1
    while True:
        call_ms = _least(timer, run, Repeat(calls=calls), before)
        if calls * call_ms >= wanted_ms / 4 or calls >= MOST_CALLS:
            return max(1, min(MOST_CALLS, ceil(wanted_ms / max(call_ms, 1e-6))))
        calls *= 4


def _least(timer: Timer, run: Run, repeat: Repeat, before: Run) -> float:
    """Return the shortest of three samples, in milliseconds a call."""
    times = []
    for _ in range(3):
        before()
        times.append(timer.sample([run], repeat))
    return min(times)


def _copies_for(timer: Timer, run: Run, before: Run) -> tuple[int, float]:
    """Return the calls of a cold sample, and the milliseconds of one call."""
    call_ms = max(1e-6, _least(timer, run, Repeat(), before))
    return max(1, min(MOST_COPIES, ceil(SAMPLE_MS / call_ms))), call_ms


def _in_turn(runs: Sequence[Run], count: int) -> list[Run]:
    return list(islice(cycle(runs), count))


def smallest_gap(times: Iterable[float]) -> float:
    """Return the smallest difference between two different times; 0 if all are equal."""
    gaps = [(high - low, high) for low, high in pairwise(sorted(times))]
    return min((gap for gap, high in gaps if gap > _SAME * high), default=0.0)


class CpuTimer:
    """Times by the clock. The median ignores the single call in which a thread was preempted.

    `tick_ms` is the smallest difference of two times that the clock shows. `clean` is whether, as
    far as known, no thread of ours waited for a CPU during the last sample; irrelevant on a GPU.
    """

    def __init__(self, flush: Run | None = None) -> None:
        self._flush = flush
        self.cold = flush is not None
        self.clean = True
        now = time.perf_counter_ns
        readings = [now() for _ in range(1000)]
        self.tick_ms = min(b - a for a, b in pairwise(readings) if b > a) / 1e6

    def repeat(self, run: Run, before: Run = no_preparation) -> Repeat:
        """Return how often to call for one sample, after a few trials, which warm up; `before` is
        called before each of them, untimed."""
        if self.cold:
            copies, call_ms = _copies_for(self, run, before)
            calls = min(copies, ceil(PART_MS / call_ms))
            return Repeat(copies // calls, calls)
        calls = _calls_for(self, run, PART_MS, before)
        before()
        part_ms = self.sample([run], Repeat(3, calls)) * calls
        return Repeat(ceil(SAMPLE_MS / part_ms), calls)

    def sample(self, runs: Sequence[Run], repeat: Repeat) -> float:
        """Return the milliseconds of one call, alternating between `runs`."""
        calls = _in_turn(runs, repeat.copies if self.cold else repeat.calls)
        parts = [calls[at : at + repeat.calls] for at in range(0, len(calls), repeat.calls)]
        if self._flush is not None:
            self._flush()
        elif repeat.parts > 1:
            runs[0]()  # wakes up the other threads
        now, times = time.perf_counter_ns, []
        waited, start = _waited_ns(), now()
        for part in islice(cycle(parts), repeat.parts):
            begin = now()
            for run in part:
                run()
            times.append(now() - begin)
            if now() - start > STALL_NS:
                break
        lasted = now() - start
        self.clean = waited is None or (_waited_ns() or 0) - waited <= WAITED * lasted
        return median(times) / repeat.calls / 1e6

    def wait(self) -> None:
        """Do nothing: a CPU is done when the call returns."""


class GpuTimer:
    """The GPU spins until all calls are queued, so that no gap between calls is timed."""

    def __init__(self, flush: Run | None = None) -> None:
        self._flush = flush
        self.cold = flush is not None
        self.clean = True
        self._queue_ms: deque[float] = deque([0.05], maxlen=16)
        self._begin = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)
        gpu_spin(_SPIN)
        self._cycles_a_ms = _SPIN / max(self._timed([lambda: gpu_spin(_SPIN)]), 1e-3)
        spins = [self._timed([_spin(at * _TICK_SPIN)]) for at in range(1, _TICK_TRIALS)]
        self.tick_ms = smallest_gap(spins) or _GPU_TICK_MS

    def repeat(self, run: Run, before: Run = no_preparation) -> Repeat:
        if self.cold:
            return Repeat(calls=_copies_for(self, run, before)[0])
        return Repeat(calls=_calls_for(self, run, SAMPLE_MS, before))

    def sample(self, runs: Sequence[Run], repeat: Repeat) -> float:
        calls = _in_turn(runs, repeat.calls)
        lead_ms = min(_MOST_LEAD_MS, 1.5 * max(self._queue_ms) * len(calls))
        gpu_spin(int(lead_ms * self._cycles_a_ms))
        if self._flush is not None:
            self._flush()
        return self._timed(calls) / len(calls)

    def wait(self) -> None:
        torch.cuda.synchronize()

    def _timed(self, calls: Sequence[Run]) -> float:
        self._begin.record()
        begin = time.perf_counter()
        for run in calls:
            run()
        self._queue_ms.append((time.perf_counter() - begin) * 1000 / len(calls))
        self._end.record()
        self._end.synchronize()
        return float(self._begin.elapsed_time(self._end))


Timer = CpuTimer | GpuTimer


def _spin(cycles: int) -> Run:
    return lambda: gpu_spin(cycles)


def _filler(device: torch.device, size: int) -> Run:
    buffer = torch.zeros(size, dtype=torch.uint8, device=device)
    return lambda: buffer.fill_(1)


def cpu_cache_bytes(*root: Path) -> int:
    """Return the bytes of all last-level caches of our threads, from `root` or sysfs."""
    caches = cpu_caches(os.sched_getaffinity(0), *root)
    return caches[max(caches)] if caches else CPU_CACHE_BYTES


def _waited_ns() -> int | None:
    """Return the nanoseconds that all threads of this process waited for a CPU, if known."""
    total = 0
    try:
        for task in Path("/proc/self/task").iterdir():
            total += int((task / "schedstat").read_bytes().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return total


def sensor_of(device: torch.device) -> Sensor | None:
    """Return the sensor of a device, or None."""
    try:
        if device.type == "cpu":
            return CpuSensor(os.sched_getaffinity(0))
        if device.type != "cuda":
            return None
        properties = torch.cuda.get_device_properties(device)
        address = pci_address(properties)
        if torch.version.hip:
            return AmdSensor(address)
        return NvidiaSensor(address, str(getattr(properties, "uuid", "")) or None)
    except Exception:  # no library, no permission, an unknown driver: the measurement goes on
        return None


def pci_address(properties: object) -> str | None:
    """Return the PCI address of a GPU; None if this torch does not report it."""
    parts = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    numbers = [part for part in parts if isinstance(part, int)]
    return "{:04x}:{:02x}:{:02x}.0".format(*numbers) if len(numbers) == len(parts) else None


MOST_COPIED = 1 << 30
"""Bytes of all copies of the operands together."""
FREE_SHARE = 4
"""Copies take at most this part of the free memory."""

_PAGE, _LINE = 4096, 64
"""Bytes: a tensor begins at any cache line of a page, as torch aligns them on a CPU."""
_GPU_SPREAD, _GPU_ALIGN = 1 << 16, 512
"""Bytes: torch aligns tensors on a GPU to 512."""

_dice = random.Random()


def bytes_at_random_offset(size: int, device: torch.device) -> Tensor:
    """Return that many bytes, at an address that differs from call to call."""
    cpu = device.type == "cpu"
    spread, align = (_PAGE, _LINE) if cpu else (_GPU_SPREAD, _GPU_ALIGN)
    skipped = align * _dice.randrange(spread // align)
    return torch.empty(size + skipped, dtype=torch.uint8, device=device)[skipped:]


def free_bytes(device: torch.device) -> int:
    """Return the bytes that we could allocate, what a container's limit leaves at most; 0 if
    unknown."""
    if device.type == "cpu":
        try:
            lines = Path("/proc/meminfo").read_text().splitlines()
            free = next(int(line.split()[1]) << 10 for line in lines if "MemAvailable" in line)
            return min([free, *cgroup_room()])
        except (OSError, ValueError, StopIteration):
            return 0
    ours = int(torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    return int(torch.cuda.mem_get_info(device)[0]) + ours


def copies_that_fit(wanted: int, size: int, device: torch.device) -> int:
    """Return how many of `wanted` copies of `size` bytes fit into memory; at least 1."""
    room = min(MOST_COPIED, free_bytes(device) // FREE_SHARE)
    return max(1, min(wanted, room // max(1, size)))


def reference_product(operations: float, device: torch.device) -> Run:
    """Return the reference kernel: a square product of about that many multiplications."""
    size = 1 << min(12, max(4, round(log2(max(operations, 1.0)) / 3)))
    dtype = torch.float32 if device.type == "cpu" else torch.float16
    left = torch.ones(size, size, dtype=dtype, device=device)
    out = torch.empty_like(left)
    return lambda: torch.mm(left, left, out=out)


OUTPUT_RUNS = 10
"""Runs of each choice on the same inputs, to see whether the results are identical."""
OUTPUT_SECONDS = 1.0
"""Slower choices are run less often, but twice."""
_CHUNK = 16 << 20
"""Elements that are hashed at once."""


@dataclass(frozen=True, slots=True)
class OutputSample:
    """The result of `runs` runs of a choice: `same` of them had the bits with the digest
    `digest`."""

    digest: bytes
    runs: int
    same: int
    distance: Distance | None = None


def sample_output(run: Callable[[], Tensor], exact: Exact | None) -> OutputSample:
    """Run a choice several times. `run` returns a result that the next run may overwrite."""
    end = time.monotonic() + OUTPUT_SECONDS
    first = run().clone()
    bits = _bits(first)
    runs = same = 1
    while runs < OUTPUT_RUNS and (runs < 2 or time.monotonic() < end):
        runs, same = runs + 1, same + torch.equal(bits, _bits(run()))
    return OutputSample(digest_of(first), runs, same, _distance(first, exact))


def _distance(result: Tensor, exact: Exact | None) -> Distance | None:
    try:
        return None if exact is None else exact.distance(result)
    except torch.OutOfMemoryError:  # not the fault of the choice
        return None


_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer types by their bytes."""


def _bits(result: Tensor) -> Tensor:
    """Return the bits of all elements, so that zeros differ by sign, and NaNs can be equal."""
    parts = torch.view_as_real(result) if result.is_complex() else result
    return parts.view(_WORDS[parts.element_size()])


def digest_of(result: Tensor) -> bytes:
    """Return a digest of the sizes and the bits of all elements."""
    digest = hashlib.blake2b(repr((tuple(result.shape), result.dtype)).encode(), digest_size=16)
    for part in _bits(result).reshape(-1).split(_CHUNK):
        here = part.cpu()
        size = here.numel() * here.element_size()
        digest.update((ctypes.c_char * size).from_address(here.data_ptr()) if size else b"")
    return digest.digest()


def outputs_of(samples: Mapping[str, OutputSample], order: Iterable[str]) -> dict[str, Output]:
    """Return the outputs by hash; letters are assigned in the order `order`."""
    letters: dict[bytes, str] = {}
    outputs = {}
    for hash in order:
        if (sample := samples.get(hash)) is not None:
            letter = letters.setdefault(sample.digest, letter_of(len(letters)))
            output = Output(letter, sample.runs, sample.same)
            if (distance := sample.distance) is not None:
                counts = distance.compared, distance.beyond, distance.excess
                output = Output(letter, sample.runs, sample.same, *counts)
            outputs[hash] = output
    return outputs


def letter_of(number: int) -> str:
    """Return A to Z, then AA, as the columns of a sheet are named."""
    before, at = divmod(number, 26)
    return (letter_of(before - 1) if before else "") + chr(ord("A") + at)


TRIES = 4
"""The number of samples taken until one is clean."""

REFERENCE = ""
"""The reference kernel's key among the hashes."""


class Sampler:
    """`rounds.Bench` without the choices: `_repeats` has the number of calls in a sample of each.
    If cold, each of these calls has one of `_copies` copies of everything that a choice reads."""

    def __init__(self, device: torch.device, caches: Caches) -> None:
        self.caches: Caches = caches
        self._timer = timer_for(device, caches)
        self._watch = SensorWatch(sensor_of(device))
        self._device = device
        self._copies = 1
        self._counted = not self._timer.cold
        """Whether `_copies` is the number that a sample needs."""
        self._repeats: dict[str, Repeat] = {}
        self._reference: Run = no_preparation

    def renew(self, hashes: Sequence[str]) -> None:
        """Move the choices' inputs to other memory, and call each choice once."""
        self._start(hashes)
        if not self._counted:
            self._counted = True
            wanted = max(self._repeats[hash].copies for hash in hashes)
            self._copies = copies_that_fit(wanted, self._bytes_of(hashes), self._device)
            self._start(hashes)

    def _start(self, hashes: Sequence[str]) -> None:
        raise NotImplementedError

    def _bytes_of(self, hashes: Sequence[str]) -> int:
        raise NotImplementedError

    def _copied(self, copy: Callable[[], T]) -> list[T]:
        """Return as many copies as a sample needs, fewer if memory is short."""
        while True:
            try:
                return [copy() for _ in range(self._copies)]
            except torch.OutOfMemoryError:
                if self._copies == 1:
                    raise
                self._copies //= 2

    def set_reference(self, operations: float) -> None:
        """Make a square product of about `operations` multiplications the reference kernel."""
        self._reference = reference_product(operations, self._device)
        self._repeats[REFERENCE] = self._timer.repeat(self._reference)

    def reference(self) -> Sample:
        return self._sample(REFERENCE, [self._reference])

    def state(self) -> DeviceState:
        return self._watch.state()

    def resolution_ms(self, hash: str) -> float:
        """Return the smallest difference of two calls' times that a sample can show."""
        return self._timer.tick_ms / self._repeat(hash).calls

    def _repeat(self, name: str) -> Repeat:
        """Return the repeat; the reference reads the same memory in all calls."""
        repeat = self._repeats[name]
        cold = self._timer.cold and name != REFERENCE
        return repeat.within(self._copies) if cold else repeat

    def _sample(self, name: str, runs: Sequence[Run], before: Run = no_preparation) -> Sample:
        """Sample repeatedly, each time after `before`, until a sample is long enough and no thread
        of ours waited for a CPU."""
        for _ in range(TRIES):
            before()
            ms, clean = self._timed(name, runs)
            if not self._timer.cold and not self._repeats[name].enough(ms):
                self._repeats[name] = self._timer.repeat(runs[0], before)
            elif clean:
                return Sample(ms)
        return Sample(ms, clean=False)

    def _timed(self, name: str, runs: Sequence[Run]) -> tuple[float, bool]:
        """Return the milliseconds of a call, and whether no thread of ours waited for a CPU."""
        return self._timer.sample(runs, self._repeat(name)), self._timer.clean
