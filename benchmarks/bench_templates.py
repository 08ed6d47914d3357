"""What our kernel templates cost to render and compile, and how fast they are on a GPU.

    python benchmarks/bench_templates.py [--choices 4] [--gpu-only] [--dtype float16]

1. For the CPU and each GPU that a compiler is here for: milliseconds to render and seconds to
   compile each of the first choices for a decoding and a square product, one at a time, each new.
2. On a machine with a GPU (ROCm or CUDA): GFLOP/s of every choice against `torch.mm` in the same
   run. A choice is timed only if its product is right against float64. Each sample is one launch
   after the caches were overwritten; the median of the samples counts.

The last line is JSON: one object.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.templates.errors import TemplateError
from backend.templates.heuristics import gemm_configs, skinny_configs
from backend.templates.problem import DType, Operand, Sizes
from backend.templates.rendering import Rendered
from backend.templates.resources_table import Offer, plain_problem
from backend.templates.tiles import shape_class
from backend.toolchain import code_cache, loader, targets
from backend.toolchain.errors import ToolchainError
from backend.toolchain.target import Missing, Target, amdgpu, cuda, parse_target

SAMPLES, WARM_UP = 30, 5
CACHE_BYTES = 512 << 20
"""More than the last-level cache of any GPU."""
COMPILED = (Sizes(1, 4096, 4096), Sizes(4096, 4096, 4096))
RENDERS = 9


@dataclass(frozen=True, slots=True)
class Shape:
    """A product; `weight` means that the right factor is a linear layer's, K fast."""

    kind: str
    sizes: Sizes
    weight: bool


SHAPES = (
    Shape("decoding", Sizes(1, 4096, 4096), weight=True),
    Shape("decoding", Sizes(8, 14336, 4096), weight=True),
    Shape("decoding", Sizes(16, 4096, 14336), weight=True),
    Shape("prefill", Sizes(2048, 4096, 4096), weight=True),
    Shape("prefill", Sizes(2048, 14336, 4096), weight=True),
    Shape("square", Sizes(1024, 1024, 1024), weight=False),
    Shape("square", Sizes(4096, 4096, 4096), weight=False),
    Shape("square", Sizes(8192, 8192, 8192), weight=False),
    Shape("ragged", Sizes(1000, 3001, 777), weight=False),
    Shape("ragged", Sizes(4095, 4097, 4099), weight=True),
)


def offers(
    target: Target, dtype: DType, sizes: Sizes, weight: bool, most: int, units: int | None = None
) -> list[Offer]:
    """The choices that the heuristics offer, at most `most` of each template."""
    problem, shape = plain_problem(dtype, sizes, weight), shape_class(sizes)
    return [
        Offer(shape, problem, config)
        for configs in (
            skinny_configs(problem, target, sizes, most, units),
            gemm_configs(problem, target, sizes, most, units),
        )
        for config in configs
    ]


# Render and compile.


def compile_costs(target: Target, most: int) -> dict[str, Any]:
    """Milliseconds and seconds a choice, and their medians; `off` says why there are none."""
    found = targets.find(target)
    if isinstance(found, Missing):
        return {"off": found.reason}
    try:
        offered = [o for n in COMPILED for o in offers(target, "float16", n, True, most)]
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


# On a GPU.


def gpu_target() -> tuple[Any, Target] | str:
    """torch and what to compile for; else why there is no GPU part, in one line."""
    warnings.filterwarnings("ignore", "Failed to initialize NumPy")
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    if not torch.cuda.is_available():
        return "torch finds no GPU"
    facts = torch.cuda.get_device_properties(0)
    name = facts.gcnArchName if torch.version.hip else f"{facts.major}.{facts.minor}"
    try:
        target = amdgpu(name) if torch.version.hip else cuda(name)
        found = targets.require(target)
        offers(target, "float16", COMPILED[0], True, 1)
    except (ToolchainError, TemplateError, ValueError) as error:
        return str(error)
    return (torch, target) if found.loadable else f"{found.version} makes no library for {target}"


def throughput(torch: Any, target: Target, dtype: DType, most: int) -> dict[str, Any]:
    """GFLOP/s of every choice and of torch.mm, a row a shape."""
    facts = torch.cuda.get_device_properties(0)
    units = facts.multi_processor_count
    shapes = []
    with tempfile.TemporaryDirectory(prefix="bench-templates-") as folder:
        for shape in SHAPES:
            offered = offers(target, dtype, shape.sizes, shape.weight, most, units)
            shapes.append(one_shape(torch, target, dtype, shape, offered, Path(folder)))
            print(summary(shapes[-1]), file=sys.stderr, flush=True)
    version = torch.__version__
    return {"device": facts.name, "target": str(target), "torch": version, "shapes": shapes}


def one_shape(
    torch: Any, target: Target, dtype: DType, shape: Shape, offered: list[Offer], folder: Path
) -> dict[str, Any]:
    product = Product(torch, dtype, shape)

    def build(offer: Offer) -> tuple[Rendered, Path] | str:
        try:
            rendered = offer.render()
            return rendered, code_cache.compile(rendered.source, target, cache_root=folder).path
        except (ToolchainError, TemplateError) as error:
            return str(error)

    with ThreadPoolExecutor() as pool:
        built = list(pool.map(build, offered))
    baseline = product.gflops(lambda: torch.mm(product.a, product.b, out=product.out))
    rows = [
        {"template": offer.template, "config": offer.config.description, **product.measure(made)}
        for offer, made in zip(offered, built, strict=True)
    ]
    sizes = shape.sizes
    best = {
        row["template"]: max(r.get("gflops", 0.0) for r in rows if r["template"] == row["template"])
        for row in rows
    }
    return {
        "kind": shape.kind,
        "m": sizes.m,
        "n": sizes.n,
        "k": sizes.k,
        "torch_mm_gflops": baseline,
        "best": {
            name: {"gflops": rate, "of_torch_mm": round(rate / baseline, 3)}
            for name, rate in best.items()
        },
        "choices": rows,
    }


