"""The main job on real PyTorch: see a tuning, pin another choice, the next compile calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.torch_models import Run, child_env, compiled

pytestmark = pytest.mark.torch

CALLS = {
    "bmm": {"bmm": "extern_kernels.bmm(", "CppMicroGemm": "kernel_micro_gemm"},
    "linear": {"_mkl_linear": "mkl._mkl_linear", "CppMicroGemm": "kernel_micro_gemm"},
}
"""What the generated code says where it calls a choice, by the beginning of its hash."""

OPS = {"bmm": "bmm", "linear": "packed_linear"}
MODELS = list(OPS)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache dir in which both models were tuned."""
    folder = tmp_path_factory.mktemp("cache")
    compiled(MODELS, folder)
    return folder


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


def calls(run: Run) -> dict[str, str]:
    """Which choice the generated code of each model calls."""
    return {model: called(model, run.code[model]) for model in MODELS}


def test_pin_verify_unpin(cache: Path) -> None:
    by_op = {row["op"]: row for row in tunings(cache)}
    rows = {model: by_op.pop(op) for model, op in OPS.items()}
    assert not by_op
    first, second = ({m: row["choices"][i]["hash"] for m, row in rows.items()} for i in range(2))
    for row in rows.values():
        assert row["pinned"] is None and row["choices"][0]["ms"] < row["choices"][1]["ms"]
    before = cache_bytes(cache)
    assert calls(compiled(MODELS, cache)) == begins(first)

    for row in rows.values():
        rocm_tui(cache, "pin", row["id"], "#2", "--note", "a test")
    pinned = {row["op"]: row for row in tunings(cache)}
    for model, row in rows.items():
        now = pinned[row["op"]]
        assert now["pinned"] == second[model] and now["pin_state"] == "active"
        assert now["choices"] == row["choices"]  # the measured times, never Infinity
    for new in (True, False):
        assert calls(compiled(MODELS, cache, new=new)) == begins(second)
    rocm_tui(cache, "pins")
    assert rocm_tui(cache, "verify").count("the generated code calls") == 2

    for row in rows.values():
        assert cache_bytes(cache) != before
        rocm_tui(cache, "unpin", row["id"])
    assert cache_bytes(cache) == before
    assert calls(compiled(MODELS, cache)) == begins(first)
    assert cache_bytes(cache) == before
    rocm_tui(cache, "verify", code=1)
    rocm_tui(cache, "unpin", rows["bmm"]["id"], code=1)


def begins(hashes: dict[str, str]) -> dict[str, str]:
    """What `called` says of each model's choice."""
    return {m: next(b for b in CALLS[m] if hash.startswith(b)) for m, hash in hashes.items()}


def test_refusals_say_why_in_one_line(cache: Path) -> None:
    id_ = tunings(cache)[0]["id"]
    for words in (["pin", "0000000", "#1"], ["pin", id_, "#3"], ["show", "zz"]):
        done = subprocess.run(
            [sys.executable, "-m", "rocm_tui", *words],
            env=child_env(cache),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1
        assert done.stderr.startswith("rocm-tui: ") and done.stderr.count("\n") == 1
