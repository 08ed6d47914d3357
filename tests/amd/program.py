"""The program of a person: products that Inductor tunes. It knows nothing of rocm-tui.

    python program.py cpu|cuda [--all-devices]

A line of JSON for each product: how far it is from float64, and how many tunings were benchmarked.
A line of stderr names each product, so that the code which TORCH_LOGS=output_code prints after it
can be attributed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import torch
from torch._dynamo.utils import counters
from torch._inductor import config

config.max_autotune = True

Product = tuple[Callable[..., torch.Tensor], tuple[tuple[int, ...], tuple[int, ...]]]
PRODUCTS: dict[str, Product] = {
    "bmm": (lambda a, b: torch.relu(torch.bmm(a, b)), ((8, 128, 256), (8, 256, 192))),
    "mm": (lambda a, b: a @ b, ((512, 1024), (1024, 768))),
}


def attempt(name: str, device: str) -> dict[str, object]:
    """Compile a product for a device and compare it with float64."""
    torch._dynamo.reset()
    function, shapes = PRODUCTS[name]
    dtype = torch.float32 if device == "cpu" else torch.float16
    torch.manual_seed(0)
    a, b = (torch.randn(shape).to(device, dtype) for shape in shapes)
    before = counters["inductor"]["select_algorithm_autotune"]
    print(f"# product {name} on {device}", file=sys.stderr, flush=True)
    out = torch.compile(function, dynamic=False)(a, b)
    exact = function(a.double().cpu(), b.double().cpu())
    error = ((out.double().cpu() - exact).abs().max() / exact.abs().max()).item()
    return {
        "product": name,
        "device": device,
        "error": error,
        "right": error < (1e-4 if dtype == torch.float32 else 1e-2),
        "benchmarked": counters["inductor"]["select_algorithm_autotune"] - before,
    }


def main(kind: str, *words: str) -> None:
    count = torch.cuda.device_count() if "--all-devices" in words else 1
    devices = ["cpu"] if kind == "cpu" else [f"cuda:{index}" for index in range(count)]
    for device in devices:
        # A product of two matrices is not tuned on a CPU.
        for name in PRODUCTS if kind == "cuda" and count == 1 else ["bmm"]:
            print(json.dumps(attempt(name, device)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
