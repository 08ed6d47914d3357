"""The report of one job, by the command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.torch_models import child_env


def compare(*words: str, cache: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rocm_tui", "compare", *words],
        env=child_env(cache),
        capture_output=True,
        text=True,
        timeout=120,
    )
