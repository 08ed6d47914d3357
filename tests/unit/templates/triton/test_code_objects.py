"""AMD code objects of the Triton product, with no GPU: instructions, knobs, resources."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sympy

from backend.templates.operand import Operand
from backend.templates.problem import GemmProblem
from backend.templates.triton.choice import CodeObject, TritonGemmConfig, write_module
from backend.templates.triton.gemm import TritonGemm, from_gemm, generate
from backend.templates.triton.heuristics import ARCHES, configs, lds_bytes
from backend.toolchain.resources import Resources, from_file
from tests.support.chains import access, epilogue
from tests.support.prologue_cases import GROUPS, HALVES, NIBBLES, Case, Computed
from tests.support.triton_lab import TritonChild, triton_child


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonChild]:
    with triton_child(tmp_path_factory.mktemp("triton"), interpret=False) as process:
        yield process


def gemm(m: int, n: int, k: int, dtype: str = "float16") -> TritonGemm:
    out = Operand("c", dtype, (m, n), (n, 1))  # type: ignore[arg-type]
    bias = access(Operand("bias", dtype, (n,), (1,)))  # type: ignore[arg-type]
    return TritonGemm(
        Operand("a", dtype, (m, k), (k, 1)),  # type: ignore[arg-type]
        Operand("b", dtype, (k, n), (n, 1)),  # type: ignore[arg-type]
        out,
        epilogue(lambda x, bias: (x + bias).apply("gelu"), (access(out),), (bias,)),
    )


CONFIG = TritonGemmConfig(128, 128, 64, num_warps=4, kpack=1)


def instructions(made: CodeObject, start: str) -> set[str]:
    words = (line.split() for line in made.amdgcn.splitlines() if line.strip())
    return {word[0] for word in words if word[0].startswith(start)}


def count(made: CodeObject, start: str) -> int:
    return len(re.findall(rf"^\s+{start}", made.amdgcn, re.MULTILINE))


def resources_of(made: CodeObject, folder: Path) -> Resources:
    file = folder / "kernel.hsaco"
    file.write_bytes(made.hsaco)
    found = from_file(file)
    assert isinstance(found, tuple), found
    return found[0]


@pytest.mark.parametrize(
    ("arch", "dtype", "mfma"),
    [
        ("gfx90a", "float16", "v_mfma_f32_16x16x16f16"),
        ("gfx942", "float16", "v_mfma_f32_16x16x16_f16"),
        ("gfx942", "bfloat16", "v_mfma_f32_16x16x16_bf16"),
        ("gfx942", "float32", "v_mfma_f32_16x16x4_f32"),
        ("gfx950", "float16", "v_mfma_f32_16x16x32_f16"),
        ("gfx950", "bfloat16", "v_mfma_f32_16x16x32_bf16"),
    ],
)
def test_matrix_cores(child: TritonChild, arch: str, dtype: str, mfma: str) -> None:
    """Each dtype uses its own instruction, on even and ragged sizes; even loads are wide."""
    config = replace(CONFIG, block_k=32) if dtype == "float32" else CONFIG
    [even] = child.compile(generate(gemm(1024, 1024, 1024, dtype), config, arch))
    assert instructions(even, "v_mfma") == {mfma}
    assert even.hsaco[:4] == b"\x7fELF"
    assert even.threads == 256
    assert "buffer_load_dwordx4" in instructions(even, "buffer_load")
    [ragged] = child.compile(generate(gemm(100, 70, 333, dtype), config, arch))
    assert instructions(ragged, "v_mfma") == {mfma}


def test_knobs_reach_the_code(child: TritonChild) -> None:
    problem = gemm(1024, 1024, 1024)

    def build(**change: int) -> CodeObject:
        [made] = child.compile(generate(problem, replace(CONFIG, **change), "gfx942"))
        return made

    plain = build()
    wide = build(matrix_instr_nonkdim=32)
    assert instructions(wide, "v_mfma") == {"v_mfma_f32_32x32x8_f16"}
    packed = build(kpack=2)
    assert count(packed, "ds_read_b128") > count(plain, "ds_read_b128")
    crowded = build(waves_per_eu=4)
    assert crowded.options["waves_per_eu"] == 4
    assert waves(crowded) >= 4 > waves(plain)
    for made, kpack, side in ((plain, 1, 16), (packed, 2, 16), (wide, 1, 32)):
        assert (made.options["kpack"], made.options["matrix_instr_nonkdim"]) == (kpack, side)


def waves(made: CodeObject) -> int:
    """How many waves a SIMD holds, as the compiler's remark says."""
    said = re.search(r"; Occupancy: (\d+)", made.amdgcn)
    assert said is not None
    return int(said[1])


