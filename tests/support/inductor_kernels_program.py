"""A program whose kernels Inductor writes, tunes and launches, for a gfx942 that is not here.

Stock PyTorch and Triton generate, compile and tune; made up are the GPU, the end of a launch, which
is written down, and the clock: a config takes what `milliseconds` says. Prints one JSON object:
`benched`, `launched` and `compiled`, each `[kernel, config]`, and `debug`, what Inductor's own log
told. Arguments: `NAME=VALUE` of `torch._inductor.config`; `refuse=KERNEL:NAME=VALUE`, a config that
cannot be loaded; `crash=KERNEL:NAME=VALUE`, one whose benchmark raises, which ends the program's
kernels; `code=FILE`, where the generated code is kept for other processes; `break=METHOD`,
a method of the hooks that raises, the first from the start and the next from the second launch of
the first kernel, which is then the only one; `compute=KERNEL:NAME=VALUE`: a launch takes its time
here and writes into its last tensor, by that config something else than by all others;
`only=KERNEL`: no other is made; `steps=N`: N lines, each after the last one was launched ten times.
"""

from __future__ import annotations

import ast
import contextlib
import json
import logging
import math
import re
import sys
import time
import types
from pathlib import Path
from typing import Any, ClassVar

import torch
import triton
import triton.language as tl
from torch._inductor import compile_fx, config
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.graph import GraphLowering
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta
from torch.library import wrap_triton
from triton.backends.amd.driver import HIPDriver
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from tests.support.made_up_gpu import Compiled, make_up_a_gpu

BENCHED: list[tuple[str, str]] = []
LAUNCHED: list[tuple[str, str]] = []
COMPILED: list[tuple[str, str]] = []
DEBUG: list[str] = []
REFUSED: set[str] = set()
CRASHING: set[str] = set()
ODD: set[str] = set()
"""Configs that compute something else; empty where nothing is computed."""
OWN: dict[int, torch.Tensor] = {}
"""The program's tensors by where they lie, kept: nobody else's may come to lie there."""
ROWS, COLUMNS = 512, 3000


def milliseconds(members: dict[str, int]) -> float:
    """Least for blocks of 32 and 4 warps."""
    away = [abs(math.log2(value) - 5) for name, value in members.items() if "BLOCK" in name]
    return round(0.1 + 0.01 * sum(away) + 0.005 * abs(math.log2(members["num_warps"]) - 2), 6)


def members_of(src: Any, metadata: Any) -> dict[str, int]:
    """The config that was compiled."""
    named = {src.fn.arg_names[place[0]]: value for place, value in src.constants.items()}
    blocks = {n: v for n, v in named.items() if isinstance(v, int) and n.isupper()}
    return {**blocks, "num_warps": metadata.num_warps, "num_stages": metadata.num_stages}


def text_of(members: dict[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(members.items()))


def is_among(configs: set[str], kernel: str, members: dict[str, int]) -> bool:
    return any(f"{kernel}:{name}={value}" in configs for name, value in members.items())


class Utils:
    def load_binary(self, name: str, *rest: object) -> tuple[object, ...]:
        return 1, name, 32, 0, 1024

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": 65536, "warpSize": 64, "max_num_regs": 65536}

    def unload_module(self, module: object) -> None:
        pass


class Launcher:
    def __init__(self, src: Any, metadata: Any) -> None:
        self._name, self._members = src.fn.__name__, members_of(src, metadata)
        if is_among(REFUSED, self._name, self._members):
            raise triton.runtime.errors.OutOfResources(99999, 65536, "shared memory")

    def __call__(self, *arguments: object) -> None:
        tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
        if ODD:
            self._compute(tensors[0], tensors[-1])
            if not OWN.keys() & {tensor.data_ptr() for tensor in tensors}:
                return
        LAUNCHED.append((self._name, text_of(self._members)))
        Clock.last = self._members

    def _compute(self, first: torch.Tensor, last: torch.Tensor) -> None:
        spent = 20 * (milliseconds(self._members) - 0.095)  # of a clock that sees more
        end = time.perf_counter() + spent / 1e3
        odd = is_among(ODD, self._name, self._members)
        last.copy_(first + (2 if odd else 1))
        while time.perf_counter() < end:
            pass


class Clock:
    """In place of the one that waits for a GPU."""

    last: ClassVar[dict[str, int]] = {}

    def benchmark(self, fn: Any = None, *rest: Any, **options: Any) -> float:
        fn()
        if is_among(CRASHING, LAUNCHED[-1][0], self.last):
            raise RuntimeError("illegal memory access")
        BENCHED.append(LAUNCHED.pop())
        return milliseconds(self.last)

    benchmark_gpu = benchmark


class Driver(HIPDriver):  # type: ignore[misc]
    launcher_cls = Launcher
    utils = Utils()

    def __init__(self) -> None:
        pass

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("hip", "gfx942", 64)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda")


@triton.autotune([triton.Config({"BLOCK": block}, num_warps=4) for block in (64, 256)], key=["n"])
@triton.jit
def user_kernel(x, y, n, BLOCK: tl.constexpr) -> None:  # noqa: ANN001
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 3, mask=at < n)


