"""The folder one sends to a kernel engineer: it builds here with g++, runs and checks itself."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from backend.errors import ConfigError
from backend.model.origin import choice_hash, kernel_hash
from backend.model.problem import InputsKey, TensorSpec, format_inputs_key
from backend.templates.config import GemmConfig, SkinnyConfig
from backend.templates.heuristics import gemm_configs, skinny_configs
from backend.templates.operand import DType, Operand
from backend.templates.problem import Activation, GemmProblem
from backend.templates.rendering import Rendered, render
from backend.templates.reproducer import ReproducerError, rebuild, write
from backend.toolchain.target import Target
from tests.support.tools import needs_tool

needs_compiler = needs_tool("g++", "make")
CPU = Target("cpu")


def rendered(
    dtype: DType = "float32",
    shape: tuple[int, int, int, int] = (3, 37, 50, 70),
    activation: Activation = "none",
    split_k: int = 1,
) -> Rendered:
    """A batched product with a bias that is broadcast over rows, and a transposed left factor."""
    batch, m, n, k = shape
    problem = GemmProblem(
        Operand("X", dtype, (batch, m, k), (m * k, 1, m), base_bytes=4),
        Operand("W", dtype, (batch, k, n), (k * n, n, 1), offset=3, base_bytes=4),
        Operand("Y", dtype, (batch, m, n), (m * n, n, 1), base_bytes=4),
        Operand("Bias", dtype, (n,), (1,), base_bytes=4),
        activation=activation,
        alpha=0.5,
        beta=2.0,
    )
    config: GemmConfig | SkinnyConfig
    if m <= 16:
        config = skinny_configs(problem, CPU, problem.sizes())[0]
        return render(problem, config, "rocm_skinny")
    config = gemm_configs(problem, CPU, problem.sizes())[0]
    if split_k > 1:
        config = replace(config, split_k=split_k)
    return render(problem, config, "rocm_gemm")


def of(problem: GemmProblem) -> Rendered:
    return render(problem, gemm_configs(problem, CPU, problem.sizes())[0], "rocm_gemm")


def matrix(name: str, dtype: DType, rows: int, columns: int, transposed: bool = False) -> Operand:
    strides = (1, rows) if transposed else (columns, 1)
    item = Operand(name, dtype, (rows, columns), strides).item_bytes
    return Operand(name, dtype, (rows, columns), strides, base_bytes=item)


def scaled(dtype: DType) -> Rendered:
    """A product of fp8 with a scale for each row, one number for the right factor, and a bias."""
    return of(
        GemmProblem(
            matrix("a", dtype, 37, 70),
            matrix("b", dtype, 70, 50, transposed=True),
            matrix("out", "bfloat16", 37, 50),
            Operand("bias", "bfloat16", (50,), (1,)),
            scales=(matrix("scale_a", "float32", 37, 1), Operand("scale_b", "float32", (), ())),
        )
    )


def whole() -> Rendered:
    return of(
        GemmProblem(
            matrix("a", "int8", 37, 70),
            matrix("b", "int8", 70, 50),
            matrix("out", "int32", 37, 50),
        )
    )


def two_products() -> Rendered:
    a, b, c, d = (
        matrix(name, "float64", *((37, 70) if name in "ac" else (70, 50))) for name in "abcd"
    )
    return of(GemmProblem(a, b, matrix("out", "float64", 37, 50), second=(c, d)))


def make(folder: Path, target: str = "run") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "-s", "-C", str(folder), target], capture_output=True, text=True, timeout=300
    )


@needs_compiler
@pytest.mark.parametrize(
    "kernel",
    [
        rendered(split_k=3),
        rendered("float16", activation="gelu"),
        rendered("bfloat16", (1, 40, 33, 65), "silu"),
        rendered("float16", (2, 5, 64, 300), "relu"),
        scaled("float8_e4m3fnuz"),
        scaled("float8_e5m2"),
        whole(),
        two_products(),
    ],
    ids=["fp32-split", "fp16-gelu", "bf16-silu", "skinny-relu", "e4m3", "e5m2", "int8", "fp64-two"],
)
def test_builds_runs_and_is_right(kernel: Rendered, tmp_path: Path) -> None:
    write(tmp_path / "kernel", kernel, CPU)
    done = make(tmp_path / "kernel")
    assert done.returncode == 0, done.stdout + done.stderr
    assert ": 0 wrong" in done.stdout
    assert "TFLOP/s" in done.stdout
    batch, m, n, _ = (kernel.problem.batch, kernel.problem.m, kernel.problem.n, kernel.problem.k)
    if batch * m * n <= 4096:
        assert f"checked {batch * m * n} elements" in done.stdout
    workspace = kernel.workspace_bytes(kernel.problem.sizes())
    assert f"{workspace} bytes of workspace" in done.stdout


@needs_compiler
def test_tells_a_wrong_kernel(tmp_path: Path) -> None:
    folder = tmp_path / "kernel"
    write(folder, rendered(), CPU)
    kernel = folder / "kernel.hip"
    text = kernel.read_text()
    wrong = text.replace("args.k = static_cast<int>(K);", "args.k = static_cast<int>(K - 1);")
    assert wrong != text
    kernel.write_text(wrong)
    done = make(folder)
    assert done.returncode != 0
    assert "wrong at [" in done.stdout
    assert ": 0 wrong" not in done.stdout


@pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc")
def test_builds_with_nvcc(tmp_path: Path) -> None:
    """A kernel for a GPU without our matrix instructions; running it needs the GPU."""
    target = Target("cuda", "sm_90")
    problem = rendered("float16").problem
    config = gemm_configs(problem, target, problem.sizes())[0]
    write(tmp_path / "kernel", render(problem, config, "rocm_gemm"), target)
    done = make(tmp_path / "kernel", "cuda")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_config_that_fits_another_type_of_the_result_is_no_obstacle() -> None:
    """No key has the result's type, nor whether fast sums of fp8 were wanted: some choices fit only
    these."""
    target, (m, n, k) = Target("cuda", "sm_90a"), (256, 512, 1024)
    problem = GemmProblem(
        Operand("a", "float8_e4m3fn", (m, k), (k, 1)),
        Operand("b", "float8_e4m3fn", (k, n), (1, k)),
        Operand("out", "float32", (m, n), (n, 1)),
        scales=tuple(Operand(name, "float32", (), ()) for name in ("scale_a", "scale_b")),
        fast_sums=True,
    )
    config = next(c for c in gemm_configs(problem, target, problem.sizes()) if c.unit == "wgmma")
    with pytest.raises(ConfigError):
        render(replace(problem, fast_sums=False), config, "rocm_gemm")
    source = render(problem, config, "rocm_gemm").source
    hash = choice_hash("gemm", kernel_hash(source, "rocm_gemm", str(target)), config.description)
    one = TensorSpec("cuda", "torch.float32", (), (), 0)
    specs = (
        TensorSpec("cuda", "torch.float8_e4m3fn", (m, k), (k, 1), 0),
        TensorSpec("cuda", "torch.float8_e4m3fn", (k, n), (1, k), 0),
        *(one, one),
    )
    inputs = format_inputs_key(InputsKey(specs))
    again = rebuild("scaled_mm", inputs, config.description, hash, target)
    assert again.source == source
    with pytest.raises(ReproducerError, match="factors that its inputs do not show"):
        rebuild("scaled_mm", inputs, config.description, f"{hash[:-1]}x", target)
    wide = InputsKey(tuple(replace(spec, dtype="torch.float64") for spec in specs[:2]))
    with pytest.raises(ReproducerError, match="the config does not fit its inputs"):
        rebuild("mm", format_inputs_key(wide), config.description, hash, target)


def test_refuses_a_folder_with_something_in_it(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep me")
    with pytest.raises(ReproducerError, match="not empty"):
        write(tmp_path, rendered(), CPU)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_names_its_builds(tmp_path: Path) -> None:
    write(tmp_path / "kernel", rendered(), Target("amdgpu", "gfx1100"))
    makefile = (tmp_path / "kernel" / "Makefile").read_text()
    assert "run: hip\n" in makefile
    assert "HIP_ARCH ?= gfx1100" in makefile
    assert "-DRT_WAVE=32 -DRT_MATRIX=RT_MMA" in makefile
    assert all(compiler in makefile for compiler in ("hipcc", "nvcc", "g++"))
