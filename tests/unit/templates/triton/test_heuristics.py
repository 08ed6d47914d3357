"""Configs: deterministic, within the budget, and such that they fit."""

from __future__ import annotations

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from backend.errors import ConfigError
from backend.model.ops import ITEM_BYTES
from backend.templates.operand import Expr, Operand
from backend.templates.triton.choice import TritonGemmConfig
from backend.templates.triton.gemm import TritonGemm
from backend.templates.triton.heuristics import ARCHES, ProductShape, configs, fits, lds_bytes

SIZES = st.one_of(st.integers(1, 64), st.sampled_from([128, 333, 1024, 4096, 11008, 32768]))


def gemm(m: Expr, n: Expr, k: Expr, dtype: str = "float16", batch: Expr = 1) -> TritonGemm:
    def operand(name: str, *sizes: Expr) -> Operand:
        rows = sympy.sympify(sizes[0])
        strides = (rows * sizes[1], sizes[1], 1)
        return Operand(name, dtype, (batch, *sizes), strides)  # type: ignore[arg-type]

    return TritonGemm(operand("a", m, k), operand("b", k, n), operand("c", m, n))


@given(
    m=SIZES,
    n=SIZES,
    k=st.one_of(SIZES, st.just(0)),
    batch=st.sampled_from([1, 1, 16]),
    dtype=st.sampled_from(["float16", "bfloat16", "float32"]),
    arch=st.sampled_from(sorted(ARCHES)),
    budget=st.integers(1, 20),
)
def test_every_config_fits_its_problem(
    m: int, n: int, k: int, batch: int, dtype: str, arch: str, budget: int
) -> None:
    problem = gemm(m, n, k, dtype, batch)
    found = configs(problem, arch, budget=budget)
    assert 1 <= len(found) <= budget
    assert len(set(found)) == len(found)
    assert found == configs(problem, arch, budget=budget)
    assert found == configs(problem, arch, budget=20)[:budget]
    shape = ProductShape(m, n, k, batch, ITEM_BYTES[dtype])
    for config in found:
        assert fits(config, shape, ARCHES[arch])
        assert config.block_m < 2 * max(16, m) and config.block_n < 2 * max(16, n)
        assert config.group_m <= max(1, -(-m // config.block_m))
        assert config.split_k == 1 or k // (config.block_k * config.split_k) >= 3
        assert config.kpack == 1 or (dtype != "float32" and arch != "gfx950")
        assert config.xcds in (1, ARCHES[arch].gpu.xcds)


def shapes(problem: TritonGemm, arch: str) -> set[tuple[int, int]]:
    return {(config.block_m, config.block_n) for config in configs(problem, arch)}


@pytest.mark.parametrize("arch", ARCHES)
def test_each_class_of_shapes_gets_its_own_tiles(arch: str) -> None:
    decoding, square = gemm(8, 4096, 8192), gemm(4096, 4096, 4096)
    assert {m for m, _ in shapes(decoding, arch)} == {16}
    assert {max(tile) for tile in shapes(square, arch)} & {128, 256}
    assert min(m for m, _ in shapes(square, arch)) >= 32
    assert any(config.split_k > 1 for config in configs(decoding, arch))
    assert all(config.split_k == 1 for config in configs(square, arch))


def test_dies_are_dealt_to_where_there_are_dies() -> None:
    square = gemm(4096, 4096, 4096)
    assert {config.xcds for config in configs(square, "gfx90a")} == {1}
    assert {config.xcds for config in configs(square, "gfx942")} == {8}


def test_third_stages_and_big_tiles_only_where_lds_holds_them() -> None:
    big = TritonGemmConfig(256, 256, 64, num_stages=3, num_warps=8)
    assert lds_bytes(big, 2, ARCHES["gfx942"]) == 2 * 512 * 64 * 2 > ARCHES["gfx942"].gpu.unit.lds
    assert lds_bytes(big, 2, ARCHES["gfx950"]) > ARCHES["gfx950"].gpu.unit.lds
    assert {config.num_stages for config in configs(gemm(512, 512, 512), "gfx942")} == {2}
    assert {config.num_stages for config in configs(gemm(512, 512, 512), "gfx950")} == {2, 3}


def test_dynamic_sizes_by_a_guess() -> None:
    m = sympy.Symbol("s0")
    problem = gemm(m, 4096, 4096)

    def guess(rows: int) -> tuple[TritonGemmConfig, ...]:
        return configs(problem, "gfx942", hint=lambda e: int(sympy.sympify(e).subs({m: rows})))

    assert guess(4096) == configs(gemm(4096, 4096, 4096), "gfx942")
    assert {config.block_m for config in guess(4)} == {16}


def test_no_output_and_no_arch() -> None:
    assert configs(gemm(0, 8, 8), "gfx942") == ()
    with pytest.raises(ConfigError, match="no Triton configs for gfx1100; there are some"):
        configs(gemm(8, 8, 8), "gfx1100")
