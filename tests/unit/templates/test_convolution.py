"""Convolutions on the CPU target: right numbers for drawn images, in memory with guard pages, and
mistakes in the loads that are found by them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backend.errors import UnsupportedProblemError
from backend.templates.config import GemmConfig
from backend.templates.convolution import convolution_problem
from backend.templates.heuristics import gemm_configs
from backend.templates.legality import config_defect
from backend.templates.operand import Operand
from backend.templates.problem import Sizes
from backend.toolchain import code_cache, targets
from backend.toolchain.resources import Unknown, resources
from backend.toolchain.target import Missing, Target, amdgpu, cpu
from tests.support.conv_lab import Binary, Class, check
from tests.support.template_lab import Kernel, build, build_all

if isinstance(missing := targets.find_compiler(cpu()), Missing):
    pytest.skip(missing.reason, allow_module_level=True)

GPUS = [
    *(amdgpu(arch) for arch in ("gfx90a", "gfx942", "gfx1100", "gfx1201")),
    Target("cuda", "sm_80"),
    Target("cuda", "sm_90a"),
]

CLASSES = {
    "strided": Class("float16", 16, 24, stride=(2, 2), padding=(1, 1), bias=True),
    "ragged-groups": Class(
        "float32", 3, 5, (2, 3), (1, 2), (0, 2), (2, 1), groups=2, bias=True, activation="silu"
    ),
    "channels-first": Class(
        "float32", 5, 7, padding=(1, 1), image=False, weight=False, out=False, bias=True
    ),
    "channels-first-dilated": Class(
        "bfloat16", 8, 16, (3, 2), dilation=(2, 2), image=False, weight=False, out=False,
        activation="relu",
    ),
    "mixed": Class("float32", 4, 8, (1, 3), (2, 1), (0, 1), image=False),
    "depthwise": Class("float16", 1, 1, padding=(1, 1), groups=8),
    "few-channels": Class("float16", 3, 64, (7, 7), (2, 2), (3, 3)),
    "dilated-groups": Class("float16", 8, 16, (3, 2), (1, 2), (2, 1), (2, 3), groups=2, bias=True),
    "pixels-of-128-bytes": Class("float16", 64, 24, (3, 2), (1, 2), (2, 1), (2, 3), groups=2),
    "pixels-of-256-bytes": Class("float16", 128, 32, padding=(1, 1), out=False),
    "pixels-of-8-bytes": Class("bfloat16", 12, 24, (5, 3), padding=(1, 2), out=False),
}  # fmt: skip
TILES = (
    GemmConfig(32, 32, 32, 16, 16, unit="mfma16", kpack=1, stages=2),
    GemmConfig(32, 32, 16, 32, 32, stages=1),
)
# A thread has several patches of a tile, which are turned on their way.
PATCHES = GemmConfig(64, 64, 32, 32, 32, unit="mma", kpack=2, stages=2)
PIPELINES = {
    "mma": GemmConfig(64, 32, 32, 32, 16, unit="mma", stages=3),
    "wgmma": GemmConfig(64, 64, 64, 16, 64, unit="wgmma", stages=4),
}


def binary(name: str, tile: GemmConfig) -> Binary:
    """With the widest accesses that the class allows."""
    problem = CLASSES[name].problem()
    config = next(
        c
        for vec in ((a, b, c) for a in (8, 4, 2, 1) for b in (8, 4, 2, 1) for c in (4, 2, 1))
        if config_defect(
            c := replace(tile, vec_a=vec[0], vec_b=vec[1], vec_c=vec[2]), problem
        ) is None
    )  # fmt: skip
    return Binary(CLASSES[name], config)


BINARIES = {
    f"{name}-{'mfma' if tile.unit != 'fma' else 'fma'}": binary(name, tile)
    for at, name in enumerate(CLASSES)
    for tile in (TILES if name == "strided" else TILES[at % 2 :][:1])
}
BINARIES |= {
    f"{name}-patches": binary(name, PATCHES)
    for name in ("channels-first-dilated", "few-channels", "depthwise")
}
BINARIES |= {
    f"{name}-{unit}": binary(name, PIPELINES[unit])
    for name, unit in (
        ("strided", "mma"),
        ("strided", "wgmma"),
        ("dilated-groups", "mma"),
        ("channels-first-dilated", "mma"),
        ("few-channels", "mma"),
        ("depthwise", "mma"),
        ("pixels-of-8-bytes", "wgmma"),
        ("pixels-of-128-bytes", "wgmma"),
        ("pixels-of-256-bytes", "wgmma"),
    )
}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kernel]:
    built = build_all(BINARIES.values(), tmp_path_factory.mktemp("cache"))
    return dict(zip(BINARIES, built, strict=True))


def test_what_brings_pixels() -> None:
    def boxes(name: str) -> bool:
        source = BINARIES[f"{name}-wgmma"].render().source
        assert ("rt::copy_pixels" in source) != ("struct Gather" in source)
        return "rt::copy_pixels" in source

    assert boxes("pixels-of-128-bytes") and boxes("pixels-of-256-bytes")
    assert not boxes("strided") and not boxes("pixels-of-8-bytes")


def test_vectors_are_as_wide_as_pixels_allow() -> None:
    assert BINARIES["strided-mfma"].config.vec_a == 8
    assert binary("ragged-groups", TILES[1]).config.vec_a == 1
    assert binary("channels-first-dilated", TILES[0]).config.vec_a == 8  # the weight stands first


@pytest.mark.parametrize("name", BINARIES)
def test_numbers(name: str, kernels: dict[str, Kernel]) -> None:
    check(kernels[name], BINARIES[name])


MISTAKES = [
    ("strided-mfma", "y >= 0 && ", ""),
    ("strided-mfma", "x < width", "x <= width"),
    ("strided-mfma", "at < lines ? y : NOWHERE", "y"),
    ("strided-mfma", "s * DILATION_W * pixel_w", "s * pixel_h"),
    ("channels-first-mfma", "k += BLOCK_K", "k += 0"),
    ("strided-mma", "outside[i] |= 1u << r", "outside[i] |= 0"),
    ("strided-mma", "at < lines ? NOWHERE : ~0u", "NOWHERE"),
    ("strided-mma", "(fast) < k_left", "(fast) < BLOCK_K"),
    ("strided-wgmma", "int64_t{this->corner[i]} * BYTES", "this->corner[i]"),
    ("dilated-groups-mma", "s * DILATION_W * pixel_w", "s * pixel_w"),
    ("dilated-groups-mma", "group * CHANNELS", "0"),
    ("dilated-groups-mma", "/ under + 1", "/ under"),
    ("pixels-of-8-bytes-wgmma", "k % CHANNELS * sizeof", "0 * sizeof"),
    ("few-channels-mma", "fast + j < k_left", "fast < k_left"),
    ("channels-first-dilated-mma", "(c) * channel", "(c)"),
    ("pixels-of-128-bytes-wgmma", "s * DILATION_W, r", "s, r"),
    ("pixels-of-128-bytes-wgmma", "channel + k % CHANNELS", "k % CHANNELS"),
    ("pixels-of-128-bytes-wgmma", "{PADDING_W - ACROSS,", "{PADDING_W,"),
    ("pixels-of-256-bytes-wgmma", "channel + k % CHANNELS", "channel"),
    ("pixels-of-256-bytes-wgmma", "down * STRIDE_H - PADDING_H", "down * STRIDE_H"),
]


@pytest.mark.parametrize(("name", "right", "wrong"), MISTAKES)
def test_a_wrong_load_is_caught(name: str, right: str, wrong: str, tmp_path: Path) -> None:
    rendered = BINARIES[name].render()
    assert rendered.source.count(right) == 1
    with pytest.raises(AssertionError):
        check(build(rendered, tmp_path, rendered.source.replace(right, wrong)), BINARIES[name])


def _operands(channels_last: bool = True) -> dict[str, Operand]:
    shapes = Class("float32", 4, 8, out=channels_last, bias=True).shapes()
    return {name: Operand(name, "float32", *shape) for name, shape in shapes.items()}


def test_what_no_product_is() -> None:
    o = _operands()
    for given, why in (
        ((("transposed", (1,)),), "transposed"),
        ((("output_padding", (0, 1)),), "output_padding"),
    ):
        with pytest.raises(UnsupportedProblemError, match=why):
            convolution_problem(o["X"], o["W"], o["Y"], None, given)
    gaps = replace(o["W"], strides=(72, 1, 24, 8))
    with pytest.raises(UnsupportedProblemError, match="filters are not contiguous"):
        convolution_problem(o["X"], gaps, o["Y"], None, ())
    holes = replace(o["Y"], strides=(999, 1, 99, 8))
    with pytest.raises(UnsupportedProblemError, match="places are not contiguous"):
        convolution_problem(o["X"], o["W"], holes, None, ())
    first = _operands(channels_last=False)["Y"]
    with pytest.raises(UnsupportedProblemError, match="groups of several images"):
        convolution_problem(o["X"], o["W"], first, None, (("groups", (2,)),))


def test_configs_are_those_of_the_product() -> None:
    problem = CLASSES["strided"].problem()
    sizes = problem.sizes(lambda size: 8 if not isinstance(size, int) else size)
    assert gemm_configs(problem, cpu(), sizes)


def test_which_copies_gather() -> None:
    hopper, plain = Target("cuda", "sm_90a"), amdgpu("gfx942")

    def units(given: Class, target: Target) -> set[str]:
        sizes = Sizes(25_088, given.filters, given.channels * given.kernel[0] * given.kernel[1])
        configs = gemm_configs(given.problem(), target, sizes)
        return {config.unit for config in configs if config.pipelined}

    c = Class("float16", 64, 64)
    assert units(c, hopper) == {"wgmma", "mma"} and not units(c, plain)
    assert units(replace(c, channels=3), hopper) == {"mma"}  # a copy has 4 bytes at least
    assert units(replace(c, image=False), hopper) == {"mma"}  # channels are not last
    assert not units(replace(c, kernel=(16, 16)), hopper)  # 31 bits for rows and columns


@pytest.mark.parametrize("target", GPUS, ids=str)
def test_it_compiles_for_gpus_without_scratch(target: Target, tmp_path: Path) -> None:
    if isinstance(found := targets.find_compiler(target), Missing):
        pytest.skip(found.reason)
    sizes = Sizes(8 * 56 * 56, 64, 9 * 16)
    configs = gemm_configs(CLASSES["strided"].problem(), target, sizes)
    assert configs
    for config in configs[:2]:
        source = Binary(CLASSES["strided"], config).render().source
        made = resources(code_cache.compile(source, target, cache_root=tmp_path))
        if isinstance(made, Unknown):
            pytest.skip(made.reason)
        assert made and all((kernel.scratch, kernel.vgpr_spills) == (0, 0) for kernel in made)
