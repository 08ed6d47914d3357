"""The benchmark of the templates runs, and says in one line what this machine cannot do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from backend.toolchain.target import Compiler, Target
from backend.toolchain.targets import find
from tests.support.places import ROOT

SCRIPT = ROOT / "benchmarks" / "bench_templates.py"


@pytest.mark.skipif(not isinstance(find(Target("cpu")), Compiler), reason="needs g++")
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
