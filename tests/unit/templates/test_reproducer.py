"""The folder one sends to a kernel engineer: it builds here with g++, runs and checks itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from backend.templates.config import GemmConfig, SkinnyConfig
from backend.templates.heuristics import gemm_configs, skinny_configs
from backend.templates.operand import DType, Operand
from backend.templates.problem import Activation, GemmProblem
from backend.templates.rendering import Rendered, render_gemm, render_skinny
from backend.templates.reproducer import ReproducerError, write
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
        return render_skinny(problem, config, "rocm_skinny")
    config = gemm_configs(problem, CPU, problem.sizes())[0]
    if split_k > 1:
        from dataclasses import replace

        config = replace(config, split_k=split_k)
    return render_gemm(problem, config, "rocm_gemm")


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
    ],
    ids=["fp32-split", "fp16-gelu", "bf16-silu", "skinny-relu"],
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
    write(tmp_path / "kernel", render_gemm(problem, config, "rocm_gemm"), target)
    done = make(tmp_path / "kernel", "cuda")
    assert done.returncode == 0, done.stdout + done.stderr


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
