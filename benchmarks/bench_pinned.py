"""How long a pinned model compiles under `rocm-tui run`, against one that is not tuned at all.

    python benchmarks/bench_pinned.py [--rounds 5]

A model of four bmm is tuned once, and of each the slowest choice is pinned. Then it is compiled by
turns, each time in a new process without graph caches: untuned under stock torch; tuned, with a
cache that holds every time, under stock torch; pinned under `rocm-tui run`. What was compiled by
g++ is warm. Seconds are those of the first call, without imports. Prints one JSON object. Works in
a temporary folder and removes it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backend.disk.layout import Layout
from backend.pins.store import PinStore
from rocm_tui.ingest.follow.sources import read_sources
from rocm_tui.session.model import Model

PROGRAM = """
import sys, time
import torch
import torch._inductor.select_algorithm
from torch._inductor import config
config.max_autotune = sys.argv[1] == "tuned"
config.fx_graph_cache = False
import torch._functorch.config as functorch
functorch.enable_autograd_cache = False
torch.manual_seed(0)
SIZES = ((8, 128, 256, 192), (4, 96, 64, 96), (2, 64, 128, 64), (6, 32, 64, 128))
pairs = [(torch.randn(b, m, k), torch.randn(b, k, n)) for b, m, k, n in SIZES]
def model(pairs):
    return [torch.relu(torch.bmm(a, b)) for a, b in pairs]
begin = time.perf_counter()
torch.compile(model)(pairs)
print("seconds", time.perf_counter() - begin)
"""

WAYS: Mapping[str, tuple[str, bool]] = {
    "untuned, stock": ("untuned", False),
    "tuned, cached, stock": ("tuned", False),
    "pinned, run": ("tuned", True),
}
"""What the program is told, and whether it runs under `rocm-tui run`."""


def seconds(cache: Path, told: str, hooked: bool) -> float:
    """The first call's seconds in a new process."""
    run = [sys.executable, "-m", "rocm_tui", "run", "--quiet", "--"] if hooked else []
    done = subprocess.run(
        [*run, sys.executable, "-W", "ignore", "-c", PROGRAM, told],
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.split("seconds ")[1])


def pin_all(cache: Path) -> int:
    """Pin the slowest choice of every tuning; how many."""
    layout = Layout(cache)
    model = Model()
    model.apply(read_sources([str(layout.autotune)]))
    for row in model.rows():
        key, choice = row.tuning.key, row.tuning.choices[-1]
        if key is not None and choice.hash is not None:
            PinStore(layout).pin(None, key, choice.hash, label=choice.label)
    return len(model.rows())


def measure(rounds: int) -> dict[str, Any]:
    """Median seconds of each way, and their ratios to the untuned one within a round."""
    with tempfile.TemporaryDirectory() as folder:
        kept, pinned = Path(folder, "kept"), Path(folder, "pinned")
        for cache in (kept, pinned):
            seconds(cache, "untuned", False)  # C++ compiled, so that only Inductor is timed
            seconds(cache, "tuned", False)
        tunings = pin_all(pinned)
        seconds(pinned, "tuned", True)
        found: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(rounds):
            for way, (told, hooked) in WAYS.items():
                cache = pinned if hooked else kept
                found[way].append(seconds(cache, told, hooked))
    base = found["untuned, stock"]
    return {
        "tunings": tunings,
        "rounds": rounds,
        "seconds": {way: round(statistics.median(times), 3) for way, times in found.items()},
        "ratio": {
            way: round(
                statistics.median(mine / other for mine, other in zip(times, base, strict=True)), 3
            )
            for way, times in found.items()
        },
        "budget": {"pinned, run": 1.1},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    print(json.dumps(measure(parser.parse_args().rounds), indent=2))


if __name__ == "__main__":
    main()
