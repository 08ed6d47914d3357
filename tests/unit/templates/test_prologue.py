"""Factors that are computed where they are loaded: stored types, scales, groups, on the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import sympy

from backend.errors import ConfigError
from backend.templates.config import GemmConfig
from backend.templates.heuristics import gemm_configs, pays, refitted, skinny_configs
from backend.templates.problem import Sizes
from backend.toolchain import code_cache, targets
from backend.toolchain.target import Missing, Target, amdgpu, cpu, cuda
from tests.support import template_lab
from tests.support.prologue_cases import (
    CAST,
    CAST_B,
    GROUPS,
    HALF_LINES,
    HALVES,
    INT8,
    NIBBLES,
    NORM,
    ODD_GROUPS,
    ONE,
    ONE_B,
    B,
    Binary,
    Case,
    K,
    M,
    N,
    P,
    check,
)
from tests.support.template_lab import Kernel, build, build_all

needs_compiler = pytest.mark.skipif(
    isinstance(targets.find_compiler(cpu()), Missing), reason="no C++ compiler"
)

CASES = (
    Case("bfloat16", a=CAST),
    Case("float16", a=CAST, b=CAST_B, a_k_fast=False, b_k_fast=False, vector=4),
    Case("bfloat16", b=INT8, vector=16),
    Case("bfloat16", b=INT8, b_k_fast=False, vector=4, batched=True),
    Case("bfloat16", b=GROUPS, vector=8, out_row_major=False),
    Case("float32", b=ODD_GROUPS, a_k_fast=False, vector=4),
    Case("float16", a=NORM, b=NIBBLES, vector=8),
    Case("bfloat16", b=NIBBLES, b_k_fast=False, vector=16),
    Case("float32", a=ONE, b=ONE_B, b_k_fast=False, vector=4),
    Case("bfloat16", b=HALVES, vector=16),
    Case("float16", b=HALF_LINES, b_k_fast=False, vector=16),
)


def sample(
    targets: Sequence[Target] = (cpu(), cuda("sm_90"), amdgpu("gfx942")),
) -> list[Binary]:
    """Of each case a tile of matrix instructions, one of plain FMA, and a skinny arrangement."""
    chosen: dict[tuple[object, ...], Binary] = {}
    for case in CASES:
        problem = case.problem()
        for target in targets:
            for sizes in (Sizes(64, 64, 256), Sizes(8, 64, 256)):
                for gemm in gemm_configs(problem, target, sizes, budget=4):
                    chosen.setdefault((case, gemm.unit == "fma"), Binary(case, gemm.binary))
                for skinny in skinny_configs(problem, target, sizes, budget=4):
                    if skinny.waves_k > 1:
                        chosen.setdefault((case, "skinny"), Binary(case, skinny.binary))
    return list(chosen.values())


BINARIES = sample()
OPTIONS = replace(
    template_lab.OPTIONS, defines=(*template_lab.OPTIONS.defines, ("RT_LARGEST_GRID", "8"))
)
"""With so few blocks a launch, larger calls are split into several; one tile takes 8 to add up its
parts."""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[Binary, Kernel]:
    built = build_all(BINARIES, tmp_path_factory.mktemp("cache"), OPTIONS)
    return dict(zip(BINARIES, built, strict=True))


@needs_compiler
@pytest.mark.parametrize("binary", BINARIES, ids=lambda binary: binary.name)
def test_numbers(binary: Binary, kernels: dict[Binary, Kernel]) -> None:
    check(kernels[binary], binary)


MISTAKES = (
    ("one-one b-float32NNN4", "i < count ?", "true ?"),
    ("norm-nibbles-float16NTN8", "at_k % 2", "at_k / 2 % 2"),
    ("norm-nibbles-float16NTN8", "at_line * args.r_line", "0"),
    ("nibbles-bfloat16NNN16", "at_k / 64", "at_k / 32"),
    ("groups-bfloat16NTT8", "s_type, N, 32,", "s_type, N, 16,"),
    ("int8-bfloat16NTN16", "+ first.cols * args.s_line", ""),
    ("halves-bfloat16NTN16", "at_k % 64", "at_k % 32"),
    ("half lines-float16NNN16", "at_line % 16", "at_line"),
    ("int8-bfloat16NNN4", "+ batch * args.w_batch", "+ 0"),
)


@needs_compiler
@pytest.mark.parametrize(("case", "right", "wrong"), MISTAKES, ids=lambda x: x)
def test_a_mistake_is_caught(case: str, right: str, wrong: str, tmp_path: Path) -> None:
    binary = [b for b in BINARIES if b.case.name == case][-1]
    rendered = binary.render()
    assert right in rendered.source
    broken = build(rendered, tmp_path, rendered.source.replace(right, wrong), OPTIONS)
    with pytest.raises(AssertionError):
        check(broken, binary)


@pytest.mark.parametrize(
    "target", [amdgpu("gfx90a"), amdgpu("gfx942"), amdgpu("gfx1100"), cuda("sm_90")], ids=str
)
def test_it_compiles_for_gpus(target: Target, tmp_path: Path) -> None:
    """All in one source: half of what a compiler takes for one goes into its start."""
    if isinstance(found := targets.find_compiler(target), Missing):
        pytest.skip(found.reason)
    sizes = Sizes(8, 64, 256)
    parts = []
    for case in (CASES[0], CASES[3], CASES[6], CASES[9]):
        problem = case.problem()
        for config in (
            *gemm_configs(problem, target, sizes, budget=1),
            *skinny_configs(problem, target, sizes, budget=1),
        ):
            source = Binary(case, config, f"entry{len(parts)}").render().source
            parts.append(f"namespace kernel{len(parts)} {{\n{source}\n}}\n")
    assert len(parts) == 8
    source = "#include <rocm_tui/gpu.h>\n#include <rocm_tui/source.h>\n" + "".join(parts)
    code_cache.compile(source, target, cache_root=tmp_path)


def refittings(
    targets: Sequence[Target] = (cpu(), cuda("sm_90"), amdgpu("gfx942"), amdgpu("gfx1100")),
) -> list[Binary]:
    """Of each matrix unit a config that was chosen for the plain product."""
    chosen: dict[tuple[object, ...], Binary] = {}
    for case in (CASES[0], CASES[2], CASES[3], CASES[6]):
        problem = case.problem()
        offered = replace(problem, a_prologue=None, b_prologue=None)
        for target in targets:
            sizes = Sizes(8, 64, 256)
            for config in (
                *gemm_configs(offered, target, sizes, budget=3),
                *skinny_configs(offered, target, sizes, budget=3),
            ):
                with contextlib.suppress(ConfigError):
                    binary = Binary(case, refitted(config, problem, offered).binary)
                    binary.render()
                    chosen.setdefault((case, type(config), config.unit), binary)
    return list(chosen.values())


REFITTED = refittings()


@pytest.fixture(scope="module")
def refits(tmp_path_factory: pytest.TempPathFactory) -> dict[Binary, Kernel]:
    built = build_all(REFITTED, tmp_path_factory.mktemp("cache"))
    return dict(zip(REFITTED, built, strict=True))


@needs_compiler
@pytest.mark.parametrize("binary", REFITTED, ids=lambda binary: binary.name)
def test_a_config_of_the_plain_product_serves(binary: Binary, refits: dict[Binary, Kernel]) -> None:
    check(refits[binary], binary)


def test_what_would_be_loaded_too_often_is_computed_once() -> None:
    """4 bytes in place of 2: for a few tiles that costs less than a kernel, for many more."""
    case = Case("bfloat16", a=CAST)
    config = GemmConfig(128, 128, 32, 64, 64)
    problem = case.problem()

    def asked(n: int) -> bool:
        sizes = {M: 4096, N: n, K: 4096, B: 1, P: 512}
        return pays(config, problem, lambda x: int(sympy.sympify(x).subs(sizes)))

    assert asked(512)
    assert not asked(16384)
