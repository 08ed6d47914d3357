"""Runs `autotuned_program` with stock Triton."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.triton_lab import ROOT, triton_python

PROGRAM = Path(__file__).with_name("autotuned_program.py")
TIMES = {32: 3.0, 64: 1.5, 128: 2.0}


def environment(cache: Path, times: Mapping[int, float] = TIMES, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        "TRITON_CACHE_DIR": str(cache),
        "TRITON_CACHE_AUTOTUNING": "1",
        "PYTHONPATH": str(ROOT),
        "TRITON_DEFAULT_FP_FUSION": "1",  # else 3.9 warns
        "AMDGCN_USE_BUFFER_OPS": "0",  # else each launch asks torch, which takes long to import
        "TIMES": json.dumps(times),
        **more,
    }


def argv(*sizes: int) -> list[str]:
    return [triton_python(), str(PROGRAM), *map(str, sizes)]


def run(cache: Path, *sizes: int, times: Mapping[int, float] = TIMES, **more: str) -> Any:
    """What the program printed."""
    ended = subprocess.run(
        argv(*sizes), env=environment(cache, times, **more), capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def files(cache: Path) -> list[Path]:
    return sorted(cache.glob("*/*.autotune.json"))
