"""A rank of a job of a few products, for torchrun.

Its choices are calls of ATen, all as fast as each other, so that which one is the fastest is chance
and nothing is compiled; with `--cpp` they are those that Inductor has for a CPU, ATen and C++; with
`--gpu` those for the GPU of each rank, ATen and Triton.
"""

from __future__ import annotations

import os
import sys

from tests.ranks import scenes

SIZES = ((2, 64, 64, 48), (8, 32, 32, 64), (2, 96, 48, 64))
"""Batch, rows, inner, columns. On one core, of one machine, ATen and the C++ template took 11.9 and
11.8, 14.5 and 15.5, 18.0 and 16.8 µs."""

GPU_PROBLEMS = 4
"""A product, one with a bias, a batch and one that is long in its inner dimension."""


def main() -> None:
    import torch

    torch.set_num_threads(1)
    if sys.argv[1:] == ["--gpu"]:
        on_gpus()
    elif sys.argv[1:] == ["--cpp"]:
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


def on_gpus() -> None:
    """Compile four products on this rank's GPU, with the rank's own number in each graph.

    A number in RANKS_SALT is part of each graph, too: with another one they are compiled again.
    """
    import torch
    import torch._inductor.config as config
    import torch.distributed as dist

    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    own = 2.0 + dist.get_rank() + float(os.environ.get("RANKS_SALT", "0"))

    def tensor(*sizes: int) -> torch.Tensor:
        return torch.randn(sizes, device="cuda", dtype=torch.bfloat16)

    def products(
        mm: list[torch.Tensor],
        addmm: list[torch.Tensor],
        bmm: list[torch.Tensor],
        long: list[torch.Tensor],
    ) -> list[torch.Tensor]:
        calls = (torch.mm, mm), (torch.addmm, addmm), (torch.bmm, bmm), (torch.mm, long)
        return [torch.relu(call(*operands)) * own for call, operands in calls]

    with config.patch({"max_autotune": True, "max_autotune_gemm_backends": "ATEN,TRITON"}):
        torch.compile(products, dynamic=False)(
            [tensor(512, 768), tensor(768, 640)],
            [tensor(320), tensor(256, 512), tensor(512, 320)],
            [tensor(8, 128, 256), tensor(8, 256, 192)],
            [tensor(64, 4096), tensor(4096, 1024)],
        )
    torch.cuda.synchronize()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
