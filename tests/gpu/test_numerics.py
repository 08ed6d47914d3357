"""Every template's numbers on a GPU, for a minute. Skipped where torch sees none."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.places import ROOT

pytestmark = pytest.mark.torch


def test_every_template_is_right() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.gpu.numerics", "--seconds", "60"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    for kind in (
        "gemm",
        "skinny",
        "large",
        "dtypes",
        "prologue",
        "epilogue",
        "conv",
        "direct",
        "grouped",
    ):
        assert f"{kind} " in done.stdout.splitlines()[-2]
