"""How fast our products are beside torch: the part of bench_templates.py for a GPU."""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).parents[1]))  # `tools` is beside this folder

from speed_table import markdown

from backend.errors import TemplateError, ToolchainError
from backend.templates.heuristics import gemm_configs, skinny_configs
from backend.templates.operand import DType, Operand
from backend.templates.problem import Activation, Sizes
from backend.templates.rendering import Rendered
from backend.templates.tiles import shape_class
from backend.toolchain import code_cache, targets
from backend.toolchain.target import Target, amdgpu, cuda
from tools.resources_table import Offer, plain_problem

warnings.filterwarnings("ignore", "Failed to initialize NumPy")
import torch  # noqa: E402

RUNS, LAUNCHES = 3, 24
COLD_BYTES = 256 << 20
"""What copies of the factors take together: more than the last-level cache of any GPU."""


@dataclass(frozen=True, slots=True)
class Case:
    """A product; `weight` means that the right factor is a linear layer's, K fast. With an
    activation there is a bias too, and torch needs a second kernel."""

    kind: str
    sizes: Sizes
    weight: bool = True
    activation: Activation = "none"

    @property
    def moved(self) -> int:
        """Elements that are read and written at least."""
        m, n, k = self.sizes.m, self.sizes.n, self.sizes.k
        return m * k + k * n + m * n

    @property
    def shape(self) -> str:
        return f"{self.sizes.m}x{self.sizes.n}x{self.sizes.k}"

    @property
    def layout(self) -> str:
        return "K fast" if self.weight else "N fast"

    def offers(self, target: Target, dtype: DType, most: int, units: int | None) -> list[Offer]:
        return offers(target, dtype, self, most, units)

    def product(self, bench: Bench) -> Product:
        return Product(bench, self)


def _cases() -> Iterator[Case]:
    for n, k in ((4096, 4096), (14336, 4096), (4096, 14336)):
        for rows in (1, 2, 4, 8, 16, 32, 64):
            yield Case("skinny", Sizes(rows, n, k))
    yield Case("skinny", Sizes(1, 4096, 4096), weight=False)
    yield Case("skinny", Sizes(16, 4096, 4096), weight=False)
    for weight in (False, True):
        yield Case("square", Sizes(4096, 4096, 4096), weight)
    yield Case("square", Sizes(2048, 14336, 4096))
    yield Case("ragged", Sizes(1000, 1544, 2088), weight=False)
    yield Case("ragged", Sizes(1000, 1544, 2088))
    yield Case("ragged", Sizes(4095, 4097, 4099))
    for side in (256, 512, 1024):
        yield Case("small", Sizes(side, side, side), weight=False)
    for m, n, k in ((16, 4096, 4096), (512, 4096, 4096), (1024, 1024, 1024)):
        yield Case("fused", Sizes(m, n, k), activation="gelu")
    yield Case("fused", Sizes(2048, 14336, 4096), activation="silu")
    yield Case("fused", Sizes(4096, 4096, 4096), activation="relu")


class Compared(Protocol):
    """What is timed beside torch."""

    @property
    def kind(self) -> str: ...

    @property
    def shape(self) -> str: ...

    @property
    def layout(self) -> str: ...

    @property
    def activation(self) -> Activation: ...

    def offers(self, target: Target, dtype: DType, most: int, units: int | None) -> list[Offer]: ...

    def product(self, bench: Bench) -> Product: ...


CASES = tuple(_cases())
SMOKE = (Case("smoke", Sizes(4, 64, 96)), Case("smoke", Sizes(48, 64, 96), activation="relu"))
"""What a test runs on a CPU."""


def offers(
    target: Target, dtype: DType, case: Case, most: int, units: int | None = None
) -> list[Offer]:
    """The choices that the heuristics offer, at most `most` of each template."""
    sizes = case.sizes
    problem, shape = plain_problem(dtype, sizes, case.weight), shape_class(sizes)
    if case.activation != "none":
        bias = Operand("bias", dtype, (sizes.n,), (1,))
        problem = replace(problem, bias=bias, activation=case.activation)
    return [
        Offer(shape, problem, config)
        for configs in (
            skinny_configs(problem, target, sizes, most, units),
            gemm_configs(problem, target, sizes, most, units),
        )
        for config in configs
    ]


def gpu_target() -> Target | str:
    """What to compile for; else why there is no GPU part, in one line."""
    if not torch.cuda.is_available():
        return "torch finds no GPU"
    facts = torch.cuda.get_device_properties(0)
    name = facts.gcnArchName if torch.version.hip else f"{facts.major}.{facts.minor}"
    try:
        target = amdgpu(name) if torch.version.hip else cuda(name).specific
        found = targets.require(target)
        offers(target, "float16", CASES[0], 1)
    except (ToolchainError, TemplateError, ValueError) as error:
        return str(error)
    return target if found.loadable else f"{found.version} makes no library for {target}"