@pytest.mark.parametrize("arch", ARCHES)
def test_offered_configs_compile_and_fit(child: TritonChild, arch: str, tmp_path: Path) -> None:
    """Nothing spills to memory, and LDS holds no more than was reckoned with."""
    square = gemm(4096, 4096, 4096)
    plain = replace(square, epilogue=None)
    ragged = gemm(1000, 1003, 999)
    for problem in (square, plain, ragged, gemm(5, 1000, 4100, "float32")):
        offered = configs(problem, arch, budget=4)
        assert offered
        for config in offered:
            choice = generate(problem, config, arch)
            made = child.compile(choice)
            found = resources_of(made[0], tmp_path)
            what = f"{arch} {config}"
            assert (found.vgpr_spills, found.scratch) == (0, 0), what
            # Masks of ragged rows can outgrow the scalar registers; they go to lanes of a vector
            # register then, not to memory.
            assert found.sgpr_spills == 0 or problem is ragged, what
            assert found.vgprs is not None
            assert found.vgprs <= 512 // max(1, config.num_warps // 4), what
            item = 2 if problem.a.dtype == "float16" else 4
            # The epilogue may pass its block through LDS, after the loop is done with it.
            assert made[0].lds <= max(
                lds_bytes(config, item, ARCHES[arch]), 4 * config.block_m * config.block_n
            )
            assert made[0].lds <= ARCHES[arch].gpu.unit.lds
            assert len(made) == (2 if config.split_k > 1 else 1)


def test_sizes_at_run_time_compile(child: TritonChild) -> None:
    m = sympy.Symbol("s0")
    a = Operand("a", "float16", (m, 512), (512, 1))
    problem = replace(gemm(64, 256, 512), a=a, out=Operand("c", "float16", (m, 256), (256, 1)))
    for index, width in (("int32", "i32"), ("int64", "i64")):
        choice = generate(problem, CONFIG, "gfx942", index=index)  # type: ignore[arg-type]
        assert choice.kernels[0].arguments[-1].triton_type == width
        [made] = child.compile(choice)
        assert instructions(made, "v_mfma")


def test_a_refusal_names_choice_and_cause(child: TritonChild) -> None:
    choice = generate(gemm(64, 64, 64), CONFIG, "gfx942")
    broken = replace(choice, source=choice.source.replace("tl.dot(", "tl.dotted("))
    with pytest.raises(AssertionError) as told:
        child.compile(broken)
    said = str(told.value)
    assert "TritonCompileError: rocm_triton_mm (ACC_TYPE=" in said
    assert "triton_gemm for gfx942" in said and "dotted" in said


def test_a_module_is_written_once(tmp_path: Path) -> None:
    choice = generate(gemm(64, 64, 64), CONFIG, "gfx942")
    path = write_module(choice, tmp_path)
    before = path.stat()
    assert write_module(choice, tmp_path) == path
    assert path.stat().st_ino == before.st_ino
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compile(path.read_text(), str(path), "exec")


@pytest.mark.parametrize("computed", [NIBBLES, HALVES, GROUPS], ids=lambda c: c.name)
@pytest.mark.parametrize("split", [1, 2])
def test_computed_factors_reach_the_matrix_cores(
    child: TritonChild, computed: Computed, split: int
) -> None:
    problem = from_gemm(Case("bfloat16", b=computed, vector=16).problem())
    config = replace(CONFIG, block_m=32, split_k=split)
    made = generate(problem, config, "gfx942")
    assert made.inputs == ("X",) and made.extras == tuple(s.name for s in computed.sources)
    product, *_ = child.compile(made)
    assert instructions(product, "v_mfma") == {"v_mfma_f32_16x16x16_bf16"}


@pytest.mark.parametrize("split", [1, 4])
def test_scales_and_a_second_product(child: TritonChild, split: int) -> None:
    """One loop a product, both on the matrix cores; scales are read where the result is stored."""
    config = replace(CONFIG, split_k=split)
    out = Operand("out", "bfloat16", (512, 256), (256, 1))
    eight = [
        Operand("a", "float8_e4m3fnuz", (512, 1024), (1024, 1)),
        Operand("b", "float8_e4m3fnuz", (1024, 256), (1, 1024)),
    ]
    scales = (
        Operand("scale_a", "float32", (512, 1), (1, 1)),
        Operand("scale_b", "float32", (), ()),
    )
    scaled = generate(from_gemm(GemmProblem(*eight, out, scales=scales)), config, "gfx942")
    assert (scaled.inputs, scaled.extras) == (("a", "b"), ("scale_a", "scale_b"))
    assert instructions(child.compile(scaled)[0], "v_mfma") == {"v_mfma_f32_16x16x32_fp8_fp8"}
    a, b, c, d = (
        Operand(name, "bfloat16", sizes, (sizes[1], 1))
        for name, sizes in zip("abcd", ((512, 1024), (1024, 256)) * 2, strict=True)
    )
    plus = generate(from_gemm(GemmProblem(a, b, out, second=(c, d))), config, "gfx942")
    alone = generate(from_gemm(GemmProblem(a, b, out)), config, "gfx942")
    assert plus.inputs == ("a", "b", "c", "d")
    made, once = child.compile(plus)[0], child.compile(alone)[0]
    assert count(made, "v_mfma") == 2 * count(once, "v_mfma")
