"""What `run` tells its child about graphs, in its environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

NAMES = ("ROCM_TUI_SHARES", "ROCM_TUI_CAPTURE", "TORCHINDUCTOR_AUTOGRAD_CACHE")
SHELL = "; ".join(f'echo "${{{name}-unset}}"' for name in NAMES)


def run(cache: Path, *flags: str, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in NAMES}
    return subprocess.run(
        [sys.executable, "-m", "rocm_tui", "run", *flags, "--", "sh", "-c", SHELL],
        env={**kept, "TORCHINDUCTOR_CACHE_DIR": str(cache), **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ((), ["unset", "unset", "unset"]),
        (("--no-shares",), ["0", "unset", "unset"]),
        (("--capture",), ["1", "1", "0"]),
    ],
)
def test_flags_become_variables(flags: tuple[str, ...], told: list[str], tmp_path: Path) -> None:
    assert run(tmp_path, *flags).stdout.split() == told


def test_what_was_set_before_stays(tmp_path: Path) -> None:
    assert run(tmp_path, ROCM_TUI_SHARES="0").stdout.split() == ["0", "unset", "unset"]


def test_capture_needs_graphs(tmp_path: Path) -> None:
    done = run(tmp_path, "--capture", "--no-shares")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--no-shares" in done.stderr