@dataclass
class Bench:
    """Where and how products are timed."""

    target: Target
    dtype: DType
    most: int
    folder: Path

    @property
    def device(self) -> str:
        return "cpu" if self.target.kind == "cpu" else "cuda"

    @property
    def units(self) -> int | None:
        if self.device == "cpu":
            return None
        return int(torch.cuda.get_device_properties(0).multi_processor_count)

    def offers(self, case: Compared) -> list[Offer]:
        return case.offers(self.target, self.dtype, self.most, self.units)

    def build_all(self, cases: Sequence[Compared]) -> None:
        """Each binary of all cases, on all cores; what fails fails again when it is asked for."""
        found = [offer for case in cases for offer in self.offers(case)]
        with ThreadPoolExecutor() as pool:
            list(pool.map(self.build, found))

    def build(self, offer: Offer) -> tuple[Rendered, Path] | str:
        try:
            rendered = offer.render()
            made = code_cache.compile(rendered.source, self.target, cache_root=self.folder)
            return rendered, made.path
        except (ToolchainError, TemplateError) as error:
            return str(error).splitlines()[0]

    def microseconds(self, launches: Sequence[Callable[[], object]]) -> float:
        """Of one launch, of all of them one after the other."""
        for launch in launches[:2]:
            launch()
        if self.device == "cpu":
            began = time.perf_counter()
            for launch in launches:
                launch()
            return 1e6 * (time.perf_counter() - began) / len(launches)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for launch in launches:
                launch()
        times = []
        for _ in range(5):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(1e3 * start.elapsed_time(end) / len(launches))
        return statistics.median(times[1:])

    def copy_bandwidth(self) -> float:
        """GB/s that a copy reads and writes."""
        size = COLD_BYTES if self.device == "cuda" else 1 << 20
        a = torch.empty(2, size, device=self.device, dtype=torch.uint8)
        return 2 * size / self.microseconds([lambda: a[0].copy_(a[1])] * 8) / 1e3


