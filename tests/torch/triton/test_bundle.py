"""Triton's cache in a bundle: its kernels are found in another folder, which a copy's are not."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from backend.disk.layout import Layout
from tests.support.bundle_lab import packed, taken
from tests.support.places import ROOT
from tests.support.triton_lab import triton_python

PROGRAM = ROOT / "tests" / "support" / "triton_plain.py"


def compiled(root: Path) -> int:
    """How often a program had to compile its one kernel on this cache dir."""
    env = {**os.environ, "TRITON_CACHE_DIR": str(root / "triton" / "0")}
    done = subprocess.run(
        [triton_python(), str(PROGRAM)], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout)


def test_kernels_of_triton_are_found_elsewhere(tmp_path: Path) -> None:
    there, here, copy = (Layout(tmp_path / name) for name in ("there", "here", "copy"))
    assert compiled(there.root) == 1
    packed(there, tmp_path / "warm.tar.gz")
    shutil.move(there.root, copy.root)
    taken(tmp_path / "warm.tar.gz", here)
    assert compiled(here.root) == 0
    assert compiled(copy.root) == 1  # its lists of files lead to the folder that is gone
