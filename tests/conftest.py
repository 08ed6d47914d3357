"""What holds for all tests."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import HealthCheck, settings

from tests.support.hasten import hasten

pytest_plugins = ["tests.skips"]

hasten()

# Each process would compile and load a library for each vector extension that the CPU has, only to
# see whether that works: two seconds.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

# Nor goes it through all of PyTorch's objects after its first compile: a third of a second.
os.environ.setdefault("TORCH_DYNAMO_RUN_GC_AFTER_COMPILE", "0")

# Nobody's own settings decide what a test sees, nor does it leave anything in their memory.
os.environ.pop("ROCM_TUI_CONFIG", None)
os.environ["XDG_CONFIG_HOME"] = os.environ["XDG_STATE_HOME"] = "/dev/null"

# Nor do the kernels that Triton timed for them: no folder can be made there.
os.environ["TRITON_HOME"] = "/dev/null"
os.environ.pop("TRITON_CACHE_DIR", None)

# Nor does the terminal of who runs the tests decide how many colours a screen has.
os.environ["TERM"], os.environ["COLORTERM"] = "xterm-256color", "truecolor"

# Nor do the GPUs of a machine stand on every screen.
os.environ["ROCM_TUI_DEVICES"] = "0"

# Nor does a busy machine ask before a test measures.
os.environ["ROCM_TUI_BUSY_LOAD"] = "inf"

# How long an example takes depends on the load of the machine and is no reason to fail. The parent
# is named because Hypothesis makes its `ci` profile, which draws the same examples in every run,
# the default where CI is set.
settings.register_profile(
    "rocm-tui",
    settings.get_profile("default"),
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("rocm-tui")

LONGEST = """
torch/triton/test_compile torch/hip/test_compile unit/templates/test_numerics
torch/hip/test_failures torch/pins/test_pins unit/templates/triton/test_code_objects
torch/jobs/test_main torch/jobs/test_measure torch/hip/test_forced torch/cli/test_rocm
torch/hooks/test_failures unit/templates/test_targets torch/cli/test_measure
unit/compare/test_real torch/launch/test_elsewhere torch/hooks/test_lookup torch/jobs/test_tune
torch/cli/test_export torch/cli/test_dashboard torch/hooks/test_pins torch/jobs/test_ops
torch/jobs/test_weights torch/jobs/test_flex torch/triton/test_inductor_kernels
torch/triton/test_conv_backward torch/pins/test_best_configs torch/worker/test_flex_numbers
""".split()
"""Files that take longest: begun first, so that no process is left alone with one in the end."""


WAITING = tuple(Path(__file__).parent / name for name in ("terminal", "unit/tui", "unit/fleet"))
"""Where tests mostly wait: spread among those that compute, so that no core waits with them."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Draw the seed of Hypothesis, unless `--hypothesis-seed` gives one.

    Hypothesis reads the option in its own `pytest_configure`, after this one. The workers of xdist
    get a copy of the options, so all processes of a run draw from the same seed.
    """
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(1 << 32))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Print the seed. A pytest header would not be shown, since we run with `-q`."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:  # a worker of xdist has none
        seed = session.config.option.hypothesis_seed
        reporter.write_line(f"hypothesis seed: {seed} (repeat with --hypothesis-seed={seed})")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = _places(list(dict.fromkeys(item.path for item in items)))
    items.sort(key=lambda item: places[item.path])


def _places(files: list[Path]) -> dict[Path, float]:
    """Where in the run each file stands, from 0 to 1; the longest before."""
    longest = {Path(__file__).parent / f"{name}.py" for name in LONGEST}
    rest = [path for path in files if path not in longest]
    waiting = [path for path in rest if not {*WAITING}.isdisjoint(path.parents)]
    busy = [path for path in rest if path not in waiting]
    spread = {path: at / len(group) for group in (waiting, busy) for at, path in enumerate(group)}
    return dict.fromkeys(longest, -1.0) | spread


def _outlive(number: int, frame: FrameType | None) -> None:
    """What `nohup pytest &` is started to do."""


# Children inherit what this process ignores, and no handler: with one they get the default.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _outlive)
