"""Runs kernels of templates on the CPU target, where a wrong access cannot hide, or elsewhere.

Every tensor stands in memory shared with a forked child that makes the call: a fault is a result.
An input ends where a page begins that may not be touched; around the result and the workspace, and
between the result's lines, stand bytes that must come back as they were. `gpu_lab` starts the same
calls on a GPU.
"""

from __future__ import annotations

import ctypes
import faulthandler
import math
import mmap
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from backend.templates.problem import Sizes
from backend.templates.rendering import Rendered
from backend.toolchain import code_cache
from backend.toolchain.target import CompileOptions, cpu

PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

OPTIONS = CompileOptions(level=0, defines=(("RT_LDS_LIMIT", "232448"),))
"""As much LDS as a launch on sm_90 may have; most of the time is compiling: no optimizations."""
EPSILON = {
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
    torch.float32: 2.0**-24,
    torch.float64: 2.0**-53,
    torch.int32: 0.0,
}
"""Half a unit in the last place."""
TINY = {
    torch.float16: 2.0**-25,
    torch.bfloat16: 2.0**-133,
    torch.float32: 2.0**-149,
    torch.float64: 2.0**-1074,
    torch.int32: 0.0,
}
SUMS = {"float32": 2.0**-24, "float64": 2.0**-52, "int32": 0.0}
"""By type: what an addition may be off, that of the float64 it is compared with included."""
ACTIVATION: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda x: x,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
}


