"""The check of test_templates_numerics.py catches mistakes that are planted in the kernels.

A missing barrier and each mask made wrong: the same binaries, the same drawn calls.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from backend.templates.config import GemmConfig, SkinnyConfig
from backend.templates.legality import takes_boxes
from backend.toolchain import targets
from backend.toolchain.target import Missing, cpu
from tests.support.template_cases import Binary, binaries, check
from tests.support.template_lab import build

if isinstance(missing := targets.find_compiler(cpu()), Missing):
    pytest.skip(missing.reason, allow_module_level=True)


def _gemm(unit: str, stages: int) -> Binary:
    """One with several waves, vector accesses, and tiles that the drawn sizes do not fill."""
    return next(
        b
        for b in binaries()
        if isinstance(b.config, GemmConfig)
        and b.config.unit.startswith(unit)
        and (b.config.stages, b.config.waves) == (stages, 4)
        and takes_boxes(b.config, b.problem_class.problem()) == (unit == "wgmma")
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


def _few(b_k_fast: bool) -> Binary:
    """Few rows by a matrix unit."""
    return next(
        b
        for b in binaries()
        if isinstance(b.config, SkinnyConfig)
        and b.config.unit == ("mfma16" if b_k_fast else "mma")
        and (b.problem_class.a_k_fast, b.problem_class.b_k_fast) == (True, b_k_fast)
    )


def _ring() -> Binary:
    """Few rows by copies of each wave."""
    return next(b for b in binaries() if isinstance(b.config, SkinnyConfig) and b.config.stages > 1)


def _narrow() -> Binary:
    """A warpgroup's product whose tiles are copied by all threads."""
    return next(
        b
        for b in binaries()
        if isinstance(b.config, GemmConfig)
        and b.config.unit == "wgmma"
        and not takes_boxes(b.config, b.problem_class.problem())
    )


def _boxes() -> Binary:
    """One whose tiles come by bulk copies, K fast in both factors."""
    return next(
        b
        for b in binaries()
        if isinstance(b.config, GemmConfig)
        and b.config.unit == "wgmma"
        and takes_boxes(b.config, b.problem_class.problem())
        and b.problem_class.a_k_fast
        and b.problem_class.b_k_fast
    )


