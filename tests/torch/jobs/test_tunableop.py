"""`tune --tunableop` whole, but for the GPU: the command, its workers and PyTorch's own
`tune_gemm_in_file` are real; what lies below it is tests/support/tunableop_worker.py."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.support.places import ROOT
from tests.support.torch_models import child_env

pytestmark = pytest.mark.torch

OLD = "GemmTunableOp_Half_NN,nn_11_8_32_ld_11_32_11"
CRASH, NEW, HANG = (OLD.replace("11", str(m)) for m in (13, 14, 99))


def test_a_crash_costs_its_product_and_ctrl_c_the_one_that_it_is_at(tmp_path: Path) -> None:
    python, untuned, table = (tmp_path / name for name in ("python", "u.csv", "r.csv"))
    worker = ROOT / "tests" / "support" / "tunableop_worker.py"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{worker}" "$@"\n')
    python.chmod(0o755)
    untuned.write_text("".join(f"{line}\n" for line in (OLD, CRASH, NEW, HANG)))
    there = f"Validator,PT_VERSION,{torch.__version__}\n{OLD},Default,7.0\n"
    table.write_text(there)
    cache, hangs = tmp_path / "cache", tmp_path / "hangs"
    words = ["tune", str(untuned), "--tunableop", "-o", str(table), "--python", str(python)]
    command = subprocess.Popen(
        [sys.executable, "-m", "rocm_tui", *words],
        env=child_env(cache, {"HANGS": str(hangs)}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    new = f"{there}{NEW},Gemm_Hipblaslt_1,0.5\n"
    end = time.monotonic() + 120
    while not hangs.exists() and command.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    command.send_signal(signal.SIGINT)
    out, err = command.communicate(timeout=60)
    assert command.returncode == 130, err
    assert table.read_text() == new
    assert out == f"{NEW}  Gemm_Hipblaslt_1  0.5 ms\n1 row put into {table}\n"
    first, second = err.splitlines()
    assert "the end of its log: " in first
    assert f"{CRASH} was not tuned: the worker ended (signal 11, SIGSEGV)" in first
    assert f"1 product had a row in {table} already" in second
    assert not list((cache / "rocm_tui" / "tunableop").iterdir())
