"""What holds for all tests."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import FrameType

import pytest

from tests.support.hasten import hasten
from tests.support.places import CORPUS

hasten()

# Each process would compile and load a library for each vector extension that the CPU has, only to
# see whether that works: two seconds.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

# Nobody's own settings decide what a test sees, nor does it leave anything in their memory.
os.environ.pop("ROCM_TUI_CONFIG", None)
os.environ["XDG_CONFIG_HOME"] = os.environ["XDG_STATE_HOME"] = "/dev/null"

# Nor do the kernels that Triton timed for them: no folder can be made there.
os.environ["TRITON_HOME"] = "/dev/null"
os.environ.pop("TRITON_CACHE_DIR", None)

# Nor do the GPUs of a machine stand on every screen.
os.environ["ROCM_TUI_DEVICES"] = "0"

LONGEST = """
torch/triton/test_compile torch/hip/test_compile unit/templates/test_numerics
torch/hip/test_failures torch/pins/test_pins unit/templates/triton/test_code_objects
torch/jobs/test_main torch/jobs/test_measure torch/hip/test_forced torch/cli/test_rocm
torch/hooks/test_failures unit/templates/test_targets torch/cli/test_measure
unit/compare/test_real torch/launch/test_elsewhere torch/inductor/test_lookup torch/jobs/test_tune
torch/cli/test_export torch/cli/test_dashboard torch/hooks/test_pins
""".split()
"""Files that take longest: begun first, so that no process is left alone with one in the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    paths = {Path(__file__).parent / f"{name}.py" for name in LONGEST}
    items.sort(key=lambda item: item.path not in paths)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A run without the corpus says so: what it skipped is no pass."""
    reasons = [report.longrepr for report in terminalreporter.stats.get("skipped", [])]
    count = sum("corpus" in str(reason) for reason in reasons)
    if count:
        terminalreporter.write_line(f"{count} tests of real logs did not run: {CORPUS} is not here")


def _outlive(number: int, frame: FrameType | None) -> None:
    """What `nohup pytest &` is started to do."""


# Children inherit what this process ignores, and no handler: with one they get the default.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _outlive)
