"""An environment in which what tests start is done sooner, and does the same."""

from __future__ import annotations

import os
import sys

from tests.support.places import ROOT
from tests.support.quick import avx2_cpu

SUPPORT = ROOT / "tests" / "support"


def hasten() -> None:
    """Of this process, for all that it starts."""
    avx2_cpu.emulate()
    # Tests run side by side: kernels whose threads wait for each other's core take a thousand
    # times as long.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Inductor compiles the same kernels for each fresh cache dir: they are compiled once.
    _put_first("PATH", str(SUPPORT / "compilers"))
    os.environ["TEST_PYTHON"] = sys.executable
    # Without it a process that imports PyTorch takes a third longer.
    _put_first("PYTHONPATH", str(SUPPORT / "quick"))


def _put_first(name: str, folder: str) -> None:
    os.environ[name] = os.pathsep.join(filter(None, [folder, os.environ.get(name)]))
