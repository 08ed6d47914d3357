"""A small real model whose compilation tunes on a CPU: `python -m backend.demo`.

It has one attention block (two batched matrix products) and an MLP (two linear layers, whose
weights are frozen so that Inductor may pack them). Each tuning takes a few seconds of benchmarking.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Sequence

HEADS, WIDTH, HIDDEN = 8, 256, 512
CALLS = 60
"""Calls of each sequence length, so that the graphs have shares."""

ENVIRONMENT = {  # freezing has no effect as an option of torch.compile
    "TORCHINDUCTOR_MAX_AUTOTUNE": "1",
    "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS": "ATEN,CPP",
    "TORCHINDUCTOR_FREEZING": "1",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Compile and run the model for each sequence length, and compare it with eager."""
    parser = argparse.ArgumentParser(prog="python -m backend.demo", description=__doc__)
    parser.add_argument("tokens", nargs="*", type=int, default=[128], help="sequence lengths")
    args = parser.parse_args(argv)

    os.environ.update(ENVIRONMENT)
    # The demo uses no arrays, and torch's warning would be the first thing that a new user reads.
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    import torch
    from torch import nn

    class Block(nn.Module):  # type: ignore[misc]
        """Attention without projections, then an MLP: (tokens, WIDTH) to the same shape."""

        def __init__(self) -> None:
            super().__init__()
            self.mlp = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            heads = x.view(x.shape[0], HEADS, WIDTH // HEADS).transpose(0, 1).contiguous()
            scores = torch.bmm(heads, heads.transpose(1, 2).contiguous())
            mixed = torch.bmm(torch.softmax(scores, -1), heads)
            return x + self.mlp(mixed.transpose(0, 1).reshape(x.shape))

    torch.manual_seed(0)
    with torch.no_grad():
        block = Block().eval()
        for tokens in args.tokens:
            x = torch.randn(tokens, WIDTH)
            compiled = torch.compile(block, dynamic=False)
            error = float((compiled(x) - block(x)).abs().max())
            print(f"{tokens} tokens: largest difference to eager {error:.2e}", flush=True)
            if error > 1e-3:
                return 1
            for _ in range(CALLS):
                compiled(x)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
