"""Direct convolutions of groups of few channels on the CPU target: right numbers for drawn images,
in memory with guard pages, and mistakes that are found by them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from backend.errors import ConfigError, UnsupportedProblemError
from backend.templates.config import DirectConfig, parse_template_config
from backend.templates.few_channels import direct_configs
from backend.templates.legality import config_defect
from backend.templates.problem import Sizes
from backend.templates.rendering import render
from backend.toolchain import targets
from backend.toolchain.target import Missing, Target, amdgpu, cpu
from tests.support.conv_lab import Binary, Class, check
from tests.support.template_lab import Kernel, build, build_all
from tools.resources_table import grouped_problem

if isinstance(missing := targets.find_compiler(cpu()), Missing):
    pytest.skip(missing.reason, allow_module_level=True)

CLASSES = {
    "fours": Class("float16", 4, 4, padding=(1, 1), groups=8, bias=True),
    "depthwise": Class("float16", 1, 1, (3, 5), padding=(1, 2), groups=40, activation="relu"),
    "strided": Class("bfloat16", 1, 1, stride=(2, 2), padding=(1, 1), groups=32, bias=True),
    "sixteens": Class("bfloat16", 16, 16, (3, 2), (1, 2), (2, 1), (2, 3), groups=3, bias=True),
    "thirty-twos": Class("float16", 32, 32, padding=(1, 1), groups=2),
    "wider": Class("float16", 8, 16, padding=(1, 1), groups=4, weight=False),
    "narrower": Class("float16", 8, 4, padding=(0, 1), groups=6, activation="silu"),
    "twice": Class("float32", 1, 2, (2, 3), (1, 2), (0, 2), (2, 1), groups=5, bias=True),
    "odd": Class("float32", 3, 5, (7, 7), padding=(3, 3), groups=2, weight=False),
    "rows-first": Class("float32", 2, 2, padding=(1, 1), groups=4, image=False),
}  # fmt: skip
# Tiles whose edges are beyond the image's, and beyond its filters.
PLANS = {
    "mfma": DirectConfig(4, 8, 32, 1, 2, unit="mfma16"),
    "mma": DirectConfig(3, 16, 16, 2, 1, unit="mma"),
    "wide": DirectConfig(4, 4, 64, 2, 1, unit="mma", tiles=3),
    "gfx11": DirectConfig(4, 4, 16, 1, 1, unit="wmma_gfx11"),
    "gfx12": DirectConfig(2, 8, 32, 1, 1, unit="wmma_gfx12"),
    "fma": DirectConfig(3, 8, 16, 1, 4, 4),
    "pairs": DirectConfig(2, 6, 8, 1, 3, 2),
    "ones": DirectConfig(4, 3, 5, 1, 1, 1, tiles=2),
}
NAMES = (
    ("fours", "mfma"),
    ("fours", "mma"),
    ("fours", "wide"),
    ("fours", "gfx11"),
    ("fours", "gfx12"),
    ("fours", "fma"),
    ("depthwise", "mma"),
    ("depthwise", "fma"),
    ("strided", "fma"),
    ("strided", "mma"),
    ("sixteens", "mma"),
    ("sixteens", "mfma"),
    ("thirty-twos", "mfma"),
    ("wider", "mma"),
    ("wider", "fma"),
    ("narrower", "wide"),
    ("narrower", "pairs"),
    ("twice", "pairs"),
    ("odd", "ones"),
    ("rows-first", "fma"),
)


def binary(name: str, plan: str) -> Binary:
    """With the widest accesses that the class allows."""
    problem = CLASSES[name].problem(joined=True)
    config = next(
        c
        for vec in itertools.product((8, 4, 2, 1), repeat=3)
        if config_defect(
            c := replace(PLANS[plan], vec_a=vec[0], vec_b=vec[1], vec_c=vec[2]), problem
        ) is None
    )  # fmt: skip
    return Binary(CLASSES[name], config)


BINARIES = {f"{name}-{plan}": binary(name, plan) for name, plan in NAMES}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kernel]:
    built = build_all(BINARIES.values(), tmp_path_factory.mktemp("cache"))
    return dict(zip(BINARIES, built, strict=True))


@pytest.mark.parametrize("name", BINARIES)
def test_numbers(name: str, kernels: dict[str, Kernel]) -> None:
    check(kernels[name], BINARIES[name])


MISTAKES = [
    ("fours-mfma", "static_cast<unsigned>(top + at.y) < static_cast<unsigned>(args.height) &&", ""),
    ("fours-mma", "< static_cast<unsigned>(args.width)", "<= static_cast<unsigned>(args.width)"),
    ("fours-mma", "      rt::copy_wait<0>();\n", ""),
    ("fours-wide", "rt::copy_wait<1>();", ""),
    ("fours-wide", "    // The next but one goes where this one is.\n    __syncthreads();", ""),
    ("depthwise-mma", "&& at.piece * VEC_A < channels", ""),
    ("fours-mma", "place_in_line(line, lane / Unit::N % 2 * HALF)", "lane / Unit::N % 2 * HALF"),
    ("thirty-twos-mfma", "channel / SIDE) * SIDE", "0) * SIDE"),
    ("fours-gfx12", "  if (CHANNELS % SIDE != 0 || FILTERS % SIDE != 0) {", "  if (false) {"),
    ("fours-wide", "Unit::run_length * RUN", "Unit::run_length"),
    ("fours-fma", "block.x + x < args.out_width", "true"),
    ("depthwise-fma", "if (block.col + filter >= args.cols) break;", ""),
    ("strided-fma", "(p - s * DILATION_W) / STRIDE_W", "p - s"),
    ("strided-fma", "y * STRIDE_H * HALO_W", "y * HALO_W"),
    ("strided-mma", "block.y * STRIDE_H - PADDING_H", "block.y - PADDING_H"),
    ("sixteens-mma", "s * DILATION_W) * PIXEL", "s) * PIXEL"),
    ("sixteens-mfma", "r * DILATION_H * HALO_W", "r * HALO_W"),
    ("thirty-twos-mfma", "* PIXEL + step * SIDE", "* PIXEL"),
    ("wider-mma", "line % high * BLOCK_H", "0"),
    ("odd-ones", "k % POINTS, k / POINTS", "k / POINTS, k % POINTS"),
    ("depthwise-fma", "f / FILTERS * CHANNELS) + k", "0) + k"),
    ("rows-first-fma", "at.piece * VEC_A * args.image_c", "at.piece * VEC_A"),
    ("odd-ones", "piece -= PIECES, ++x", "piece -= PIECES"),
]


@pytest.mark.parametrize(("name", "right", "wrong"), MISTAKES)
def test_a_mistake_is_caught(name: str, right: str, wrong: str, tmp_path: Path) -> None:
    rendered = BINARIES[name].render()
    assert rendered.source.count(right) == 1, rendered.source.count(right)
    with pytest.raises(AssertionError):
        check(build(rendered, tmp_path, rendered.source.replace(right, wrong)), BINARIES[name])


def test_what_is_no_direct_convolution() -> None:
    fours, fma, matrix = CLASSES["fours"], PLANS["fma"], PLANS["mma"]

    def why(config: DirectConfig, given: Class = fours, joined: bool = True) -> str:
        return config_defect(config, given.problem(joined)) or ""

    assert not why(fma) and not why(matrix)
    assert "filters of all groups" in why(fma, joined=False)
    assert "multiple of a thread's places" in why(replace(fma, each=3))
    assert "a thread's filters" in why(replace(fma, run=8), replace(fours, filters=6))
    assert "a block's filters" in why(replace(fma, cols=12), replace(fours, filters=8))
    assert "vec_a" in why(replace(fma, vec_a=16)) and "vec_b" in why(replace(fma, vec_b=8))
    assert "vec_c" in why(replace(fma, vec_c=8))
    assert "multiply float32" in why(matrix, replace(fours, dtype="float32"))
    assert "16 places" in why(replace(matrix, unit="wgmma"))
    assert "a wave's places" in why(replace(matrix, each=2))
    assert "16 filters see" in why(matrix, replace(fours, channels=3, filters=16))
    first = replace(fours, out=False)
    with pytest.raises(UnsupportedProblemError, match="channels are not last"):
        first.problem(joined=True)
    with pytest.raises(ConfigError, match="filters of all groups"):
        render(fours.problem(), fma, "entry")


def test_a_config_is_read_from_its_description() -> None:
    config = BINARIES["fours-mma"].config
    assert parse_template_config("direct", config.description) == config


def _offered(given: Class, target: Target) -> tuple[DirectConfig, ...]:
    problem = given.problem(joined=True)
    return direct_configs(problem, target, Sizes(100_352, given.groups * given.filters, 9), 64)


def test_when_it_is_offered() -> None:
    hopper = Target("cuda", "sm_90a")
    few = Class("float16", 4, 4, padding=(1, 1), groups=32)
    units = {config.unit for config in _offered(few, hopper)}
    assert units and units <= {"mma", "fma"}
    assert {c.unit for c in _offered(replace(few, channels=16, filters=16), hopper)} == {"mma"}
    assert {c.unit for c in _offered(replace(few, dtype="float32"), hopper)} == {"fma"}
    assert {c.unit for c in _offered(few, amdgpu("gfx942"))} <= {"mfma16", "fma"}
    assert _offered(few, cpu())
    assert not _offered(replace(few, groups=1), hopper)
    assert not _offered(replace(few, channels=64, filters=64), hopper)


def test_what_was_fastest_for_a_depthwise_convolution_is_among_the_first() -> None:
    """32x128x56x56, 3x3, on an H200: the two fastest of all that were run there."""
    hopper = Target("cuda", "sm_90a")
    problem, sizes = grouped_problem("float16", 1), Sizes(100_352, 128, 9)
    found = direct_configs(problem, hopper, sizes, compute_units=132)
    tiles = [(c.unit, c.tile_h, c.tile_w, c.cols, c.tiles) for c in found]
    assert ("fma", 14, 28, 64, 4) in tiles
    assert (8, 7) in [
        (config.waves, config.each)
        for config, tile in zip(found, tiles, strict=True)
        if tile == ("fma", 16, 28, 16, 1)
    ]
