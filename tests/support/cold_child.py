"""A process of its own for tests of cold samples: `bench` on real choices of this CPU, `gpu` with a
device whose events and kernels are numbers, `job` on a CPU that throttles. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import weakref
from collections import Counter
from typing import Any

import torch

from backend.inductor import sampling as memory_module
from backend.inductor import sampling as sampler_module
from backend.inductor import sampling as timer_module
from backend.inductor.sampling import GpuTimer, Repeat
from backend.inductor.torch import tuning as torch_api
from backend.measure.sensors import DeviceState
from backend.model.problem import TensorSpec
from backend.processes.shared import ChoiceMark
from backend.wire.codec import to_json
from backend.wire.jobs import MeasureJob
from backend.worker.capture import SelectorCall, capture
from backend.worker.jobs.measure import ChoiceBench, run
from backend.worker.problem import contiguous, rebuild
from tests.support.measure_child import _key


def bench() -> dict[str, Any]:
    torch.set_num_threads(1)
    small = _question("bmm", (4, 48, 48), (4, 48, 48))
    hashes = list(small.choices)
    cold = ChoiceBench(small, hashes, ChoiceMark(), "cold")
    cold.set_reference(1e5)
    cold.renew(hashes)
    copies = [operands[hashes[0]] for operands in cold._operands]
    gone = weakref.ref(copies[0][0])
    told: dict[str, Any] = {
        "copies": len(copies),
        "places": len({tensors[at].data_ptr() for tensors in copies for at in range(3)}),
        "calls": _calls(cold, hashes[0]),
        "resolution": cold.resolution_ms(hashes[0]),
    }
    cold.sample(hashes[0])
    del copies
    cold.renew(hashes)
    told["renewed"] = gone() is None
    memory_module.MOST_COPIED = 400_000
    tight = ChoiceBench(small, hashes, ChoiceMark(), "cold")
    tight.renew(hashes)
    told["tight"] = {"copies": len(tight._operands), "calls": _calls(tight, hashes[0])}
    packed = _question("packed_linear", (32, 96), (1459233, 1), (64, 96))
    hashes = list(packed.choices)
    fixed = ChoiceBench(packed, hashes, ChoiceMark(), "cold")
    fixed.renew(hashes)
    told["packed"] = {"copies": len(fixed._operands), "calls": _calls(fixed, hashes[0])}
    told["default"] = ChoiceBench(packed, hashes, ChoiceMark()).caches
    timer_module.cpu_cache_bytes = lambda *_: 1000  # type: ignore[assignment]
    told["large"] = ChoiceBench(packed, hashes, ChoiceMark()).caches
    return told


def _question(op: str, *sizes: tuple[int, ...]) -> SelectorCall:
    program = rebuild(op, _specs(*sizes))
    mode = torch_api.MODES[0]
    return capture(program, _key(program), (), mode, templates=False).question


def _specs(*sizes: tuple[int, ...]) -> list[TensorSpec]:
    return [TensorSpec("cpu", "torch.float32", each, contiguous(each), 0) for each in sizes]


def _calls(cold: ChoiceBench, hash: str) -> list[int]:
    """How often one sample reads each copy, after how many times of emptying the caches."""
    seen: Counter[object] = Counter()
    runs, flush = cold._runs[hash], cold._timer._flush  # type: ignore[attr-defined]

    def counted(what: object, run: Any) -> Any:
        return lambda: (seen.update([what]), run())

    cold._runs[hash] = [counted(at, run) for at, run in enumerate(runs)]
    cold._timer._flush = counted("flush", flush)  # type: ignore[attr-defined]
    cold._sample(hash, cold._runs[hash])
    cold._runs[hash], cold._timer._flush = runs, flush  # type: ignore[attr-defined]
    flushed = seen.pop("flush")
    return [flushed, len(seen), max(seen.values()) // flushed]


TICK = 1.024e-3
"""Milliseconds in which the events of this device come."""


class Device:
    """Kernels take numbers; what was asked of it in which order."""

    now = 5.0

    def __init__(self) -> None:
        self.log: list[str] = []

    def kernel(self, name: str, ms: float) -> Any:
        def run() -> None:
            self.log.append(name)
            self.now += ms

        return run


class Event:
    device: Device

    def __init__(self, enable_timing: bool) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.device.log.append("event")
        self.at = self.device.now // TICK * TICK

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, other: Event) -> float:
        return float(torch.tensor(other.at - self.at, dtype=torch.float32))


def gpu() -> dict[str, Any]:
    device = Device()
    Event.device = device
    torch.cuda.Event = Event  # type: ignore[misc, assignment]
    timer_module.gpu_spin = lambda cycles: device.kernel("spin", cycles / 1.7e6)()
    cold = GpuTimer(device.kernel("flush", 0.2))
    runs = [device.kernel(f"copy {at}", 0.0037) for at in range(64)]
    repeat = cold.repeat(runs[0])
    device.log.clear()
    ms = cold.sample(runs, repeat)
    order = list(device.log)
    long = cold.repeat(device.kernel("long", 3.0))
    hot = GpuTimer()
    return {
        "tick": cold.tick_ms,
        "calls": repeat.calls,
        "order": order,
        "ms": ms,
        "single": cold.sample(runs, Repeat()),
        "long": long.calls,
        "hot": hot.repeat(runs[0]).calls,
        "cold": [cold.cold, hot.cold],
    }


def job() -> dict[str, Any]:
    """A whole job beside a sensor that first reports a power cap, three times."""
    readings = iter([("power cap",)] * 3)

    def sensor() -> DeviceState:
        return DeviceState(2000.0, 65.5, 71.0, next(readings, ()))

    sampler_module.sensor_of = lambda device: sensor
    program = rebuild("bmm", _specs((4, 48, 48), (4, 48, 48)))
    key = _key(program)
    hashes = capture(program, key, (), torch_api.MODES[0], templates=False).question.choices
    asked = MeasureJob(
        key.op, key.inputs, key.precision, tuple(hashes), budget=20.0, caches="cold", threads=1
    )
    result = run(asked, lambda *_, **__: None, ChoiceMark())
    assert result.measurement is not None, result.reason
    return to_json(result.measurement)


if __name__ == "__main__":
    print(json.dumps({"bench": bench, "gpu": gpu, "job": job}[sys.argv[1]]()))
