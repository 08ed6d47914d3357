"""A service that a bundle shall warm: it compiles one product and prints what that took, as JSON:
how often anything was benchmarked, hits of the graph caches, C++ files built, the kernel that runs.

PyTorch counts more: a graph that is found brings the counts of its compile.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def counting(stock: Callable[..., Any], calls: list[int]) -> Callable[..., Any]:
    def method(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return stock(*args, **kwargs)

    return method


def main() -> None:
    import torch
    from torch._dynamo.utils import counters
    from torch._inductor import config, cpp_builder
    from torch._inductor.runtime import benchmarking

    counters.clear()
    config.max_autotune = True
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config.max_autotune_gemm_backends = "ATEN,TRITON" if device == "cuda" else "ATEN,CPP"
    benchmarked = []
    for kind in (benchmarking.Benchmarker, benchmarking.InductorBenchmarker):
        for name in ("benchmark", "benchmark_cpu", "benchmark_gpu"):
            if (stock := vars(kind).get(name)) is not None:
                setattr(kind, name, counting(stock, benchmarked))
    built = []
    build = cpp_builder.CppBuilder.build

    def counted(self: cpp_builder.CppBuilder) -> None:
        built.append(1)
        build(self)

    cpp_builder.CppBuilder.build = counted  # type: ignore[method-assign]
    torch.manual_seed(0)
    a, b = torch.randn(4, 32, 64, device=device), torch.randn(4, 64, 96, device=device)
    got = torch.compile(lambda a, b: torch.relu(torch.bmm(a, b)))(a, b)
    torch.testing.assert_close(got, torch.relu(torch.bmm(a, b)), rtol=1e-2, atol=1e-2)
    counts = counters["inductor"]
    told = {
        "benchmarks": len(benchmarked),
        "hits": counts["fxgraph_cache_hit"],
        "misses": counts["fxgraph_cache_miss"],
        "companions": counters["aot_autograd"]["autograd_cache_hit"],
        "built": len(built),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
