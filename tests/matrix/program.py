"""The program of a person: a batched product with relu, and a frozen linear layer with relu.

It knows nothing of us. Results are compared with eager PyTorch; the last line says how many
compiled graphs it looked for in vain. What it calls is seen in the code that it prints with
TORCH_LOGS=output_code.
"""

import sys

import torch
from torch._dynamo.utils import counters
from torch._inductor import config

config.max_autotune = True
torch.manual_seed(0)


def bmm() -> tuple[torch.Tensor, torch.Tensor]:
    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.bmm(a, b))

    a, b = torch.randn(4, 32, 64), torch.randn(4, 64, 96)
    return torch.compile(function)(a, b), function(a, b)


def linear() -> tuple[torch.Tensor, torch.Tensor]:
    model = torch.nn.Sequential(torch.nn.Linear(96, 64), torch.nn.ReLU()).eval()
    x = torch.randn(32, 96)
    with torch.no_grad(), config.patch(freezing=True):
        return torch.compile(model)(x), model(x)


for part in (bmm, linear):
    print(f"# compiling {part.__name__}", file=sys.stderr, flush=True)
    compiled, eager = part()
    torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-4)
    print(f"{part.__name__} is right", flush=True)
print(f"{counters['inductor']['fxgraph_cache_miss']} graphs not found")
