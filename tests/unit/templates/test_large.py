"""Strides beyond 32 bits, and results that are more than one launch can have.

The memory between far lines is mapped and never touched, so it costs nothing.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from backend.templates.config import GemmConfig, SkinnyConfig
from backend.templates.rendering import render
from backend.toolchain import targets
from backend.toolchain.target import Missing, cpu
from tests.support.sparse import sparse
from tests.support.template_cases import Class
from tests.support.template_lab import OPTIONS, Kernel, Memory, Run, build, failure, memory_for

if isinstance(missing := targets.find_compiler(cpu()), Missing):
    pytest.skip(missing.reason, allow_module_level=True)

CONFIG = GemmConfig(32, 32, 32, 16, 16, vec_a=4, vec_b=4, vec_c=2)
SKINNY = SkinnyConfig(4, 16, waves_n=2, vec_a=4, vec_b=4)
NEAR = Class("float16", vector=4, batched=True, bias=True)
FAR = (2**32, 2**31 + 64)
"""What 32 bits take for 0, and for a negative number."""


class Case(NamedTuple):
    problem_class: Class
    config: GemmConfig | SkinnyConfig

    def built(self, folder: Path, largest_grid: int | None = None) -> Kernel:
        rendered = render(self.problem_class.problem(), self.config, "rt_kernel")
        limit = () if largest_grid is None else (("RT_LARGEST_GRID", str(largest_grid)),)
        options = replace(OPTIONS, defines=(*OPTIONS.defines, *limit))
        return build(rendered, folder, options=options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("far", FAR)
@pytest.mark.parametrize("what", ["batch", "line"])
@pytest.mark.parametrize(
    "case",
    [
        Case(NEAR, CONFIG),
        Case(replace(NEAR, a_k_fast=False, b_k_fast=True, out_row_major=False), CONFIG),
        Case(NEAR, SKINNY),
    ],
    ids=["gemm", "gemm turned", "skinny"],
)
def test_strides_of_64_bits(case: Case, what: str, far: int, folder: Path) -> None:
    c, (batch, m, n, k) = case.problem_class, (2, 3, 5, 4)
    kernel, numbers, tensors = case.built(folder), {"M": m, "N": n, "K": k, "B": batch}, {}
    numbers["split_k"] = 1
    for name, suffix, sizes, row_major in (
        ("X", "a", (m, k), c.a_k_fast),
        ("W", "b", (k, n), not c.b_k_fast),
        ("Y", "out", (m, n), c.out_row_major),
    ):
        ld = far if what == "line" else 8
        step = far if what == "batch" else 64
        memory = sparse(far * (6 if what == "line" else 2) + 1024)
        strides = (step, ld, 1) if row_major else (step, 1, ld)
        tensors[name] = memory.as_strided((batch, *sizes), strides)
        if name != "Y":
            tensors[name].copy_(torch.randn(batch, *sizes))
        numbers |= {f"ld_{suffix}": ld, f"batch_{suffix}": step}
    bias = (far, 8, 1) if what == "batch" else (16, far, 1)
    tensors["bias"] = sparse(4 * far + 1024).as_strided((batch, m, n), bias)
    tensors["bias"].copy_(torch.randn(batch, m, n))
    numbers |= dict(zip(("bias_batch", "bias_row", "bias_col"), bias, strict=True))
    values = [
        tensors[a.name].data_ptr() if a.kind in ("input", "output") else numbers[a.name]
        for a in kernel.rendered.args
    ]
    assert kernel.call(*values, None, None, None) == 0
    exact = tensors["X"].double() @ tensors["W"].double() + tensors["bias"].double()
    torch.testing.assert_close(tensors["Y"].double(), exact, atol=1e-2, rtol=1e-2)


def _run(c: Class, batch: int, m: int, n: int, k: int, split_k: int) -> Run:
    torch.manual_seed(1)
    numbers = {"M": m, "N": n, "K": k, "B": batch, "split_k": split_k}
    tensors: dict[str, torch.Tensor] = {}
    memories: dict[str, Memory] = {}
    for name, suffix, rows, cols, row_major in (
        ("X", "a", m, k, c.a_k_fast),
        ("W", "b", k, n, not c.b_k_fast),
        ("Y", "out", m, n, c.out_row_major),
    ):
        fast, slow = (cols, rows) if row_major else (rows, cols)
        ld = -(-fast // 4) * 4
        step = ld * slow
        strides = (step, ld, 1) if row_major else (step, 1, ld)
        memories[name], tensors[name] = memory_for(torch.float16, (batch, rows, cols), strides)
        if name != "Y":
            tensors[name].copy_(torch.randn(batch, rows, cols))
        numbers |= {f"ld_{suffix}": ld, f"batch_{suffix}": step}
    _, bias = memory_for(torch.float16, (batch, m, n), (m * n, n, 1))
    tensors["bias"] = bias.copy_(torch.randn(batch, m, n))
    return Run(
        tensors, numbers | {"bias_batch": m * n, "bias_row": n, "bias_col": 1}, memories["Y"]
    )


@pytest.mark.parametrize(
    "case",
    [
        Case(NEAR, CONFIG),
        Case(replace(NEAR, a_k_fast=False, b_k_fast=True, out_row_major=False), CONFIG),
        Case(replace(NEAR, b_k_fast=True), SKINNY),
    ],
    ids=["gemm", "gemm turned", "skinny"],
)
def test_what_is_more_than_one_launch_can_have_is_split(case: Case, folder: Path) -> None:
    kernel = case.built(folder, largest_grid=3)
    sizes = itertools.product(((1, 200, 40), (3, 37, 100), (2, 3, 300)), (70, 600), (1, 2))
    for (batch, m, n), k, split_k in sizes:
        run = _run(case.problem_class, batch, m, n, k, split_k)
        assert failure(kernel, run) is None, run.numbers


def test_parts_that_no_launch_can_have_are_refused(folder: Path) -> None:
    kernel = Case(NEAR, CONFIG).built(folder, largest_grid=3)
    wrong = failure(kernel, _run(NEAR, 1, 32, 32, 256, split_k=8))
    assert wrong == "the call: 9"  # hipErrorInvalidConfiguration
