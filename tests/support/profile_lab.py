"""Traces as Kineto writes them for a GPU: host spans, launches, kernels; numbers are hand-made."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

PID, TID, GPU = 900, 901, 0
FORWARD, BACKWARD = "f" + "a" * 51, "f" + "b" * 51


class Trace:
    """Times are microseconds. Each kernel is launched within the span that is open."""

    def __init__(self) -> None:
        self.host: list[dict[str, Any]] = []
        self.device: list[dict[str, Any]] = []
        self.now = 1000.0
        self._id = 0

    def span(self, name: str, length: float, cat: str = "cpu_op") -> int:
        """A span of the host that begins now; what follows lies in it."""
        self._id += 1
        args = {"External id": self._id, "Record function id": 0, "Ev Idx": self._id}
        self.host.append(event(cat, name, self.now, length, args))
        self.now += 1.0
        return self._id

    def launch(
        self,
        kernels: Sequence[tuple[str, float]],
        op: int | None = None,
        call: str = "cudaLaunchKernel",
    ) -> None:
        """One call of the runtime, which launches these kernels."""
        self._id += 1
        outer = self._id if op is None else op
        args = {"External id": outer, "cbid": 211, "correlation": self._id + 5000}
        cat = "cuda_driver" if call.startswith("cu") and call[2] == "L" else "cuda_runtime"
        self.device.append(event(cat, call, self.now, 2.0, args))
        for name, length in kernels:
            at = self.now + 500.0
            more = {"device": 0, "stream": 7, "correlation": self._id + 5000, "External id": outer}
            self.device.append(event("kernel", name, at, length, more, (GPU, 7)))
        self.now += 3.0

    def text(self) -> bytes:
        head = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "AMD Instinct MI300X"}],
            "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 8},
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": 1_700_000_000_000_000_000,
        }
        return json.dumps({**head, "traceEvents": self.host + self.device}, indent=1).encode()


def event(
    cat: str,
    name: str,
    ts: float,
    dur: float,
    args: dict[str, Any],
    place: tuple[int, int] = (PID, TID),
) -> dict[str, Any]:
    pid, tid = place
    return {
        "ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur,
        "args": args,
    }  # fmt: skip


def call_name(key: str) -> str:
    return f"## Call CompiledFxGraph {key} ##"


def training(steps: int = 4) -> bytes:
    """Each step: a forward of 30 + 20 + 10 us (two products by a library, a fused Triton kernel),
    a backward of 200 us replayed from a CUDA graph, and a copy outside of both. The first forward
    tunes for 100 ms."""
    trace = Trace()
    for step in range(steps):
        trace.span("Torch-Compiled Region: 0/0", 200.0)
        trace.span("CompiledFunction", 150.0)
        trace.span(call_name(FORWARD), 100.0)
        if not step:
            trace.launch([("triton_poi_fused_0", 100_000.0)])
        outer = trace.span("aten::addmm", 5.0)
        trace.launch([("Cijk_A", 30.0)], outer)
        trace.now += 5.0
        outer = trace.span("aten::addmm", 6.0)
        inner = trace.span("aten::inner", 4.0)
        trace.launch([("Cijk_A", 20.0)], inner)
        trace.now += 5.0
        trace.launch([("triton_tem_fused_mm_relu_1", 10.0)], call="cuLaunchKernel")
        trace.now += 500.0
        trace.launch([("Memcpy", 7.0)])
        trace.span("CompiledFunctionBackward", 150.0)
        trace.span(call_name(BACKWARD), 100.0, "user_annotation")
        kernels = [("triton_tem_fused_mm_2", 150.0), ("Cijk_B", 50.0)]
        trace.launch(kernels, call="hipGraphLaunch")
        trace.now += 500.0
    return trace.text()
