"""What every test of this folder needs."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.fixture(scope="session", autouse=True)
def _gpu() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys, torch; sys.exit(not torch.cuda.is_available())"],
        capture_output=True,
    )
    if done.returncode:
        pytest.skip("torch sees no GPU here")