def model(x: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A pointwise kernel, a reduction, and one of the program's own."""
    y = torch.relu(x + bias)
    tripled = torch.empty_like(x)
    n = x.numel()
    wrap_triton(user_kernel)[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, tripled, n)
    return y, tripled.view(-1, 60).sum(-1)


def make_up_launches() -> None:
    make_up_a_gpu()
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor.runtime import triton_heuristics

    cuda: Any = torch.cuda
    cuda.set_device = lambda device: None
    cuda.current_stream = lambda device=None: types.SimpleNamespace(cuda_stream=0)
    CudaInterface.get_raw_stream = staticmethod(lambda device: 0)  # type: ignore[assignment]
    for name in ("exchange_device", "maybe_exchange_device", "current_device", "synchronize"):
        setattr(CudaInterface, name, staticmethod(lambda *device: 0))
    driver.set_active(Driver())
    heuristics: Any = triton_heuristics
    heuristics.benchmarker = Clock()
    stock = triton.compile

    def compile_(src: Any, **options: Any) -> Any:
        made = stock(src, **options)
        COMPILED.append((src.fn.__name__, text_of(members_of(src, made.metadata))))
        return made

    heuristics.triton.compile = compile_
    log = heuristics.log
    log.setLevel(logging.DEBUG)
    log.addHandler(Log())
    log.propagate = False


class Log(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if re.match(r"Benchmark all input configs|COORDESC: ", text):
            DEBUG.append(text)


def code_of() -> str:
    """The wrapper that Inductor writes for the model."""
    codes: list[str] = []

    def compile_to_module(graph: Any) -> Any:
        codes.append(graph.codegen()[0].value)

        def call(inputs: object) -> None:
            raise Compiled

        return types.SimpleNamespace(call=call, __file__=__file__)

    GraphLowering.compile_to_module = compile_to_module  # type: ignore[method-assign]
    with FakeTensorMode(), torch.no_grad(), contextlib.suppress(Compiled):
        x = torch.empty(ROWS, COLUMNS, device="cuda", dtype=torch.bfloat16)
        inputs = [x, torch.empty(COLUMNS, device="cuda", dtype=torch.bfloat16)]
        # torch 2.8's Dynamo takes no tensors without memory. Kernels are named after ops.
        with preserve_node_meta():
            graph = make_fx(model, decomposition_table=select_decomp_table())(*inputs)
        compile_fx.compile_fx_inner(graph, inputs)
    return codes[0]


def run_kernels(code: str, broken: list[str], only: str, steps: int) -> None:
    """Make each kernel as the wrapper does, and launch it, twice."""
    from torch._inductor.async_compile import AsyncCompile

    names = {"async_compile": AsyncCompile()}
    from torch._functorch._aot_autograd import runtime_wrappers

    name = "_AnalyzeCustomOpInputOutputMode"  # torch 2.8 has none
    around = getattr(runtime_wrappers, name, contextlib.nullcontext)
    pending = list(broken)
    for node in ast.parse(code).body:
        if isinstance(node, ast.Assign) and "async_compile.triton(" in (
            text := ast.unparse(node.value)
        ):
            if only not in text:
                continue
            made = compile(ast.Expression(node.value), "wrapper", "eval")
            for _ in range(2):
                if pending:
                    break_(pending.pop(0))
                kernel = eval(made, names)  # what Inductor has just written
                with around():  # as around each graph's first call
                    run(kernel)
            if broken:
                return
            last = made
    kernel = eval(last, names)
    for step in range(steps):
        for _ in range(10):
            run(kernel)
        print("step", step, flush=True)


def break_(point: str) -> None:
    """Let a method of the hooks raise from now on."""
    from backend.inductor.hooks import inductor_kernels

    def broken(*arguments: object) -> None:
        raise RuntimeError("broken")

    owner, _, name = point.partition(".")
    setattr(getattr(inductor_kernels, owner), name, broken)


def run(kernel: Any) -> None:
    kinds = [kind for kind in kernel.triton_meta["signature"].values() if kind != "constexpr"]
    tensors = [torch.full((16,), at, dtype=torch.bfloat16) for at in range(len(kinds))]
    OWN.update((tensor.data_ptr(), tensor) for tensor in tensors)
    given = [
        t if k.startswith("*") else ROWS * COLUMNS for t, k in zip(tensors, kinds, strict=True)
    ]
    more = [8 for _ in kernel.inductor_meta.get("extra_launcher_args", ())]
    kernel.run(*given, *more, stream=0)


def main(arguments: list[str]) -> None:
    make_up_launches()
    options: dict[str, Any] = {
        "compile_threads": 1,
        "fx_graph_cache": False,
    }
    named = ("use_static_triton_launcher", "use_static_cuda_launcher")  # up to torch 2.9
    options[next(name for name in named if hasattr(config, name))] = False
    kept: Path | None = None
    broken: list[str] = []
    only, steps = "", 0
    for argument in arguments:
        name, _, value = argument.partition("=")
        if name == "refuse":
            REFUSED.add(value)
        elif name == "crash":
            CRASHING.add(value)
        elif name == "compute":
            ODD.add(value)
        elif name == "break":
            broken.append(value)
        elif name == "only":
            only = value
        elif name == "steps":
            steps = int(value)
        elif name == "code":
            kept = Path(value)
        else:
            options[name] = json.loads(value)
    with config.patch(options):
        code = kept.read_text() if kept and kept.exists() else code_of()
        if kept:
            kept.write_text(code)
        with contextlib.suppress(RuntimeError) if CRASHING else contextlib.nullcontext():
            run_kernels(code, broken, only, steps)
    told = {"benched": BENCHED, "launched": LAUNCHED, "compiled": COMPILED, "debug": DEBUG}
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1:])
