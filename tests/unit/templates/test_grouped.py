"""Products of groups of rows on the CPU target: right numbers for drawn groups, in memory with
guard pages; ends that make no sense; planted mistakes."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sympy
import torch
from hypothesis import strategies as st

from backend.errors import UnsupportedProblemError
from backend.templates.config import GemmConfig
from backend.templates.heuristics import gemm_configs
from backend.templates.legality import config_defect
from backend.templates.operand import DType, Operand
from backend.templates.problem import GroupedProblem, Sizes, grouped_problem
from backend.templates.rendering import Rendered, render
from backend.toolchain import code_cache, targets
from backend.toolchain.resources import Unknown, resources
from backend.toolchain.target import Missing, Target, amdgpu, cpu
from tests.support.template_lab import Kernel, Run, build, failure, memory_for, try_drawn

if isinstance(missing := targets.find_compiler(cpu()), Missing):
    pytest.skip(missing.reason, allow_module_level=True)

GPUS = [*map(amdgpu, ("gfx90a", "gfx942", "gfx1100", "gfx1201")), Target("cuda", "sm_90")]

M, N, K, G, P = sympy.symbols("m n k g p", integer=True, positive=True)
TILES = {
    "mfma": GemmConfig(32, 32, 32, 16, 16, unit="mfma16", vec_a=8, vec_b=8, vec_c=4),
    "fma": GemmConfig(32, 32, 16, 32, 32, vec_a=4, vec_b=4, vec_c=4, stages=1),
}


def shapes(k_fast: bool) -> dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """With lines that are whole vectors, and longer than they need to be."""
    across, down = 8 * P * N, 8 * P * K
    weight = (down * N, 1, down) if k_fast else (across * K, across, 1)
    return {
        "X": ((M, K), (down, 1)),
        "W": ((G, K, N), weight),
        "Y": ((M, N), (across, 1)),
        "ends": ((G,), (1,)),
    }


def problem(dtype: DType, k_fast: bool) -> GroupedProblem:
    made = {
        name: Operand(name, "int32" if name == "ends" else dtype, *shape)
        for name, shape in shapes(k_fast).items()
    }
    return grouped_problem(made["X"], made["W"], made["Y"], made["ends"])


def rendered(name: str, tile: GemmConfig | None = None) -> Rendered:
    of = problem("bfloat16", True) if name == "mfma" else problem("float32", False)
    return render(of, tile or TILES[name], "rt_kernel")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Kernel]]:
    root: Path = tmp_path_factory.mktemp("cache")
    yield {name: build(rendered(name), root) for name in TILES}


def product(ends: list[int], x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(x.shape[0], w.shape[-1], dtype=x.dtype)
    for group, (first, last) in enumerate(zip([0, *ends], ends, strict=False)):
        out[first:last] = x[first:last] @ w[group]
    return out


def call(
    name: str, rows: list[int], n: int, k: int, seed: int, ends: list[int] | None = None
) -> Run:
    """Groups of so many rows; `ends` are told in place of theirs."""
    torch.manual_seed(seed)
    dtype = torch.bfloat16 if name == "mfma" else torch.float32
    true = torch.tensor(rows).cumsum(0).tolist()
    env = {M: sum(rows), N: n, K: k, G: len(rows), P: 1}
    tensors, memories = {}, {}
    for operand, shape in shapes(name == "mfma").items():
        kind = torch.int32 if operand == "ends" else dtype
        sizes, strides = (tuple(int(sympy.sympify(v).subs(env)) for v in part) for part in shape)
        memories[operand], tensors[operand] = memory_for(kind, sizes, strides)
        if operand in ("X", "W"):
            tensors[operand].copy_(torch.randn(sizes))
    tensors["ends"].copy_(torch.tensor(ends or true, dtype=torch.int32))
    values = {a.name: a.value for a in rendered(name).args if a.kind == "size"}
    numbers = {arg: int(sympy.sympify(value).subs(env)) for arg, value in values.items()}
    return Run(
        tensors, {**numbers, "split_k": 1}, memories["Y"], product=functools.partial(product, true)
    )


def check(kernel: Kernel, name: str, number: int = 0) -> None:
    """The kernel gives the right numbers for drawn groups. Raises AssertionError."""
    few = st.sampled_from([0, 0, 1, 5, 31, 32, 33, 70])

    def holds(rows: list[int], n: int, k: int, seed: int) -> None:
        wrong = failure(kernel, call(name, rows, n, k, seed))
        assert wrong is None, (wrong, rows, n, k)

    try_drawn(
        holds,
        st.lists(few, min_size=1, max_size=6).filter(any),
        st.sampled_from([1, 8, 33, 64]),
        st.sampled_from([1, 16, 37, 64]),
        st.integers(0, 2**31),
        number=number,
    )


@pytest.mark.parametrize("name", TILES)
def test_numbers(name: str, kernels: dict[str, Kernel]) -> None:
    check(kernels[name], name)


@pytest.mark.parametrize("ends", [[-5, 900, 3], [2**31 - 1, -(2**31), 7], [40, 20, 50]])
def test_ends_that_make_no_sense_touch_nothing_else(
    ends: list[int], kernels: dict[str, Kernel]
) -> None:
    said = failure(kernels["fma"], call("fma", [10, 30, 20], 33, 20, 0, ends))
    assert said is not None and "elements are wrong" in said  # and no fault, nothing outside


MISTAKES = [
    ("last = max_of(first, min_of(all.ends[group], all.rows))", "last = all.ends[group] + 1"),
    ("args.rows = last;", "args.rows = last - 1;"),
    ("tile -= tiles;", "tile -= tiles - 1;"),
    ("const int row = first + tile * BLOCK_M", "const int row = tile * BLOCK_M"),
]


@pytest.mark.parametrize(("right", "wrong"), MISTAKES)
def test_a_wrong_search_is_caught(right: str, wrong: str, tmp_path: Path) -> None:
    source = rendered("fma").source
    assert source.count(right) == 1
    with pytest.raises(AssertionError):
        check(build(rendered("fma"), tmp_path, source.replace(right, wrong)), "fma")


def test_what_is_not_computed() -> None:
    made = {n: Operand(n, "bfloat16", *shape) for n, shape in shapes(True).items()}
    ends = replace(made["ends"], dtype="int32")
    with pytest.raises(UnsupportedProblemError, match="other than rows"):
        grouped_problem(made["X"], made["X"], made["Y"], ends)
    with pytest.raises(UnsupportedProblemError, match="int32"):
        grouped_problem(made["X"], made["W"], made["Y"], made["ends"])
    turned = replace(made["X"], strides=(1, 8 * P * M))
    with pytest.raises(UnsupportedProblemError, match="side by side"):
        grouped_problem(turned, made["W"], made["Y"], ends)
    column_major = replace(made["Y"], strides=(1, 8 * P * M))
    with pytest.raises(UnsupportedProblemError, match="column-major"):
        grouped_problem(made["X"], made["W"], column_major, ends)
    of = problem("bfloat16", True)
    assert "split_k" in str(config_defect(replace(TILES["mfma"], split_k=2), of))


@pytest.mark.parametrize("target", GPUS, ids=str)
def test_it_compiles_for_gpus_without_scratch(target: Target, tmp_path: Path) -> None:
    if isinstance(found := targets.find_compiler(target), Missing):
        pytest.skip(found.reason)
    of = problem("bfloat16", True)
    configs = gemm_configs(of, target, Sizes(4096, 2048, 1024), 99)
    assert configs and all(config.split_k == 1 for config in configs)
    source = render(of, configs[0], "entry").source
    made = resources(code_cache.compile(source, target, cache_root=tmp_path))
    if isinstance(made, Unknown):
        pytest.skip(made.reason)
    assert made and all((kernel.scratch, kernel.vgpr_spills) == (0, 0) for kernel in made)