class Product:
    """The factors, copies of them, the right answer and its error bound."""

    def __init__(self, bench: Bench, case: Case) -> None:
        self.bench, self.case = bench, case
        m, n, k = case.sizes.m, case.sizes.n, case.sizes.k
        kind, device = getattr(torch, bench.dtype), bench.device
        torch.manual_seed(0)
        self.bytes = case.moved * torch.empty((), dtype=kind).element_size()
        copies = self.copies()
        self.a = torch.randn(copies, m, k, device=device).to(kind)
        w = torch.randn(n, k, device=device).to(kind)
        whole = w.expand(copies, n, k).contiguous()
        self.b = whole.mT if case.weight else whole.mT.contiguous()
        self.a[:] = self.a[0].clone()
        self.bias = torch.randn(n, device=device).to(kind)
        self.out = torch.empty(copies, m, n, device=device, dtype=kind)
        a, b = self.a[0].double(), self.b[0].double()
        self.exact, size = a @ b, a.abs() @ b.abs()
        if case.activation != "none":
            self.exact, size = self.exact + self.bias.double(), size + self.bias.double().abs()
            self.exact = ACTIVATION[case.activation](self.exact)
        self.bound = self.bound_of(size, k)

    def copies(self) -> int:
        """Of the factors: no cache holds all of them."""
        many = min(LAUNCHES, -(-COLD_BYTES // self.bytes))
        return many if self.bench.device == "cuda" else 2

    def bound_of(self, size: torch.Tensor, k: int) -> torch.Tensor:
        """Of the error of `k` terms, whose absolute values add up to `size`: fp32 sums in any order
        (Higham, "Accuracy and Stability", 3.1), then one rounding."""
        bound = 1.2 * (k + 16) * 2.0**-24 * size
        eps = torch.finfo(getattr(torch, self.bench.dtype)).eps
        return bound + 1.1 * eps * (self.exact.abs() + bound) + 2.0**-22

    def torch_launches(self, hot: bool) -> list[Callable[[], object]]:
        def launch(i: int) -> Callable[[], object]:
            a, b, out = self.a[i], self.b[i], self.out[i]
            if self.case.activation == "none":
                return lambda: torch.mm(a, b, out=out)
            activate = ACTIVATION[self.case.activation]
            return lambda: activate(torch.addmm(self.bias, a, b))

        return self.over_copies(launch, hot)

    def our_launches(self, made: tuple[Rendered, Path], hot: bool) -> list[Callable[[], object]]:
        """Raises ToolchainError."""
        rendered, path = made
        library = code_cache.load(path)
        pointers = sum(isinstance(arg.value, Operand) for arg in rendered.args)
        types = code_cache.argtypes(pointers, len(rendered.args) - pointers)
        entry = library.entry(rendered.name, types)
        rooms = [torch.empty(0, device=self.bench.device, dtype=torch.uint8)]

        def launch(i: int) -> Callable[[], object]:
            tensors = {"X": self.a[i], "W": self.b[i], "Y": self.out[i], "bias": self.bias}
            values = [
                tensors[arg.value.name].data_ptr()
                if isinstance(arg.value, Operand)
                else int(arg.value)
                for arg in rendered.args
            ]
            needed = ctypes.c_size_t()
            library.check(rendered.name, entry(*values, ctypes.byref(needed), None, None))
            # One for all, as cuBLAS has one and as an allocator gives the same memory again.
            if rooms[0].numel() < needed.value:
                rooms[0] = torch.empty(needed.value, device=self.bench.device, dtype=torch.uint8)

            def run(room: torch.Tensor = rooms[0]) -> None:
                stream = torch.cuda.current_stream().cuda_stream if room.is_cuda else None
                library.check(rendered.name, entry(*values, None, room.data_ptr(), stream))

            return run

        return self.over_copies(launch, hot)

    def over_copies(
        self, launch: Callable[[int], Callable[[], object]], hot: bool
    ) -> list[Callable[[], object]]:
        each = [launch(i) for i in range(1 if hot else len(self.a))]
        return [each[i % len(each)] for i in range(LAUNCHES if self.bench.device == "cuda" else 2)]

    def measure(self, offer: Offer) -> dict[str, Any]:
        """`us`, cold, or `error`: what does not compile, or is wrong, is not timed."""
        row = {"template": offer.template, "config": offer.config.description}
        made = self.bench.build(offer)
        if isinstance(made, str):
            return {**row, "error": made}
        try:
            launches = self.our_launches(made, hot=False)
            self.out.fill_(float("nan"))
            launches[0]()
            wrong = int((~((self.out[0].double() - self.exact).abs() <= self.bound)).sum())
            if wrong:
                return {**row, "error": f"{wrong} of {self.out[0].numel()} elements are wrong"}
            return {**row, "us": self.bench.microseconds(launches), "made": made}
        except (ToolchainError, RuntimeError) as error:
            return {**row, "error": str(error).splitlines()[0]}

    def compare(self) -> dict[str, Any]:
        """Our best choice and torch, in turn, three times."""
        choices = [self.measure(offer) for offer in self.bench.offers(self.case)]
        row: dict[str, Any] = {
            "kind": self.case.kind,
            "shape": self.case.shape,
            "layout": self.case.layout,
            "activation": self.case.activation,
        }
        right = [choice for choice in choices if "us" in choice]
        if right:
            best = min(right, key=lambda choice: float(choice["us"]))
            row |= {"best": best["config"], "template": best["template"]}
            for name, hot in (("cold", False), ("hot", True)):
                ours, theirs = self.our_launches(best["made"], hot), self.torch_launches(hot)
                times = [
                    (self.bench.microseconds(theirs), self.bench.microseconds(ours))
                    for _ in range(RUNS)
                ]
                row |= {f"torch_{name}_us": [round(t, 2) for t, _ in times]}
                row |= {f"ours_{name}_us": [round(t, 2) for _, t in times]}
        row["choices"] = [{k: v for k, v in choice.items() if k != "made"} for choice in choices]
        return row


ACTIVATION: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu,
}


def throughput(
    bench: Bench, cases: Sequence[Compared], deadline: float, out: Path | None
) -> dict[str, Any]:
    """A row a case; `left_out` counts those for which no time was left, `failed` says why."""
    name = torch.cuda.get_device_name(0) if bench.device == "cuda" else "CPU"
    result: dict[str, Any] = {
        "device": name,
        "target": str(bench.target),
        "torch": torch.__version__,
        "dtype": bench.dtype,
        "copy_gb_s": round(bench.copy_bandwidth(), 1),
        "shapes": [],
        "left_out": 0,
        "failed": [],
    }
    bench.build_all(cases)
    for case in cases:
        if time.monotonic() > deadline:
            result["left_out"] += 1
            continue
        try:
            product = case.product(bench)
            result["shapes"].append({**product.compare(), "bytes": product.bytes})
            del product
        except RuntimeError as error:  # of torch: no memory, or what a kernel left behind
            result["failed"] += [f"{case}: {str(error).splitlines()[0]}"]
            continue
        text = markdown(result)
        print(text.splitlines()[-1], file=sys.stderr, flush=True)
        if out is not None:
            out.write_text(text, encoding="utf-8")
    return result
