"""A real compile for gfx942 on a CPU: by a worker of `--compile-only`, and what a second one then
finds. Without an AMD GPU it is not seen here that its worker finds it too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from backend.inductor.benchmark import request
from backend.inductor.benchmark.errors import NotCompiled
from backend.inductor.hooks.backends import HIP_LANGUAGE, compilers_for
from backend.toolchain import targets
from backend.wire.jobs import CompileJob, CompileResult, Gpu, TuneJob
from rocm_tui.jobs.limits import Limits
from rocm_tui.jobs.warm import Workers
from tests.support.documents import document
from tests.support.triton_lab import triton_python

pytestmark = pytest.mark.torch

SHAPES = ((2, 48, 64), (2, 64, 32))
JOB = TuneJob("bmm", shapes=SHAPES, dtypes=("torch.float16",), device="cuda", templates=True)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCM_TUI_TEMPLATE_BUDGET", "2")
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)


def compiled(root: Path, gpu: Gpu, python: str) -> CompileResult:
    """By a worker of its own, as the fleet starts it."""
    workers = Workers(root, most=0)
    env = {**os.environ, "TRITON_CACHE_DIR": str(root / "triton" / "0")}
    limits = Limits.of_this_machine()
    return workers.run(CompileJob(JOB, gpu), print, python=python, env=env, limits=limits)


def test_what_was_compiled_ahead_another_worker_finds(tmp_path: Path) -> None:
    python = triton_python()
    words = ["tune", "bmm", "2x48x64", "2x64x32", "--dtype", "f16", "--templates", "--json"]
    words += ["--fleet", "local:cpu", "--compile-only", "gfx942", "--python", python]
    done = subprocess.run(
        [sys.executable, "-m", "rocm_tui", *words, "--cache-dir", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    told = document(done.stdout, "tune-compile")
    assert (told["compiled"], told["found"], told["not_compiled"]) == (2, 0, {})
    assert "not compiled: HIP: no compiler here for gfx942" in done.stderr
    assert len(list((tmp_path / "triton" / "0").glob("*/*.hsaco"))) >= 2
    again = compiled(tmp_path, Gpu("gfx942:sramecc+:xnack-", 304), python)
    assert (again.compiled, again.found, again.failed) == (0, 2, {})


def test_hip_is_compiled_by_the_very_compiler_of_the_gpus_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "_loads", False)  # a compiler without ROCm makes code objects
    there = compilers_for("gfx942")
    if HIP_LANGUAGE not in there:
        pytest.skip("no compiler for gfx942")
    first = compiled(
        tmp_path, Gpu("gfx942", 304, {HIP_LANGUAGE: there[HIP_LANGUAGE]}), sys.executable
    )
    choices = first.compiled + first.found  # two of them may have one source
    assert first.compiled >= 2 and not first.failed, first
    second = compiled(
        tmp_path, Gpu("gfx942", 304, {HIP_LANGUAGE: there[HIP_LANGUAGE]}), sys.executable
    )
    assert (second.compiled, second.found) == (0, choices)
    other = compiled(tmp_path, Gpu("gfx942", 304, {HIP_LANGUAGE: "another"}), sys.executable)
    assert not other.ok and "the GPU's host has another HIP compiler" in other.reason


def test_a_compilation_may_wait_but_not_compute_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "from backend.templates.triton import choice; choice.COMPILE_SECONDS = 1; "
        "choice.compile_choice = lambda *_: any(iter(int, 1)); sys.exit(choice.main())"
    )
    monkeypatch.setattr(request, "_COMPILE", code)
    with pytest.raises(NotCompiled, match="processor time"):
        request._compile_apart(None)  # type: ignore[arg-type]
