"""A small real program: two products and what is fused around them. A line for 300
passes, or for as many as the second argument says.
"""

from __future__ import annotations

import sys

import torch


def passes(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    x = torch.nn.functional.gelu(torch.bmm(a, b))
    return torch.bmm(x, c).softmax(-1)


def main(steps: int, passes_a_step: int = 300) -> None:
    torch.manual_seed(0)
    given = torch.randn(4, 24, 32), torch.randn(4, 32, 40), torch.randn(4, 40, 16)
    backends = {"max_autotune": True, "max_autotune_gemm_backends": "ATEN,CPP"}
    compiled = torch.compile(passes, options=backends)
    with torch.no_grad():
        for step in range(steps):
            for _ in range(passes_a_step):
                compiled(*given)
            print(f"step {step}", flush=True)


main(*map(int, sys.argv[1:]))
