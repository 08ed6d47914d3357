"""Private names of torch that a benchmark in another process needs: what is asked, and the clock.

Read in torch 2.13.0 (`torch/_inductor/autotune_process.py`, `runtime/benchmarking.py`). A process
that benchmarks imports this and nothing else of torch._inductor: what compiles graphs takes as
long to import as torch itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch._inductor import autotune_process as _autotune_process

BenchmarkRequest: Any = _autotune_process.BenchmarkRequest


def time_cpu(run: Callable[[], Any]) -> float:
    """Milliseconds, measured as Inductor measures its own choices."""
    from torch._inductor.runtime.benchmarking import benchmarker

    return float(benchmarker.benchmark_cpu(run))


def time_gpu(run: Callable[[], Any]) -> float:
    """Milliseconds, measured as Inductor measures its own choices."""
    from torch._inductor.runtime.benchmarking import benchmarker

    return float(benchmarker.benchmark_gpu(run))


def tensor_metas(nodes: Sequence[Any]) -> list[Any]:
    """`TensorMeta` of each node: what a benchmark in another process makes tensors from."""
    return [_autotune_process.TensorMeta.from_irnodes(node) for node in nodes]