BARRIERS = [
    *((_gemm("mfma", 2), number) for number in (0, 1)),
    *((_gemm("fma", 2), number) for number in (0, 1)),
    *((_gemm("mfma", 1), number) for number in (0, 1)),
    *((_gemm("mma", 4), number) for number in (0, 1)),
    *((_narrow(), number) for number in (0, 1)),
    *((_boxes(), number) for number in (0, 1, 2)),
    (_skinny(True), 0),
    (_few(True), 0),
    (_ring(), 0),
]
_GEMM, _PLAIN, _PIPELINE = _gemm("mfma", 2), _gemm("fma", 2), _gemm("mma", 4)
_WARPGROUP, _BOXES = _narrow(), _boxes()
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
    (_GEMM, "if (i < valid) to[i * step]", "to[i * step]"),
    (_PIPELINE, "line < slow_left ?", "line <= slow_left ?"),
    (_PIPELINE, "PIECE : max_of(0, min_of(PIECE,", "PIECE : max_of(0, max_of(PIECE,"),
    (_PIPELINE, "k_left >= BLOCK_K && (ASYNC", "(ASYNC"),
    (_PIPELINE, "if (i < inside)", "if (true)"),
    (_PIPELINE, "fast < left ? EACH : 0", "fast < left ? EACH - 1 : 0"),
    (_PIPELINE, "last : inner;", "inner : last;"),
    (_PIPELINE, "(chunk % PANEL ^ line / REPEAT % PANEL)", "(chunk % PANEL ^ line / REPEAT % 2)"),
    (_WARPGROUP, "(chunk % PANEL ^ line / REPEAT % PANEL)", "(chunk % PANEL ^ line / REPEAT % 4)"),
    (_WARPGROUP, "AHEAD = STAGES - 2", "AHEAD = STAGES - 1"),
    (_WARPGROUP, "rt::products_wait<1>();", "rt::products_wait<3>();"),
    (_WARPGROUP, "rt::products_wait<0>();", ""),
    (_WARPGROUP, "rt::copies_to_products();", ""),
    (_WARPGROUP, "rt::products_begin();", ""),
    (_WARPGROUP, "rt::copy_wait<AHEAD - 1>();", ""),
    (_WARPGROUP, "rt::wave() % 4 * 16", "rt::wave() % 4 * 8"),
    (_WARPGROUP, ": Ring::PANEL_SIZE / WIDEST", ": 1"),
    (_BOXES, "AHEAD = STAGES - 1", "AHEAD = STAGES"),
    (_BOXES, "rt::products_wait<1>();", "rt::products_wait<2>();"),
    (_BOXES, "rt::products_wait<0>();", ""),
    (_BOXES, "rt::products_begin();", ""),
    (_BOXES, "rt::arrival_wait(arrivals + stage, round);", ""),
    (_BOXES, "round ^= 1", "round ^= 0"),
    (_BOXES, "STAGE * sizeof(In));", "RingA::SIZE * sizeof(In));"),
    (
        _BOXES,
        "k_fast ? args.k : outer, k_fast ? outer : args.k",
        "k_fast ? args.k + 8 : outer, k_fast ? outer : args.k + 8",
    ),
    (_BOXES, "KFast ? outer : k, batch", "KFast ? 0 : 0, batch"),
    (_GEMM, "if (at >= across * lines) return;", ""),
    (_skinny(True), "left < LANE_K ? static_cast<int>(left) : LANE_K", "LANE_K"),
    (_skinny(True), "min_of(row, args.rows - 1)", "row"),
    (_skinny(False), "any ? args.cols - col : 0", "args.cols - col"),
    (_ring(), "rt::copy_wait<STAGES - 2>();", "rt::copy_wait<STAGES - 1>();"),
    (_ring(), "last - k < DEPTH ? static_cast<int>(last - k) : DEPTH", "DEPTH"),
    (_ring(), "min_of(col + i + first, args.cols - 1)", "col + i + first"),
    (_ring(), "if (line < args.rows) rt::copy_async", "rt::copy_async"),
    (_ring(), "eight % 2 * 8", "eight / 2 * 8"),
    (_few(True), "left < DEPTH ? static_cast<int>(left) : DEPTH", "DEPTH"),
    (
        _few(True),
        "Unit::right_line(rt::lane()), args.rows - 1",
        "Unit::right_line(rt::lane()), 1 << 20",
    ),
    (_few(False), "any ? args.cols - first_of(col) : 0", "args.cols - first_of(col)"),
    (_few(False), "tile * LINES + line / lanes", "line / lanes * LINES + tile"),
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
        check(build(rendered, tmp_path, broken), binary, shrink=False, examples=60)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("instead", ["", "rt::copy_wait<AHEAD>();"])
def test_missing_wait_is_caught(number: int, instead: str, tmp_path: Path) -> None:
    rendered = _PIPELINE.render()
    waits = list(re.finditer(r"rt::copy_wait<AHEAD - 1>\(\);", rendered.source))
    assert len(waits) == 2
    at = waits[number]
    broken = rendered.source[: at.start()] + instead + rendered.source[at.end() :]
    with pytest.raises(AssertionError):
        check(build(rendered, tmp_path, broken), _PIPELINE, shrink=False, examples=60)


@pytest.mark.parametrize(("binary", "mask", "wrong"), MASKS, ids=lambda x: getattr(x, "name", x))
def test_wrong_mask_is_caught(binary: Binary, mask: str, wrong: str, tmp_path: Path) -> None:
    rendered = binary.render()
    assert mask in rendered.source
    with pytest.raises(AssertionError):
        check(
            build(rendered, tmp_path, rendered.source.replace(mask, wrong)),
            binary,
            shrink=False,
            examples=60,
        )
