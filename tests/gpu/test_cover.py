"""TunableOp on a GPU: what a program asked for and missed, listed by `cover`, tuned by PyTorch, and
covered then.

Skipped where torch sees no GPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocm_tui.cli.entry import main

pytestmark = pytest.mark.torch

PROGRAM = """
import torch
a = torch.randn(64, 512, device="cuda", dtype=torch.half)
b = torch.randn(512, 256, device="cuda", dtype=torch.half)
for _ in range(3):
    a @ b
torch.cuda.synchronize()
"""
TUNE = """
import sys
import torch.cuda.tunable as tunable
tunable.enable()
tunable.tuning_enable()
tunable.tune_gemm_in_file(sys.argv[1])
"""


def python(code: str, *words: str, cwd: Path, **env: str) -> str:
    told = {**os.environ, "PYTORCH_TUNABLEOP_ENABLED": "1", **env}
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env=told, cwd=cwd, text=True, timeout=300, check=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.stdout


def test_what_a_program_missed_is_tuned_from_the_list_and_covered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = python(
        PROGRAM,
        cwd=tmp_path,
        PYTORCH_TUNABLEOP_TUNING="0",
        PYTORCH_TUNABLEOP_RECORD_UNTUNED="1",
        PYTORCH_TUNABLEOP_VERBOSE="3",
    )
    Path("a.log").write_text(said)
    assert main(["cover", "a.log", "--write", "todo.csv"]) == 1
    recorded = next(tmp_path.glob("tunableop_untuned*.csv")).read_text().splitlines()
    written = Path("todo.csv").read_text().splitlines()
    assert {line.split(",BLAS")[0] for line in recorded} == set(written)
    python(TUNE, "todo.csv", cwd=tmp_path)
    results = str(next(tmp_path.glob("tunableop_results*.csv")))
    assert main(["cover", "a.log", results]) == 0
