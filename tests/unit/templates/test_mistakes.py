"""The check of test_templates_numerics.py catches mistakes that are planted in the kernels.

A missing barrier and each mask made wrong: the same binaries, the same drawn calls.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from backend.templates.config import GemmConfig, SkinnyConfig
from backend.toolchain import targets
from backend.toolchain.target import Missing, cpu
from tests.support.template_cases import Binary, binaries, check
from tests.support.template_lab import build

if isinstance(missing := targets.find(cpu()), Missing):
    pytest.skip(missing.reason, allow_module_level=True)


def _gemm(matrix: bool, stages: int) -> Binary:
    """One with several waves, vector accesses, and tiles that the drawn sizes do not fill."""
    return next(
        b
        for b in binaries()
        if isinstance(b.config, GemmConfig)
        and (b.config.unit.startswith("mfma") if matrix else b.config.unit == "fma")
        and (b.config.stages, b.config.waves) == (stages, 4)
        and min(b.config.vec_a, b.config.vec_b, b.config.vec_c) > 1
    )


def _skinny(b_k_fast: bool) -> Binary:
    return next(
        b
        for b in binaries()
        if isinstance(b.config, SkinnyConfig)
        and b.problem_class.b_k_fast == b_k_fast
        and b.config.waves_k > 1
        and 1 < b.config.rows <= 4
        and min(b.config.vec_a, b.config.vec_b) > 1
    )


BARRIERS = [
    *((_gemm(True, 2), number) for number in (0, 1)),
    *((_gemm(False, 2), number) for number in (0, 1)),
    *((_gemm(True, 1), number) for number in (0, 1)),
    (_skinny(True), 0),
]
_GEMM, _PLAIN = _gemm(True, 2), _gemm(False, 2)
MASKS = [
    (_GEMM, "slow < slow_left", "slow <= slow_left"),
    (_PLAIN, "slow < slow_left", "slow <= slow_left"),
    (_GEMM, "count >= N", "count > 0"),
    (_PLAIN, "? fast_left : 0", "? fast_left + 1 : 0"),
    (_GEMM, "outer_left >= Outer && k_left >= BLOCK_K", "outer_left >= Outer"),
    (_PLAIN, "outer_left >= Outer && k_left >= BLOCK_K", "k_left >= BLOCK_K"),
    (_GEMM, "k_first + args.k_per_part < args.k ?", "true ?"),
    (_GEMM, "row >= args.rows ||", "row > args.rows ||"),
    (_PLAIN, "|| col >= args.cols", ""),
    (_GEMM, "first + Width <= left", "first < left"),
    (_GEMM, "if (at >= across * lines) return;", ""),
    (_skinny(True), "left < LANE_K ? static_cast<int>(left) : LANE_K", "LANE_K"),
    (_skinny(True), "min_of(row, args.rows - 1)", "row"),
    (_skinny(False), "any ? args.cols - col : 0", "args.cols - col"),
    (_skinny(False), "first + args.k_per_part < args.k ?", "true ?"),
]


@pytest.mark.parametrize(("binary", "number"), BARRIERS, ids=lambda x: getattr(x, "name", str(x)))
def test_missing_barrier_is_caught(binary: Binary, number: int, tmp_path: Path) -> None:
    rendered = binary.render()
    barriers = list(re.finditer(r"__syncthreads\(\);", rendered.source))
    assert barriers, rendered.source
    at = barriers[number]
    broken = rendered.source[: at.start()] + rendered.source[at.end() :]
    with pytest.raises(AssertionError):
        check(build(rendered, tmp_path, broken), binary, shrink=False)


@pytest.mark.parametrize(("binary", "mask", "wrong"), MASKS, ids=lambda x: getattr(x, "name", x))
def test_wrong_mask_is_caught(binary: Binary, mask: str, wrong: str, tmp_path: Path) -> None:
    rendered = binary.render()
    assert mask in rendered.source
    with pytest.raises(AssertionError):
        check(build(rendered, tmp_path, rendered.source.replace(mask, wrong)), binary, shrink=False)
