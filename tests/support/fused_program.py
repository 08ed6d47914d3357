"""A real program in which a product's choice decides what is fused: a bmm, then relu and an
addition. The C++ template takes these into its own kernel, ATen leaves them to another."""

from __future__ import annotations

import torch

SIZES = 2, 64, 64, 96


def passes(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.relu(torch.bmm(a, b)) + bias


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    batch, m, n, k = SIZES
    given = torch.randn(batch, m, k), torch.randn(batch, k, n), torch.randn(n)
    backends = {"max_autotune": True, "max_autotune_gemm_backends": "ATEN,CPP"}
    compiled = torch.compile(passes, options=backends)
    with torch.no_grad():
        for _ in range(30):
            compiled(*given)


main()
