"""Products of fp64, fp8 and int8: some configs of each target, on the CPU, against exact sums."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from backend.templates.config import SkinnyConfig
from backend.templates.errors import UnsupportedProblemError
from backend.templates.heuristics import gemm_configs, skinny_configs
from backend.templates.resources_table import SHAPES
from backend.toolchain import targets
from backend.toolchain.target import Missing, Target, amdgpu, cpu, cuda
from tests.support import template_lab
from tests.support.template_cases import Binary, Class, check
from tests.support.template_lab import Kernel, build

needs_compiler = pytest.mark.skipif(
    isinstance(targets.find(cpu()), Missing), reason="no C++ compiler"
)

CLASSES = (
    Class("float64", vector=2, bias=True, alpha=0.3, beta=-0.7, activation="relu"),
    Class("float64", a_k_fast=False, b_k_fast=True, vector=1, batched=True),
    Class("int8", vector=16, out="int32"),
    Class("int8", b_k_fast=True, vector=4, out="int32", out_row_major=False),
    Class("float8_e4m3fn", b_k_fast=True, vector=16, out="bfloat16"),
    Class("float8_e4m3fnuz", vector=8, out="float16", alpha=0.5, activation="silu"),
    Class("float8_e5m2", a_k_fast=False, b_k_fast=True, vector=1, out="float32"),
    Class("float8_e5m2fnuz", vector=16, out="bfloat16", out_row_major=False),
)


def offered(problem_class: Class, target: Target) -> Iterator[Binary]:
    problem = problem_class.problem()
    for sizes in SHAPES:
        for gemm in gemm_configs(problem, target, sizes, budget=2):
            yield Binary(problem_class, gemm.binary)
        for skinny in skinny_configs(problem, target, sizes, budget=2):
            yield Binary(problem_class, skinny.binary)


def sample() -> list[Binary]:
    """Of each class a tile with one buffer and one with two, and a skinny one of several waves."""
    chosen: dict[tuple[object, ...], Binary] = {}
    for problem_class in CLASSES:
        for target in (cpu(), amdgpu("gfx942"), cuda("sm_90")):
            for binary in offered(problem_class, target):
                config = binary.config
                form = "skinny" if isinstance(config, SkinnyConfig) else config.stages
                if not isinstance(config, SkinnyConfig) or config.waves_k > 1:
                    chosen.setdefault((problem_class, form), binary)
    return list(chosen.values())


BINARIES = sample()


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Binary, Kernel]]:
    root: Path = tmp_path_factory.mktemp("cache")
    options = replace(template_lab.OPTIONS, level=0)
    with ThreadPoolExecutor(2) as pool:
        built = pool.map(lambda binary: build(binary.render(), root, options=options), BINARIES)
        yield dict(zip(BINARIES, built, strict=True))


@needs_compiler
@pytest.mark.parametrize("binary", BINARIES, ids=lambda binary: binary.name)
def test_numbers(binary: Binary, kernels: dict[Binary, Kernel]) -> None:
    check(kernels[binary], binary)


@pytest.mark.parametrize(
    "refused",
    [
        Class("int8"),
        Class("int8", out="float32"),
        Class("float64", out="float32"),
        Class("float32", out="float64"),
        Class("int8", out="int32", alpha=0.5),
        Class("int8", out="int32", activation="gelu"),
        Class("float64", activation="gelu"),
        Class("int32", out="int32"),
    ],
    ids=str,
)
def test_what_has_no_kernel_is_refused(refused: Class) -> None:
    with pytest.raises(UnsupportedProblemError):
        refused.problem()