class Memory:
    """Bytes of 0xff, a NaN in every type, then a page that faults. Shared with forked children."""

    def __init__(self, room: int) -> None:
        self.room = room
        pages = -(-room // PAGE) + 1
        self.map = mmap.mmap(-1, (pages + 1) * PAGE)
        self.bytes = torch.frombuffer(self.map, dtype=torch.uint8)[: pages * PAGE]
        self.bytes.fill_(0xFF)
        self.address = self.bytes.data_ptr()
        if _libc.mprotect(self.address + pages * PAGE, PAGE, 0):
            raise OSError(ctypes.get_errno(), "mprotect")

    def at_end(self, span: int) -> int:
        """Where `span` bytes begin that end at the fault, but for an alignment of 16."""
        return (self.bytes.numel() - span) // 16 * 16

    def tensor(
        self, dtype: torch.dtype, sizes: tuple[int, ...], strides: tuple[int, ...]
    ) -> torch.Tensor:
        """A view of the last bytes before the fault."""
        item = dtype.itemsize
        last = sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
        span = 0 if 0 in sizes else (last + 1) * item
        begin = self.at_end(span)
        return self.bytes[begin:].view(dtype).as_strided(sizes, strides)


def memory_for(
    dtype: torch.dtype, sizes: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[Memory, torch.Tensor]:
    last = sum(max(0, n - 1) * step for n, step in zip(sizes, strides, strict=True))
    memory = Memory((last + 1) * dtype.itemsize)
    return memory, memory.tensor(dtype, sizes, strides)


Start = Callable[[code_cache.Entry, Sequence[torch.Tensor | int], Memory], int | str]
"""Calls an entry with tensors and numbers, and a workspace that fills its memory up to the end but
for an alignment: the code that it returns, or what else went wrong."""


def in_child(
    call: code_cache.Entry, values: Sequence[torch.Tensor | int], workspace: Memory
) -> int | str:
    """The call's code, or the signal that ended it."""
    return in_one_child(call, [(values, workspace)])[0]


def in_one_child(
    call: code_cache.Entry, calls: Sequence[tuple[Sequence[torch.Tensor | int], Memory]]
) -> list[int | str]:
    """The codes of calls, one after the other, up to the first that fails: a fork costs more than
    most of them."""
    memory = mmap.mmap(-1, PAGE)  # a byte a call: its code and 1
    pid = os.fork()
    if pid == 0:
        # Nothing of the parent's may run here: no cleanup, no buffers, no word about a fault.
        faulthandler.disable()
        for number, (values, workspace) in enumerate(calls):
            at = workspace.address + workspace.at_end(workspace.room)
            code = min(call(*addresses(values), None, at, None), 254)
            memory[number] = code + 1
            if code:
                break
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    codes: list[int | str] = [byte - 1 for byte in memory[: len(calls)] if byte]
    if os.WIFSIGNALED(status):
        codes.append(f"signal {os.WTERMSIG(status)}")
    return codes


def addresses(values: Sequence[torch.Tensor | int]) -> list[int]:
    return [x.data_ptr() if isinstance(x, torch.Tensor) else x for x in values]


@dataclass(frozen=True)
class Kernel:
    """A compiled source, its entry, and how that is started."""

    rendered: Rendered
    call: code_cache.Entry
    message: Callable[[int], str]
    start: Start = in_child


def build(
    rendered: Rendered,
    cache_root: Path,
    source: str | None = None,
    options: CompileOptions = OPTIONS,
) -> Kernel:
    """`source` replaces the rendered one: for mistakes that are planted."""
    compiled = code_cache.compile(source or rendered.source, cpu(), options, cache_root=cache_root)
    library = code_cache.load(compiled.path)
    pointers = sum(arg.kind in ("input", "output") for arg in rendered.args)
    types = code_cache.argtypes(pointers, len(rendered.args) - pointers)
    return Kernel(rendered, library.entry(rendered.name, types), library.error_text)


class Renders(Protocol):
    """A problem and a config."""

    def render(self) -> Rendered: ...


def build_all(
    binaries: Iterable[Renders], cache_root: Path, options: CompileOptions = OPTIONS
) -> list[Kernel]:
    """In their order, two at once."""
    with ThreadPoolExecutor(2) as pool:
        return list(
            pool.map(lambda one: build(one.render(), cache_root, options=options), binaries)
        )


@dataclass(frozen=True)
class Run:
    """The operands of one call, by their names in the signature, and its numbers by theirs.

    `product` is what is computed of X and W, in float64.
    """

    tensors: Mapping[str, torch.Tensor]
    numbers: Mapping[str, int]
    output: Memory
    name: str = "Y"
    product: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = torch.matmul


def failure(kernel: Kernel, run: Run) -> str | None:
    """What is wrong with the kernel's answer, None if nothing is."""
    prepared = _Prepared.of(kernel, run)
    if isinstance(prepared, str):
        return prepared
    return prepared.wrong(kernel.start(kernel.call, prepared.values, prepared.workspace))


@dataclass(frozen=True)
class _Prepared:
    """A call that has its workspace, and what stood around its result before."""

    kernel: Kernel
    run: Run
    values: Sequence[torch.Tensor | int]
    workspace: Memory
    before: torch.Tensor

    @staticmethod
    def of(kernel: Kernel, run: Run) -> _Prepared | str:
        values = [
            run.tensors[a.name] if a.kind in ("input", "output") else run.numbers[a.name]
            for a in kernel.rendered.args
        ]
        size = ctypes.c_size_t(2**64 - 1)
        if code := kernel.call(*addresses(values), ctypes.byref(size), None, None):
            return f"asking for the workspace: error {code}"
        if size.value != expected_workspace(kernel, run):
            return f"{size.value} bytes of workspace, {expected_workspace(kernel, run)} expected"
        return _Prepared(kernel, run, values, Memory(size.value), run.output.bytes.clone())

    def wrong(self, code: int | str) -> str | None:
        if code != 0:
            return f"the call: {code}"
        outside, workspace = _outside(self.run), self.workspace
        if not torch.equal(self.run.output.bytes[outside], self.before[outside]):
            return "wrote outside of the result"
        if not bool((workspace.bytes[: workspace.at_end(workspace.room)] == 0xFF).all()):
            return "wrote outside of the workspace"
        return difference(self.kernel.rendered, self.run)


def first_failure(kernel: Kernel, runs: Sequence[Run]) -> tuple[Run, str] | None:
    """The first of the calls whose answer is wrong, and what is. They share a child."""
    prepared: list[_Prepared] = []
    for run in runs:
        one = _Prepared.of(kernel, run)
        if isinstance(one, str):
            return run, one
        prepared.append(one)
    codes = in_one_child(kernel.call, [(one.values, one.workspace) for one in prepared])
    for one, code in zip(prepared, codes, strict=False):
        if (wrong := one.wrong(code)) is not None:
            return one.run, wrong
    return None if len(codes) == len(runs) else (runs[len(codes)], "the call: it was not made")


def expected_workspace(kernel: Kernel, run: Run) -> int:
    n = run.numbers
    sizes = Sizes(n["M"], n["N"], n["K"], n.get("B", 1))
    return kernel.rendered.workspace_bytes(sizes, n["split_k"])


def _outside(run: Run) -> torch.Tensor:
    """Which bytes of the output's memory are not elements of it."""
    mask = torch.ones(run.output.bytes.numel(), dtype=torch.bool)
    result = run.tensors[run.name]
    if result.numel():
        begin = (result.data_ptr() - run.output.address) // result.element_size()
        elements = mask.view(-1, result.element_size())
        index = torch.zeros((), dtype=torch.int64)
        for count, step in zip(result.shape, result.stride(), strict=True):
            index = index.unsqueeze(-1) + torch.arange(count) * step
        elements[begin + index.flatten()] = False
    return mask


def difference(rendered: Rendered, run: Run) -> str | None:
    """The worst element against float64, if it is further off than rounding explains."""
    problem, t = rendered.problem, run.tensors
    result = t[run.name]
    if result.numel() == 0:
        return None
    a, b = t["X"].double(), t["W"].double()
    exact, size = run.product(a, b), run.product(a.abs(), b.abs())
    if problem.second is not None:
        c, d = (t[factor.name].double() for factor in problem.second)
        exact, size = exact + run.product(c, d), size + run.product(c.abs(), d.abs())
    for factor in (problem.alpha, *(t[scale.name].double() for scale in problem.scales)):
        exact, size = exact * factor, size * abs(factor)
    if problem.bias is not None and problem.beta != 0:
        bias = problem.beta * t["bias"].double()
        exact, size = exact + bias, size + bias.abs()
    # Sums in any order (Higham, "Accuracy and Stability", 3.1), one rounding in the end, and
    # an activation whose slope is at most 1.13 and whose own error is a few units of fp32.
    steps = run.numbers["K"] * (1 if problem.second is None else 2) + 8
    exact = ACTIVATION[problem.activation](exact)
    unit = SUMS[problem.acc]
    bound = unit * (1.2 * steps * size + 8 * exact.abs() + 4 * size.clamp(max=1))
    bound = bound + EPSILON[result.dtype] * (exact.abs() + bound) + TINY[result.dtype]
    error = (result.double() - exact).abs()
    wrong = ~(error <= bound)
    if not bool(wrong.any()):
        return None
    at = tuple(int(i) for i in wrong.nonzero()[0])
    return (
        f"{int(wrong.sum())} of {result.numel()} elements are wrong, first {at}: "
        f"{float(result[at])} for {float(exact[at])}, "
        f"{math.nan if bool(error.isnan().any()) else float(error.max()):.3g} off at most"
    )


def check_drawn(
    kernel: Kernel,
    runs: SearchStrategy[Run],
    about: str,
    *,
    examples: int = 8,
    shrink: bool = False,
    number: int = 0,
) -> None:
    """The kernel gives the right numbers for every drawn call. Raises AssertionError."""

    def holds(run: Run) -> None:
        wrong = failure(kernel, run)
        assert wrong is None, (wrong, run.numbers, about)

    if kernel.start is not in_child:  # on a GPU, a call at a time
        try_drawn(holds, runs, examples=examples, shrink=shrink, number=number)
        return
    for first in range(0, examples, 8):
        if found := first_failure(kernel, _drawn(runs, min(examples, 8), 1000 * number + first)):
            if shrink:
                try_drawn(holds, runs, examples=examples, shrink=True, number=number)
            raise AssertionError((found[1], found[0].numbers, about))


def _drawn(runs: SearchStrategy[Run], examples: int, number: int) -> list[Run]:
    drawn: list[Run] = []

    def keep(run: Run) -> None:
        drawn.append(run)

    _draw(keep, (runs,), examples, number, False)
    return drawn


def try_drawn(
    holds: Callable[..., None],
    *strategies: SearchStrategy[Any],
    examples: int = 8,
    shrink: bool = False,
    number: int = 0,
) -> None:
    """`holds` for drawn values: those of a seed, the same whatever is written in `holds`, a few at
    once, since Hypothesis changes little from one to the next. Raises what `holds` raises."""
    for first in range(0, examples, 8):
        _draw(holds, strategies, min(examples, 8), 1000 * number + first, shrink)


def _draw(
    holds: Callable[..., None],
    strategies: Sequence[SearchStrategy[Any]],
    examples: int,
    number: int,
    shrink: bool,
) -> None:
    tried = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    seed(number)(tried(given(*strategies)(holds)))()
