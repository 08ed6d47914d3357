"""What every test of this folder needs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.fixture(scope="session", autouse=True)
def _gpu(tmp_path_factory: pytest.TempPathFactory) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys, torch; sys.exit(not torch.cuda.is_available())"],
        capture_output=True,
    )
    if done.returncode:
        pytest.skip("torch sees no GPU here")
    # Here Triton has a driver to compile, before Inductor says where.
    os.environ["TRITON_HOME"] = str(tmp_path_factory.mktemp("triton"))
