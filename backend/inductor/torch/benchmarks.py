"""Private names of torch that a benchmark in another process needs: requests and the clock. And the
clock of graphs that are compiled with `profile_bandwidth`.

Checked with torch 2.13.0 (`torch/_inductor/autotune_process.py`, `runtime/benchmarking.py`). A
benchmark process imports this and nothing else of torch._inductor: the modules that compile graphs
take as long to import as torch itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch._inductor import autotune_process as _autotune_process
from torch._inductor import config as _config

BenchmarkRequest: Any = _autotune_process.BenchmarkRequest


def wants_profiler() -> bool:
    """Return whether Inductor times its choices on a GPU with the profiler, which leaves out what
    a launch costs the CPU."""
    return bool(_config.profile_bandwidth_with_do_bench_using_profiling)


def milliseconds(run: Callable[[], Any], *, gpu: bool, profiler: bool = False) -> float:
    """Return the time of a call on the GPU or CPU, measured as Inductor measures its choices."""
    if gpu and profiler:
        from torch._inductor.utils import do_bench_using_profiling

        return float(do_bench_using_profiling(run))
    from torch._inductor.runtime.benchmarking import benchmarker

    return float(benchmarker.benchmark_gpu(run) if gpu else benchmarker.benchmark_cpu(run))


def tensor_metas(nodes: Sequence[Any]) -> list[Any]:
    """Return `TensorMeta` of each node, for creating tensors in another process."""
    return [_autotune_process.TensorMeta.from_irnodes(node) for node in nodes]


class ProfiledKernel:
    """A kernel's call in a graph that TORCHINDUCTOR_PROFILE times, with the `gigabytes` that it
    moves: it is timed when it first runs, and is in Inductor's summary whenever it runs.

    Inductor's wrapper calls kernels on a GPU as `ALIAS.ALIAS(...)`.
    """

    def __init__(
        self, kernel: Callable[..., Any], *, name: str, gigabytes: float, gpu: bool, alias: str
    ) -> None:
        self._kernel = kernel
        self._name = name
        self._gigabytes = gigabytes
        self._gpu = gpu
        self._milliseconds = 0.0
        setattr(self, alias, self)

    def __call__(self, *arguments: Any) -> None:
        from torch._inductor.runtime.triton_heuristics import collected_calls

        def run() -> None:
            self._kernel(*arguments)

        run()
        if not self._milliseconds:
            self._milliseconds = milliseconds(run, gpu=self._gpu, profiler=wants_profiler())
        rate = self._gigabytes / (self._milliseconds / 1e3)
        collected_calls.append((self._milliseconds, self._gigabytes, rate, self._name))
