"""The store with other tensors and several results: right at every edge, on the CPU target, and
compiled for GPUs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sympy
import torch

from backend.errors import UnsupportedProblemError
from backend.templates.config import GemmConfig, SkinnyConfig
from backend.templates.fusion import Access, Epilogue
from backend.templates.heuristics import gemm_configs, skinny_configs
from backend.templates.operand import Operand
from backend.templates.problem import GemmProblem, Sizes
from backend.templates.rendering import Rendered, render
from backend.toolchain import code_cache
from backend.toolchain.target import Target, cpu, parse_target
from tests.support.chains import Term, epilogue, evaluate
from tests.support.template_lab import Kernel, Memory, addresses, build, memory_for
from tests.support.toolchain_kernels import available

M, N, K, B, P = sympy.symbols("m n k b p", integer=True, positive=True)
SIZES = ((37, 61, 70), (1, 8, 3), (16, 64, 300), (33, 72, 0), (5, 131, 64))
"""M, N and K; lines of the tensors are padded to 8 elements."""

LINE = 8 * P
"""Of every tensor, from row to row or from column to column."""

LOADS: dict[str, Any] = {
    "full": ("float16", (LINE * M, LINE, 1), 8),
    "per_col": ("float32", (0, 0, 1), 4),
    "per_row": ("float32", (0, LINE, 0), 1),
    "turned": ("bfloat16", (0, 1, LINE), 8),
    "one": ("float32", (0, 0, 0), 1),
    "mask": ("bool", (LINE * M, LINE, 1), 1),
    "whole": ("int32", (0, LINE, 1), 2),
}
STORES: dict[str, Any] = {
    "wide": ("float32", (LINE * M, LINE, 1), 4),
    "across": ("bfloat16", (LINE * N, 1, LINE), 8),
    "sign": ("bool", (LINE * M, LINE, 1), 8),
}


def _function(
    x: Term, full: Term, per_col: Term, per_row: Term, turned: Term, one: Term, mask: Term,
    whole: Term,
) -> Any:  # fmt: skip
    y = x * per_row + per_col
    chosen = Term(y.chain, y.chain.where(mask.value, y.value, (full * one).value))
    return y.apply("tanh"), chosen + turned, y.apply("gt", full), x + whole.to("float32")


def problem(dtype: Any, flipped: bool, batched: bool, kept: bool) -> GemmProblem:
    """With symbols for all that comes at run time. `kept` stores the product too."""
    lead: Any = (B,) if batched else ()

    def operand(name: str, rows: Any, cols: Any, turned: bool = False) -> Operand:
        strides = (1, LINE) if turned else (LINE, 1)
        batch = (LINE * M,) if batched else ()
        return Operand(name, dtype, (*lead, rows, cols), (*batch, *strides))

    def accesses(named: dict[str, Any]) -> tuple[Access, ...]:
        return tuple(
            Access(name, kind, (batch if batched else 0, row, col), vector)
            for name, (kind, (batch, row, col), vector) in named.items()
        )

    out = operand("out", M, N, flipped)
    last = Access("out" if kept else "last", dtype, (LINE * M if batched else 0, *out.strides[-2:]))
    made = epilogue(_function, (*accesses(STORES), last), accesses(LOADS))
    return GemmProblem(operand("a", M, K), operand("b", K, N), out, epilogue=made)


def config(of: GemmProblem, skinny: bool, target: Target) -> GemmConfig | SkinnyConfig:
    sizes = Sizes(16, 96, 64)
    if skinny:
        return next(iter(skinny_configs(of, target, sizes, budget=1)))
    return next(iter(gemm_configs(of, target, sizes, budget=1)))


CASES = {
    "fma": (problem("float32", False, False, True), False),
    "units": (problem("float16", False, True, False), False),
    "flipped": (problem("float16", True, False, True), False),
    "skinny": (problem("bfloat16", False, True, True), True),
}


def rendered(name: str, target: Target) -> Rendered:
    of, skinny = CASES[name]
    made = config(of, skinny, target)
    return render(of, made, "rt_kernel")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Kernel]]:
    if not available(cpu()):
        pytest.skip("no C++ compiler")
    root: Path = tmp_path_factory.mktemp("cache")
    yield {name: build(rendered(name, cpu()), root) for name in CASES}


@pytest.mark.parametrize("split", [1, 3])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", CASES)
def test_every_result_is_right(
    kernels: dict[str, Kernel], name: str, sizes: tuple[int, int, int], split: int
) -> None:
    assert mistake(kernels[name], CASES[name][0], sizes, split) == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("from[min_of(i, valid - 1) * ", "from[i * "),
        ("if (i < valid) to[", "to["),
        ("args.turned + row + col * args.turned_col", "args.turned + row"),
        ("t0 * t3", "t0 * t3 + 0.01f"),
    ],
)
def test_planted_mistakes_are_found(tmp_path: Path, old: str, new: str) -> None:
    if not available(cpu()):
        pytest.skip("no C++ compiler")
    made = rendered("fma", cpu())
    assert old in made.source
    wrong = made.source.replace(old, new)
    kernel = build(made, tmp_path, wrong)
    assert any(mistake(kernel, CASES["fma"][0], sizes, 1) for sizes in SIZES[:2])


def mistake(kernel: Kernel, of: GemmProblem, sizes: tuple[int, int, int], split: int) -> str:
    """What is wrong with the results of a call; nothing if nothing is."""
    m, n, k = sizes
    assert of.epilogue is not None
    if isinstance(kernel.rendered.config, SkinnyConfig):
        m = min(m, 5)
    batch = 2 if of.batched else 1
    # Lines reach as far as the longest of them, and a matrix as far as the batch's step.
    numbers = {M: m, N: n, K: k, B: batch, P: -(-max(m, n, k, 1) // 8)}
    torch.manual_seed(m + n + k)
    tensors: dict[str, torch.Tensor] = {}
    memories: dict[str, Memory] = {}

    def make(name: str, dtype: str, sizes: Any, strides: Any) -> torch.Tensor:
        shape, steps = (
            tuple(int(sympy.sympify(expr).subs(numbers)) for expr in exprs)
            for exprs in (sizes, strides)
        )
        memories[name], tensors[name] = memory_for(getattr(torch, dtype), shape, steps)
        return tensors[name]

    for factor in (of.a, of.b):
        made = make(factor.name, factor.dtype, factor.sizes, factor.strides)
        made.copy_(torch.randn(made.shape))
    rank = len(of.out.sizes)
    for load in of.epilogue.loads:
        made = make(load.name, load.dtype, of.out.sizes, load.strides[-rank:])
        for dim, step in enumerate(made.stride()):
            made = made.narrow(dim, 0, min(1, made.shape[dim])) if step == 0 else made
        values = torch.randn(made.shape)
        made.copy_(values > 0 if load.dtype == "bool" else (values * 9).round() / 4)
    for store in of.epilogue.stores:
        make(store.to.name, store.to.dtype, of.out.sizes, store.to.strides[-rank:])
    before = {name: memory.bytes.clone() for name, memory in memories.items()}
    arguments = _arguments(kernel, tensors, split)
    size = ctypes.c_size_t()
    assert kernel.call(*addresses(arguments), ctypes.byref(size), None, None) == 0
    if code := kernel.start(kernel.call, arguments, Memory(size.value)):
        return f"the call: {code}"

    product = tensors["a"].double() @ tensors["b"].double()
    steps = evaluate(of.epilogue.steps, product, tensors)
    for store in of.epilogue.stores:
        got, want = tensors[store.to.name], steps[store.step].expand(tensors[store.to.name].shape)
        near = {torch.float32: 1e-4, torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(got.dtype, 0)
        right = torch.isclose(got.double(), want.double(), rtol=near, atol=1e-3 + near)
        few = 0.01 if got.dtype == torch.bool else 0.0  # rounding may tip some
        if float((~right).double().mean()) > few:
            return f"{store.to.name}: {int((~right).sum())} elements"
        if not _outside(memories[store.to.name].bytes, got, before[store.to.name]):
            return f"{store.to.name}: written outside of it"
    return ""


def _outside(now: torch.Tensor, tensor: torch.Tensor, before: torch.Tensor) -> bool:
    """Whether all bytes that are no elements of the tensor are what they were."""
    first = tensor.data_ptr() - now.data_ptr()
    for memory in (now, before):
        rest = memory[first:]
        whole = rest[: rest.numel() // tensor.itemsize * tensor.itemsize].view(tensor.dtype)
        whole.as_strided(tensor.shape, tensor.stride()).zero_()
    return torch.equal(now, before)


def _arguments(
    kernel: Kernel, tensors: dict[str, torch.Tensor], split: int
) -> list[torch.Tensor | int]:
    """By name: a size is that of a factor, a stride that of the tensor that it is named after."""
    a, b, names = tensors["a"], tensors["b"], ("batch", "row", "col")
    numbers = {
        "M": a.shape[-2],
        "N": b.shape[-1],
        "K": a.shape[-1],
        "B": a.shape[0],
        "split_k": split,
    }
    out = tensors.get("out", tensors.get("last"))
    assert out is not None
    for suffix, tensor in (("a", a), ("b", b), ("out", out)):
        numbers[f"ld_{suffix}"] = max(tensor.stride()[-2:])
        numbers[f"batch_{suffix}"] = tensor.stride(0)
    for name, tensor in tensors.items():
        steps = zip(names[-tensor.dim() :], tensor.stride(), strict=True)
        numbers |= {f"{name}_{dim}": step for dim, step in steps}
    return [
        tensors[arg.name] if arg.kind in ("input", "output") else numbers[arg.name]
        for arg in kernel.rendered.args
    ]


@pytest.mark.parametrize(
    "target", ["amdgpu:gfx90a", "amdgpu:gfx942", "amdgpu:gfx1100", "cuda:sm_90"]
)
def test_it_compiles_for_gpus(target: str, tmp_path: Path) -> None:
    arch = parse_target(target)
    if not available(arch):
        pytest.skip(f"no compiler for {target}")
    for name in ("units", "skinny"):
        assert code_cache.compile(rendered(name, arch).source, arch, cache_root=tmp_path).path


def test_epilogues_that_are_none() -> None:
    out = Access("out", "float32", (0, 8, 1))
    made = epilogue(lambda x: x, (out,))
    with pytest.raises(UnsupportedProblemError, match="stores nothing"):
        Epilogue(made.steps, ())
    with pytest.raises(UnsupportedProblemError, match="are named"):
        Epilogue(made.steps, made.stores, (out,))
    loading = epilogue(lambda x, y: x + y, (out,), (Access("y", "int8", (0, 0, 1)),))
    with pytest.raises(UnsupportedProblemError, match="loads y, which is not an operand"):
        Epilogue(loading.steps, loading.stores)
