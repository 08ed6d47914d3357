"""The main job on real PyTorch: see a tuning, pin another choice, the next compile calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.torch_models import child_env, compiled

pytestmark = pytest.mark.torch

CALLS = {
    "bmm": {"bmm": "extern_kernels.bmm(", "CppMicroGemm": "kernel_micro_gemm"},
    "linear": {"_mkl_linear": "mkl._mkl_linear", "CppMicroGemm": "kernel_micro_gemm"},
}
"""What the generated code says where it calls a choice, by the beginning of its hash."""


def rocm_tui(cache: Path, *words: str, code: int = 0) -> str:
    """Run a command on `cache` and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "rocm_tui", *words],
        env=child_env(cache),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done.stdout


def tunings(cache: Path) -> list[dict[str, Any]]:
    found: dict[str, Any] = json.loads(rocm_tui(cache, "ls", "--json"))
    assert found["problems"] == []
    rows: list[dict[str, Any]] = found["tunings"]
    return rows


def cache_bytes(cache: Path) -> bytes:
    (path,) = (cache / "cache").iterdir()
    return path.read_bytes()


def called(model: str, code: str) -> str:
    """Which choice the generated code calls, by the beginning of its hash."""
    (found,) = [begin for begin, call in CALLS[model].items() if call in code]
    return found


@pytest.mark.parametrize("model", ["bmm", "linear"])
def test_pin_verify_unpin(tmp_path: Path, model: str) -> None:
    compiled([model], tmp_path)
    (row,) = tunings(tmp_path)
    first, second = (choice["hash"] for choice in row["choices"])
    assert row["pinned"] is None and row["choices"][0]["ms"] < row["choices"][1]["ms"]
    before = cache_bytes(tmp_path)
    assert first.startswith(called(model, compiled([model], tmp_path).code[model]))

    rocm_tui(tmp_path, "pin", row["id"], "#2", "--note", "a test")
    (pinned,) = tunings(tmp_path)
    assert pinned["pinned"] == second and pinned["pin_state"] == "active"
    assert pinned["choices"] == row["choices"]  # the measured times, never Infinity
    for _ in range(2):
        assert second.startswith(called(model, compiled([model], tmp_path).code[model]))
    rocm_tui(tmp_path, "pins")
    assert "calls" in rocm_tui(tmp_path, "verify")

    rocm_tui(tmp_path, "unpin", row["id"])
    assert cache_bytes(tmp_path) == before
    assert first.startswith(called(model, compiled([model], tmp_path).code[model]))
    assert cache_bytes(tmp_path) == before
    rocm_tui(tmp_path, "verify", code=1)
    rocm_tui(tmp_path, "unpin", row["id"], code=1)


def test_refusals_say_why_in_one_line(tmp_path: Path) -> None:
    compiled(["bmm"], tmp_path)
    (row,) = tunings(tmp_path)
    for words in (["pin", "0000000", "#1"], ["pin", row["id"], "#3"], ["show", "zz"]):
        done = subprocess.run(
            [sys.executable, "-m", "rocm_tui", *words],
            env=child_env(tmp_path),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1
        assert done.stderr.startswith("rocm-tui: ") and done.stderr.count("\n") == 1
