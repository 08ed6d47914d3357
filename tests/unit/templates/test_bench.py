"""The benchmark of the templates runs, and says in one line what this machine cannot do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from backend.toolchain.target import Compiler, Target
from backend.toolchain.targets import find_compiler
from tests.support.places import ROOT

SCRIPT = ROOT / "benchmarks" / "bench_templates.py"


@pytest.mark.skipif(not isinstance(find_compiler(Target("cpu")), Compiler), reason="needs g++")
def test_costs_here_and_no_gpu(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--choices", "1", "--targets", "cpu", "amdgpu:gfx908"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    choices = result["compile"]["cpu"]["choices"]
    assert {choice["template"] for choice in choices} == {"gemm", "skinny"}
    assert all(choice["compile_s"] > 0 and choice["render_ms"] > 0 for choice in choices)
    assert "off" in result["compile"]["amdgpu:gfx908"]
    if not torch.cuda.is_available():
        assert result["gpu"] is None
        *_, last = done.stderr.splitlines()
        assert last == "GPU part skipped: torch finds no GPU"
        assert len(done.stderr.splitlines()) == 3  # one a target


@pytest.mark.skipif(not isinstance(find_compiler(Target("cpu")), Compiler), reason="needs g++")
def test_measures_and_writes_a_table(tmp_path: Path) -> None:
    """The part for a GPU, on the CPU target with two small products and a convolution."""
    out = tmp_path / "speed.md"
    words = ["--gpu-only", "--only", "smoke", "--choices", "1", "--dtype", "float32"]
    command = [sys.executable, str(SCRIPT), *words, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["gpu"]["shapes"]
    assert [row["activation"] for row in rows] == ["none", "relu", "none"]
    assert [row["template"] for row in rows][2:] == ["conv"]
    for row in rows:
        assert not any("error" in choice for choice in row["choices"]), row
        assert len(row["ours_cold_us"]) == len(row["torch_hot_us"]) == 3
    assert [line.split(" | ")[1] for line in out.read_text().splitlines()[4:]] == [
        row["shape"] for row in rows
    ]
