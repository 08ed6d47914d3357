"""What our kernel templates cost to render and compile, and how fast they are on a GPU.

    python benchmarks/bench_templates.py [--choices 4] [--gpu-only] [--only skinny ...] \\
        [--seconds 420] [--out speed.md]

1. For the CPU and each GPU that a compiler is here for: milliseconds to render and seconds to
   compile each of the first choices for a decoding and a square product, one at a time, each new.
2. On a machine with a GPU (ROCm or CUDA): our best choice against torch (for a convolution: the
   fastest of cuDNN's) in the same run, three runs, and the bandwidth of a copy beside it. A choice
   is timed only if its product is right against float64. Cold: launches go over copies of the
   factors that no cache holds together; hot: always the same ones. Launches stand in a CUDA graph,
   so that no host is timed.

The table is written anew to `--out` after each product; after `--seconds` no further one is begun.
The last line is JSON: one object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import conv_speed
from template_speed import CASES, SMOKE, Bench, Case, Compared, gpu_target, offers, throughput

from backend.errors import TemplateError, ToolchainError
from backend.templates.problem import Sizes
from backend.toolchain import code_cache, targets
from backend.toolchain.target import Missing, Target, cpu, parse_target
from tools.resources_table import Offer

COMPILED = (Sizes(1, 4096, 4096), Sizes(4096, 4096, 4096))
RENDERS = 9
ALL: tuple[Compared, ...] = (*CASES, *conv_speed.CONVOLUTIONS)


# Render and compile.


def compile_costs(target: Target, most: int) -> dict[str, Any]:
    """Milliseconds and seconds a choice, and their medians; `off` says why there are none."""
    found = targets.find_compiler(target)
    if isinstance(found, Missing):
        return {"off": found.reason}
    try:
        offered = [o for n in COMPILED for o in offers(target, "float16", Case("", n), most)]
    except TemplateError as error:
        return {"off": str(error)}
    binaries = {(offer.template, offer.config.binary): offer for offer in offered}
    with tempfile.TemporaryDirectory(prefix="bench-templates-") as folder:
        choices = [compile_cost(offer, target, Path(folder)) for offer in binaries.values()]
    return {
        "compiler": found.version,
        "render_ms": median(row["render_ms"] for row in choices),
        "compile_s": median(row["compile_s"] for row in choices if "compile_s" in row),
        "choices": choices,
    }


def compile_cost(offer: Offer, target: Target, cache_root: Path) -> dict[str, Any]:
    """One choice: rendered often, compiled once."""
    times = []
    for _ in range(RENDERS):
        began = time.perf_counter()
        rendered = offer.render()
        times.append(1000 * (time.perf_counter() - began))
    row: dict[str, Any] = {
        "template": offer.template,
        "config": offer.config.binary.description,
        "render_ms": median(times),
    }
    try:
        compiled = code_cache.compile(rendered.source, target, cache_root=cache_root)
        row["compile_s"] = round(compiled.seconds, 3)
    except ToolchainError as error:
        row["error"] = str(error)
    return row


def median(values: Iterator[float] | list[float]) -> float | None:
    found = list(values)
    return round(statistics.median(found), 3) if found else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--choices", type=int, default=4, help="at most, of each template")
    parser.add_argument("--dtype", choices=("float16", "bfloat16", "float32"), default="float16")
    parser.add_argument("--targets", nargs="*", default=[str(t) for t in targets.DEFAULT_TARGETS])
    parser.add_argument("--gpu-only", action="store_true", help="leave out render and compile time")
    kinds = sorted({case.kind for case in (*ALL, *SMOKE)})
    parser.add_argument("--only", nargs="*", choices=kinds, help="these products only")
    parser.add_argument("--seconds", type=float, default=420, help="begin no product after that")
    parser.add_argument("--out", type=Path, help="where to write the table")
    chosen = parser.parse_args()
    result: dict[str, Any] = {"benchmark": "templates", "compile": {}, "gpu": None}
    for name in [] if chosen.gpu_only else chosen.targets:
        costs = compile_costs(parse_target(name), chosen.choices)
        result["compile"][name] = costs
        told = costs.get("off") or f"{costs['render_ms']} ms render, {costs['compile_s']} s compile"
        print(f"{name:<15} {told}", file=sys.stderr, flush=True)
    smoke = chosen.only == ["smoke"]
    here = cpu() if smoke else gpu_target()
    if isinstance(here, str):
        result["gpu_off"] = here
        print(f"GPU part skipped: {here}", file=sys.stderr)
    else:
        smokes: tuple[Compared, ...] = (*SMOKE, *conv_speed.SMOKE)
        cases = [c for c in (smokes if smoke else ALL) if c.kind in (chosen.only or kinds)]
        with tempfile.TemporaryDirectory(prefix="bench-templates-") as folder:
            bench = Bench(here, chosen.dtype, chosen.choices, Path(folder))
            deadline = time.monotonic() + chosen.seconds
            result["gpu"] = throughput(bench, cases, deadline, chosen.out)
    print(json.dumps(result, allow_nan=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