class Product:
    """The factors, the right answer and its error bound, all on the GPU."""

    def __init__(self, torch: Any, dtype: DType, shape: Shape) -> None:
        m, n, k = shape.sizes.m, shape.sizes.n, shape.sizes.k
        kind = getattr(torch, dtype)
        self.torch, self.flop = torch, 2 * m * n * k
        torch.manual_seed(0)
        self.a = torch.randn(m, k, device="cuda").to(kind)
        w = torch.randn(*((n, k) if shape.weight else (k, n)), device="cuda").to(kind)
        self.b = w.t() if shape.weight else w
        self.out = torch.empty(m, n, device="cuda", dtype=kind)
        a, b = self.a.double(), self.b.double()
        self.exact = a @ b
        # fp32 sums in any order (Higham, "Accuracy and Stability", 3.1), then one rounding.
        self.bound = (k + 8) * 2.0**-24 * (a.abs() @ b.abs())
        self.bound += torch.finfo(kind).eps * (self.exact.abs() + self.bound) + 2.0**-25
        self.junk = torch.empty(CACHE_BYTES, device="cuda", dtype=torch.uint8)

    def measure(self, made: tuple[Rendered, Path] | str) -> dict[str, Any]:
        """`gflops`, or `error`: a choice that does not compile, or that is wrong, is not timed."""
        if isinstance(made, str):
            return {"error": made}
        try:
            run = self.launcher(*made)
            self.out.fill_(float("nan"))
            run()
            wrong = int((~((self.out.double() - self.exact).abs() <= self.bound)).sum())
            if wrong:
                return {"error": f"{wrong} of {self.out.numel()} elements are wrong"}
            return {"gflops": self.gflops(run)}
        except ToolchainError as error:
            return {"error": str(error)}

    def launcher(self, rendered: Rendered, path: Path) -> Callable[[], None]:
        """What starts the kernel once, with its workspace. Raises ToolchainError."""
        library = loader.load(path)
        tensors = {"X": self.a, "W": self.b, "Y": self.out}
        values = [
            tensors[arg.value.name].data_ptr() if isinstance(arg.value, Operand) else int(arg.value)
            for arg in rendered.args
        ]
        pointers = sum(isinstance(arg.value, Operand) for arg in rendered.args)
        entry = library.entry(rendered.name, loader.argtypes(pointers, len(values) - pointers))
        needed = ctypes.c_size_t()
        library.check(rendered.name, entry(*values, ctypes.byref(needed), None, None))
        room = self.torch.empty(needed.value, device="cuda", dtype=self.torch.uint8)
        stream = self.torch.cuda.current_stream().cuda_stream

        def run(room: Any = room) -> None:
            library.check(rendered.name, entry(*values, None, room.data_ptr(), stream))

        return run

    def gflops(self, run: Callable[[], object]) -> float:
        """The median of one launch each, with nothing of the factors left in a cache."""
        for _ in range(WARM_UP):
            run()
        events = []
        for _ in range(SAMPLES):
            self.junk.zero_()
            start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run()
            end.record()
            events.append((start, end))
        self.torch.cuda.synchronize()
        ms = statistics.median(float(start.elapsed_time(end)) for start, end in events)
        return round(self.flop / ms / 1e6, 1)


def summary(row: dict[str, Any]) -> str:
    """One line for a person who waits."""
    sizes = f"{row['m']}x{row['n']}x{row['k']}"
    best = ", ".join(f"{name} {value['of_torch_mm']}" for name, value in row["best"].items())
    failed = sum("error" in choice for choice in row["choices"])
    return (
        f"{row['kind']:<9} {sizes:<16} torch.mm {row['torch_mm_gflops']:>9} GFLOP/s; of it: {best}"
        f"{f'; {failed} failed' if failed else ''}"
    )


def median(values: Iterator[float] | list[float]) -> float | None:
    found = list(values)
    return round(statistics.median(found), 3) if found else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--choices", type=int, default=4, help="at most, of each template")
    parser.add_argument("--dtype", choices=("float16", "bfloat16", "float32"), default="float16")
    parser.add_argument("--targets", nargs="*", default=[str(t) for t in targets.DEFAULT_TARGETS])
    parser.add_argument("--gpu-only", action="store_true", help="leave out render and compile time")
    chosen = parser.parse_args()
    result: dict[str, Any] = {"benchmark": "templates", "compile": {}, "gpu": None}
    for name in [] if chosen.gpu_only else chosen.targets:
        costs = compile_costs(parse_target(name), chosen.choices)
        result["compile"][name] = costs
        told = costs.get("off") or f"{costs['render_ms']} ms render, {costs['compile_s']} s compile"
        print(f"{name:<15} {told}", file=sys.stderr, flush=True)
    here = gpu_target()
    if isinstance(here, str):
        result["gpu_off"] = here
        print(f"GPU part skipped: {here}", file=sys.stderr)
    else:
        result["gpu"] = throughput(*here, chosen.dtype, chosen.choices)
    print(json.dumps(result, allow_nan=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
