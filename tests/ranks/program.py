"""A rank of a job of a few products, for torchrun.

Its choices are calls of ATen, all as fast as each other, so that which one is the fastest is chance
and nothing is compiled; with `--cpp` they are those that Inductor has for a CPU, ATen and C++.
"""

from __future__ import annotations

import os
import sys

from tests.ranks import scenes

SIZES = ((2, 64, 64, 48), (8, 32, 32, 64), (2, 96, 48, 64))
"""Batch, rows, inner, columns. On one core, of one machine, ATen and the C++ template took 11.9 and
11.8, 14.5 and 15.5, 18.0 and 16.8 µs."""


def main() -> None:
    import torch

    torch.set_num_threads(1)
    if sys.argv[1:] == ["--cpp"]:
        compiled()
    else:
        scenes.prepare()
        scenes.job(os.environ["TORCHINDUCTOR_CACHE_DIR"])


def compiled() -> None:
    """Compile the products, each rank with a number of its own in the graph: else one might take
    the graph that another has compiled, with its choices."""
    import torch
    import torch._inductor.config as config
    import torch.distributed as dist

    dist.init_process_group("gloo")
    own = 2 + dist.get_rank()
    pairs = [(torch.randn(b, m, k), torch.randn(b, k, n)) for b, m, k, n in SIZES]

    def products(operands: list[tuple[torch.Tensor, torch.Tensor]]) -> list[torch.Tensor]:
        return [torch.bmm(left, right) * own for left, right in operands]

    # A header that is compiled ahead takes longer than these kernels, and lies in the cache dir.
    with config.patch({"max_autotune": True, "cpp_cache_precompile_headers": False}):
        torch.compile(products)(pairs)
    total = torch.tensor(1.0)
    dist.all_reduce(total)
    assert total.item() == dist.get_world_size()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
