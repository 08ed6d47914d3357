"""Real processes that tune and measure one small mm under `rocm-tui run`, for `compare`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from backend.disk.layout import Layout
from rocm_tui.actions.sources import load_model
from rocm_tui.session.stats import winner
from tests.support.hooked import LAUNCHER
from tests.support.torch_models import child_env

PROGRAM = Path(__file__).parent / "compare_program.py"
PLANTED = "-planted"
"""A folder whose name ends so is one in which ATen's mm really works a fifth longer."""
ATTEMPTS = 8


class Sessions:
    """Each name is a cache dir below `root`, and what is done there a process of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._process = subprocess.Popen(
            [*LAUNCHER, "--quiet", "--", sys.executable, "-W", "ignore", str(PROGRAM)],
            env=child_env(root / "none"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tune(self, name: str) -> None:
        """A session in which ATen wins; beside a busy neighbour one number may say otherwise."""
        for _ in range(ATTEMPTS):
            self._tell("tune", name)
            (row,) = load_model(Layout(self.root / name), []).rows()
            best = winner(row.tuning)
            if best is not None and best.name == "mm":
                return
            shutil.rmtree(self.root / name)
        raise RuntimeError(f"ATen never won in {ATTEMPTS} tunings")

    def measure(self, name: str) -> None:
        """As `rocm-tui measure` has its worker do."""
        self._tell("measure", name)

    def close(self) -> None:
        _, _ = self._process.communicate(timeout=60)
        if self._process.returncode:
            raise RuntimeError("something failed: stderr says what")

    def _tell(self, command: str, name: str) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(command, self.root / name, file=self._process.stdin, flush=True)
        if self._process.stdout.readline() != "done\n":
            raise RuntimeError(f"{command} {name} failed: stderr says what")
