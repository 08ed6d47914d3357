"""What is offered: deterministic, within the limits of the device, cut to a budget."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from backend.errors import ConfigError
from backend.templates.config import UNITS, GemmConfig, SkinnyConfig, UnitName
from backend.templates.heuristics import gemm_configs, skinny_configs
from backend.templates.legality import (
    config_defect,
    device_defect,
    device_limits,
    lds_bytes,
)
from backend.templates.operand import DType
from backend.templates.problem import GemmProblem, Sizes
from backend.templates.tiles import shape_class
from backend.toolchain.target import Target, amdgpu, cpu, cuda
from backend.toolchain.targets import DEFAULT_TARGETS
from tests.support.template_cases import CLASSES
from tools.resources_table import SHAPES, offers, plain_problem

SQUARE = Sizes(4096, 4096, 4096)


def _ring(rows: int, cols: int, waves: int, stages: int) -> SkinnyConfig:
    return SkinnyConfig(rows, cols, 1, waves, 8, 8, unit="mma", stages=stages)


def _tile(
    m: int, n: int, k: int, wave_m: int, wave_n: int, stages: int, unit: UnitName = "mma"
) -> GemmConfig:
    return GemmConfig(m, n, k, wave_m, wave_n, unit, 1, 8, 8, 8, stages)


GFX942 = amdgpu("gfx942")


@pytest.mark.parametrize("target", DEFAULT_TARGETS, ids=str)
def test_every_offer_obeys_all_rules(target: Target) -> None:
    device = device_limits(target)
    for sizes in SHAPES:
        for problem in (problem_class.problem() for problem_class in CLASSES):
            tiled = gemm_configs(problem, target, sizes, budget=99)
            skinny = skinny_configs(problem, target, sizes, budget=99)
            assert tiled
            assert [config_defect(config, problem) for config in tiled] == [None] * len(tiled)
            assert [config_defect(config, problem) for config in skinny] == [None] * len(skinny)
            both = (*tiled, *skinny)
            assert [device_defect(config, problem, device) for config in both] == [None] * len(both)
            assert len(set(both)) == len(both)


def test_budget_cuts_the_end_of_the_same_list() -> None:
    problem = plain_problem("float16", SQUARE)
    everything = gemm_configs(problem, GFX942, SQUARE, budget=99)
    assert len(everything) > 5
    for budget in (0, 1, 5):
        assert gemm_configs(problem, GFX942, SQUARE, budget) == everything[:budget]


def test_order_is_the_same_in_another_process() -> None:
    code = (
        "from tests.unit.templates.test_heuristics import listing\n"
        "print('\\n'.join(listing()), end='')"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.splitlines() == listing()


def listing() -> list[str]:
    return [f"{t} {o.config.description}" for t in (GFX942, cuda("sm_90")) for o in offers(t)]


def test_lds_decides_who_gets_two_buffers_of_the_largest_tile() -> None:
    def buffers(arch: str) -> set[int]:
        problem = plain_problem("float16", SQUARE)
        found = gemm_configs(problem, amdgpu(arch), SQUARE, budget=99)
        return {c.stages for c in found if (c.block_m, c.block_n) == (256, 256)}

    assert buffers("gfx942") == {1, 2}  # 64 KiB, all that there is
    assert buffers("gfx950") == {1, 2}
    assert buffers("gfx1100") == set()


def test_matrix_cores_only_where_they_are() -> None:
    for target in DEFAULT_TARGETS:
        for dtype in ("float16", "float32"):
            found = {o.config.unit for o in offers(target, (dtype,)) if o.template == "gemm"}
            families = {UNITS[unit].family if unit in UNITS else "" for unit in found}
            if target.kind == "cpu":
                assert families == {"", "mfma"}
            else:
                matrix = target.matrix if dtype == "float16" or target.wave == 64 else ""
                assert families == {matrix}


def test_few_tiles_are_split_along_k() -> None:
    sizes = Sizes(256, 256, 16384)
    found = gemm_configs(plain_problem("float16", sizes), GFX942, sizes)
    assert found[0].split_k > 1
    assert {c.split_k for c in gemm_configs(plain_problem("float16", SQUARE), GFX942, SQUARE)} == {
        1
    }
    one_unit = gemm_configs(plain_problem("float16", sizes), GFX942, sizes, compute_units=1)
    assert {config.split_k for config in one_unit} == {1}


def test_skinny_is_for_few_rows() -> None:
    for rows, plain, matrix in (
        (1, {1}, {16}),
        (4, {4}, {16}),
        (5, set(), {16}),
        (16, set(), {16}),
        (65, set(), set()),
    ):
        sizes = Sizes(rows, 4096, 4096)
        found = skinny_configs(plain_problem("bfloat16", sizes), GFX942, sizes, budget=99)
        assert {c.rows for c in found if c.unit == "fma"} == plain
        assert {c.rows for c in found if c.unit != "fma"} == matrix


def test_plain_fma_is_offered_where_it_may_keep_up() -> None:
    def units(target: Target, rows: int, dtype: DType = "float16", k_fast: bool = True) -> set[str]:
        sizes = Sizes(rows, 4096, 4096)
        problem = plain_problem(dtype, sizes, k_fast)
        return {c.unit for c in skinny_configs(problem, target, sizes, budget=99)}

    for k_fast in (False, True):
        for rows in (1, 16, 64):
            assert units(cuda("sm_90"), rows, k_fast=k_fast) == {"mma"}
    assert units(GFX942, 4) == {"fma", "mfma16"}
    assert units(GFX942, 8) == {"mfma16"}
    assert units(cuda("sm_90"), 16, "float32") == {"fma"}
    assert units(cuda("sm_90"), 64, "float32") == set()


_BEST_ON_H200: dict[tuple[int, int, int], tuple[GemmConfig | SkinnyConfig, ...]] = {
    (1, 4096, 14336): (_ring(8, 16, 8, 4), _ring(8, 16, 4, 8), _ring(8, 32, 4, 6)),
    (8, 4096, 14336): (_ring(8, 32, 4, 6), _ring(8, 16, 8, 4), _ring(8, 16, 4, 8)),
    (16, 4096, 14336): (_ring(16, 32, 4, 6), _ring(16, 32, 4, 4)),
    (32, 4096, 14336): (_ring(32, 32, 4, 4),),
    (64, 4096, 14336): (_ring(64, 32, 4, 4),),
    (1, 4096, 4096): (_ring(8, 16, 8, 4),),
    (8, 4096, 4096): (_ring(8, 16, 8, 4), _ring(8, 16, 4, 8), _ring(8, 32, 4, 6)),
    (16, 4096, 4096): (_ring(16, 32, 4, 6), _ring(16, 32, 4, 4)),
    (32, 4096, 4096): (_ring(32, 32, 4, 4), _ring(32, 16, 4, 4)),
    (64, 4096, 4096): (_ring(64, 32, 4, 4),),
    (1, 14336, 4096): (_ring(8, 16, 4, 4), _ring(8, 64, 2, 4), _ring(8, 32, 4, 4)),
    (8, 14336, 4096): (_ring(8, 64, 2, 4), _ring(8, 16, 4, 4), _ring(8, 32, 4, 4)),
    (16, 14336, 4096): (_ring(16, 64, 2, 4), _tile(16, 64, 128, 16, 16, 4)),
    (32, 14336, 4096): (_tile(32, 64, 128, 32, 16, 3), _tile(32, 64, 64, 32, 16, 5)),
    (64, 14336, 4096): (_tile(64, 64, 128, 32, 32, 3), _tile(64, 64, 64, 16, 64, 5, "wgmma")),
}
"""The fastest of 80 configs, and what came within 2 % of it; K fast, fp16, cold."""


def test_a_budget_of_four_holds_the_best_of_few_rows() -> None:
    for (m, n, k), best in _BEST_ON_H200.items():
        sizes = Sizes(m, n, k)
        problem, target = plain_problem("float16", sizes, True), cuda("9.0").specific
        found = (
            *skinny_configs(problem, target, sizes, budget=4),
            *gemm_configs(problem, target, sizes, budget=4),
        )
        assert {replace(c, group_m=8) if isinstance(c, GemmConfig) else c for c in found} & {*best}


def test_skinny_by_tensor_cores() -> None:
    """For up to 64 rows; waves enough to fill the device."""
    for rows, wanted in ((1, 8), (9, 16), (33, 64)):
        for b_k_fast in (False, True):
            sizes = Sizes(rows, 4096, 4096)
            problem = plain_problem("float16", sizes, b_k_fast)
            found = skinny_configs(problem, cuda("sm_90"), sizes)
            assert found[0].unit == "mma"
            assert {c.rows for c in found if c.unit == "mma"} == {wanted}
            assert 4096 // found[0].cols * found[0].waves * found[0].split_k >= 3 * 132


def test_shape_classes() -> None:
    assert [shape_class(s) for s in SHAPES[:5]] == ["square", "tall", "wide", "small", "large-k"]
    assert {shape_class(s) for s in SHAPES[5:]} == {"decode"}


def test_the_cpu_list_is_short() -> None:
    found = gemm_configs(plain_problem("float32", SQUARE), cpu(), SQUARE)
    assert 2 <= len(found) <= 4
    assert {config.split_k for config in found} == {1}


def test_unknown_architecture() -> None:
    with pytest.raises(ConfigError, match="no configs for amdgpu:gfx1030; known: gfx90a"):
        gemm_configs(plain_problem("float16", SQUARE), amdgpu("gfx1030"), SQUARE)


def test_too_large_configs_are_refused_with_the_reason() -> None:
    problem, device = plain_problem("float32", SQUARE), device_limits(cuda("sm_90"))
    large = GemmConfig(256, 256, 32, 32, 64)
    assert lds_bytes(large, problem) == 2 * 4 * 32 * 2 * (256 + 4)
    assert str(device_defect(large, problem, device)).startswith("133120 bytes of LDS")
    fat = GemmConfig(128, 128, 8, 64, 128)
    assert "registers a thread" in str(device_defect(fat, problem, device))
    many = GemmConfig(512, 512, 4, 32, 64)
    assert "4096 threads" in str(device_defect(many, problem, device))


def test_descriptions_name_every_choice() -> None:
    for target in DEFAULT_TARGETS:
        for sizes in SHAPES:
            problem: GemmProblem = plain_problem("float16", sizes)
            both = (
                *gemm_configs(problem, target, sizes),
                *skinny_configs(problem, target, sizes),
            )
            names = [config.description for config in both]
            assert len(set(names)) == len(names) > 0
            assert all(", " in name and "=" in name for name in names)


def test_what_was_fastest_in_fp64_comes_first() -> None:
    """On an H200: two blocks of four waves, which do not wait for each other."""
    for m, n, k in ((4096, 4096, 4096), (2048, 2048, 2048), (1000, 1544, 2088)):
        sizes = Sizes(m, n, k)
        problem = plain_problem("float64", sizes)
        first = gemm_configs(problem, Target("cuda", "sm_90a"), sizes, compute_units=132)[0]
        assert (first.block_m, first.block_n, first.wave_m, first.wave_n) == (64, 64, 32, 32)
