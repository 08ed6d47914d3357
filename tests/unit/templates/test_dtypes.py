"""Products of fp64, fp8 and int8, with scales, and sums of two products, against exact sums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from backend.errors import UnsupportedProblemError
from backend.templates.config import GemmConfig, SkinnyConfig
from backend.templates.heuristics import gemm_configs, skinny_configs
from backend.toolchain import code_cache, targets
from backend.toolchain.target import Missing, Target, amdgpu, cpu, cuda
from tests.support import template_lab
from tests.support.template_cases import Binary, Class, check
from tests.support.template_lab import Kernel, Run, build, build_all, failure, memory_for
from tools.resources_table import GPUS, SHAPES

needs_compiler = pytest.mark.skipif(
    isinstance(targets.find_compiler(cpu()), Missing), reason="no C++ compiler"
)

CLASSES = (
    Class("float64", vector=2, bias=True, alpha=0.3, beta=-0.7, activation="relu"),
    Class("float64", a_k_fast=False, b_k_fast=True, vector=1, batched=True),
    Class("int8", vector=16, out="int32"),
    Class("int8", b_k_fast=True, vector=4, out="int32", out_row_major=False),
    Class("float8_e4m3fn", b_k_fast=True, vector=16, out="bfloat16", scales="lines", bias=True),
    Class("float8_e4m3fn", b_k_fast=True, vector=16, out="float32", scales="one", fast_sums=True),
    Class("float8_e4m3fnuz", vector=8, out="float16", scales="one", activation="silu"),
    Class("float8_e5m2", a_k_fast=False, b_k_fast=True, vector=1, out="float32"),
    Class("float8_e5m2fnuz", vector=16, out="bfloat16", out_row_major=False, scales="lines"),
    Class("float16", vector=8, bias=True, activation="relu", second=True),
    Class("float32", a_k_fast=False, b_k_fast=True, vector=2, out_row_major=False, second=True),
)


def offered(problem_class: Class, target: Target) -> Iterator[Binary]:
    problem = problem_class.problem()
    for sizes in SHAPES:
        for gemm in gemm_configs(problem, target, sizes, budget=2):
            yield Binary(problem_class, gemm.binary)
        for skinny in skinny_configs(problem, target, sizes, budget=2):
            yield Binary(problem_class, skinny.binary)


def sample(
    targets: Sequence[Target] = (
        cpu(),
        *map(amdgpu, ("gfx942", "gfx1100", "gfx1201")),
        *map(cuda, ("sm_90a", "sm_80")),
    ),
) -> list[Binary]:
    """Of each class a tile for each unit, and a skinny one of several waves."""
    chosen: dict[tuple[object, ...], Binary] = {}
    for problem_class in CLASSES:
        for target in targets:
            for binary in offered(problem_class, target):
                config = binary.config
                form = f"{type(config).__name__} {config.unit} {config.stages > 2}"
                if not isinstance(config, SkinnyConfig) or config.waves_k > 1:
                    chosen.setdefault((problem_class, form), binary)
    return list(chosen.values())


BINARIES = sample()
SPLIT = replace(
    template_lab.OPTIONS, defines=(*template_lab.OPTIONS.defines, ("RT_LARGEST_GRID", "5"))
)
"""So few blocks a launch that most drawn sizes take several."""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[Binary, Kernel]:
    built = build_all(BINARIES, tmp_path_factory.mktemp("cache"))
    return dict(zip(BINARIES, built, strict=True))


@needs_compiler
@pytest.mark.parametrize("binary", BINARIES, ids=lambda binary: binary.name)
def test_numbers(binary: Binary, kernels: dict[Binary, Kernel]) -> None:
    check(kernels[binary], binary)


def tiled(dtype: str) -> Binary:
    return next(b for b in BINARIES if b.name.startswith("gemm") and b.problem_class.dtype == dtype)


MISTAKES = [
    ("float64", "sizeof(Acc) * args.parts", "sizeof(float) * args.parts"),
    ("float64", "static_cast<Value>(sums[first + i])", "static_cast<float>(sums[first + i])"),
    ("float8_e4m3fn", "value *= rt::convert<Value>(scale_a_values[i]);", ""),
    ("float8_e5m2fnuz", "scale_b_values[i]", "scale_a_values[i]"),
    ("float16", "step < each ? step : step - each", "step"),
    ("float8_e4m3fn", "args.scale_a += first.rows", "args.scale_a += 0 * first.rows"),
    ("float32", "args.ldb = args.ldb2;", "args.ldb = args.lda2;"),
]


@needs_compiler
@pytest.mark.parametrize(("dtype", "right", "wrong"), MISTAKES)
def test_a_planted_mistake_is_found(dtype: str, right: str, wrong: str, tmp_path: Path) -> None:
    binary = tiled(dtype)
    rendered = binary.render()
    assert rendered.source.count(right) == 1
    source = rendered.source.replace(right, wrong)
    with pytest.raises(AssertionError):
        check(build(rendered, tmp_path, source, SPLIT), binary, False, examples=60)


RING_MISTAKES = [
    ("float64", "rt::copy_wait<AHEAD - 1>();", ""),
    ("float64", "first + lines % PERIOD", "first + lines % 8"),
    ("float64", "Unit::group(lane) * TERMS", "Unit::group(lane)"),
    ("float64", "stage = next_of(stage);\n  }\n  __syncthreads();", "stage = next_of(stage);\n  }"),
    ("int8", "k / WIDEST + k_half", "k / 8 + k_half"),
    ("int8", "% DEEP * EACH", "% DEEP * 16"),
]


@needs_compiler
@pytest.mark.parametrize(("dtype", "right", "wrong"), RING_MISTAKES)
def test_a_mistake_in_a_ring_is_found(dtype: str, right: str, wrong: str, tmp_path: Path) -> None:
    binary = next(
        b
        for b in BINARIES
        if b.name.startswith("gemm")
        and b.config.stages > 2
        and b.config.unit in ("mma", "mma_f64_wide")
        and b.problem_class.dtype == dtype
    )
    rendered = binary.render()
    assert rendered.source.count(right) == 1
    source = rendered.source.replace(right, wrong)
    with pytest.raises(AssertionError):
        check(build(rendered, tmp_path, source), binary, False, examples=60)


@needs_compiler
def test_a_second_product_in_more_than_one_launch(tmp_path: Path) -> None:
    binary = replace(tiled("float16"), problem_class=Class("float16", second=True))
    m, n, k = 150, 136, 70
    tensors, memories = {}, {}
    for name, sizes in (("X", (m, k)), ("W", (k, n)), ("C", (m, k)), ("D", (k, n)), ("Y", (m, n))):
        memories[name], tensors[name] = memory_for(torch.float16, sizes, (136, 1))
        tensors[name].copy_(torch.randn(sizes))
    numbers = {"M": m, "N": n, "K": k, "split_k": 1}
    numbers |= dict.fromkeys(("ld_a", "ld_b", "ld_c", "ld_d", "ld_out"), 136)
    run = Run(tensors, numbers, memories["Y"])
    rendered = binary.render()
    few = replace(SPLIT, defines=(*SPLIT.defines[:-1], ("RT_LARGEST_GRID", "2")))
    assert failure(build(rendered, tmp_path, options=few), run) is None
    for right in ("args.a2 += first.rows", "args.b2 += first.cols"):
        assert rendered.source.count(right) == 1
        wrong = rendered.source.replace(right, right.replace("+=", "+= 0 *"))
        assert failure(build(rendered, tmp_path, wrong, few), run) is not None


@needs_compiler
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2fnuz"])
def test_more_than_one_launch(dtype: str, tmp_path: Path) -> None:
    binary = tiled(dtype)
    # The smallest part of a result that is split, one tile, takes 8 blocks to add its sums.
    few = replace(SPLIT, defines=(*SPLIT.defines[:-1], ("RT_LARGEST_GRID", "8")))
    check(build(binary.render(), tmp_path, options=few), binary)


@needs_compiler
def test_sums_of_whole_numbers_are_exact_beyond_fp32(kernels: dict[Binary, Kernel]) -> None:
    binary = next(b for b in BINARIES if b.problem_class.dtype == "int8")
    m, n, k = 3, 16, 1301
    assert 127 * 127 * k > 2**24
    tensors, memories = {}, {}
    for name, dtype, sizes, ld in (
        ("X", torch.int8, (m, k), 1312),
        ("W", torch.int8, (k, n), 16),
        ("Y", torch.int32, (m, n), 16),
    ):
        memories[name], tensors[name] = memory_for(dtype, sizes, (ld, 1))
        tensors[name].fill_(127)
    numbers = {"M": m, "N": n, "K": k, "ld_a": 1312, "ld_b": 16, "ld_out": 16}
    for split in (1, 3):
        run = Run(tensors, numbers | {"split_k": split}, memories["Y"])
        assert failure(kernels[binary], run) is None
        assert int(tensors["Y"][2, 15]) == 127 * 127 * k


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
        Class("float64", scales="one"),
        Class("int8", out="int32", scales="lines"),
        Class("float16", second=True, batched=True),
    ],
    ids=str,
)
def test_what_has_no_kernel_is_refused(refused: Class) -> None:
    with pytest.raises(UnsupportedProblemError):
        refused.problem()


UNITS = {
    ("gfx942", "int8"): {"mfma16", "mfma32"},
    ("gfx942", "float8_e4m3fnuz"): {"mfma16", "mfma32"},
    ("gfx942", "float8_e4m3fn"): {"fma"},
    ("gfx950", "float8_e4m3fn"): {"mfma16", "mfma32"},
    ("gfx950", "float8_e5m2fnuz"): {"fma"},
    ("gfx90a", "int8"): {"fma"},
    ("gfx90a", "float64"): {"mfma_f64"},
    ("gfx942", "float64"): {"mfma_f64"},
    ("gfx950", "float64"): {"mfma_f64"},
    ("gfx1100", "float64"): {"fma"},
    ("sm_80", "float64"): {"mma_f64"},
    ("sm_86", "float64"): {"fma"},
    ("sm_90a", "float64"): {"mma_f64_wide"},
    ("gfx1100", "int8"): {"wmma_gfx11"},
    ("gfx1100", "float8_e4m3fn"): {"fma"},
    ("gfx1201", "int8"): {"wmma_gfx12"},
    ("gfx1201", "float8_e4m3fn"): {"wmma_gfx12"},
    ("gfx1201", "float8_e5m2"): {"wmma_gfx12"},
    ("gfx1201", "float8_e4m3fnuz"): {"fma"},
    ("sm_90", "int8"): {"mma"},
    ("sm_90", "float8_e4m3fn"): {"mma"},
    ("sm_90", "float8_e5m2"): {"mma"},
    ("sm_90", "float8_e5m2fnuz"): {"fma"},
    ("sm_90a", "float8_e4m3fn"): {"mma"},
}


@pytest.mark.parametrize(("arch", "dtype"), UNITS)
def test_units_by_type(arch: str, dtype: str) -> None:
    """A matrix unit where the device knows the type, else plain FMA; FNUZ is gfx942's alone."""
    target = cuda(arch) if arch.startswith("sm_") else amdgpu(arch)
    problem_class = next(c for c in CLASSES if c.dtype == dtype)
    configs = [b.config for b in offered(problem_class, target)]
    assert {c.unit for c in configs if isinstance(c, GemmConfig)} == UNITS[arch, dtype]


def test_a_warpgroup_multiplies_fp8_where_its_sums_are_good_enough() -> None:
    fast = next(c for c in CLASSES if c.fast_sums)
    units = {b.config.unit for b in offered(fast, cuda("sm_90a"))}
    assert "wgmma" in units


@pytest.mark.parametrize("target", GPUS, ids=str)
def test_every_type_compiles(target: Target, tmp_path: Path) -> None:
    if isinstance(found := targets.find_compiler(target), Missing):
        pytest.skip(found.reason)
    parts = []
    for problem_class in CLASSES:
        tiles = [b for b in offered(problem_class, target) if isinstance(b.config, GemmConfig)]
        smallest = min(tiles, key=lambda b: b.config.wave_m * b.config.wave_n)  # type: ignore[union-attr]
        source = smallest.render().source.replace("rt_kernel", f"entry{len(parts)}")
        parts.append(f"namespace of_entry{len(parts)} {{\n{source}\n}}\n")
    options = replace(template_lab.OPTIONS, level=1, defines=())
    code_cache.compile(
        "#include <rocm_tui/gpu.h>\n" + "".join(parts), target, options, cache_root=tmp_path
    )
