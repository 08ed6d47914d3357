"""What holds for all tests."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType

import pytest

# Tests run side by side: kernels whose threads wait for each other's core take a thousand times
# as long. Children inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Each process would compile and load a library for each vector extension that the CPU has, only to
# see whether that works: two seconds.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

# Inductor compiles the same kernels for each fresh cache dir: they are compiled once.
os.environ["PATH"] = f"{Path(__file__).parent / 'compilers'}{os.pathsep}{os.environ['PATH']}"
os.environ["TEST_PYTHON"] = sys.executable

LONGEST = """
rocm_triton rocm_compile templates_numerics rocm_failures store_pins_torch triton_code_objects
main_job measure_job rocm_forced rocm_cli hook_failures templates_targets measure_command
compare_real run_elsewhere lookup_torch tune_job export dashboard hook_pins
""".split()
"""Files that take longest: begun first, so that no process is left alone with one in the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    names = {f"test_{name}.py" for name in LONGEST}
    items.sort(key=lambda item: item.path.name not in names)


def _outlive(number: int, frame: FrameType | None) -> None:
    """What `nohup pytest &` is started to do."""


# Children inherit what this process ignores, and no handler: with one they get the default.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _outlive)
