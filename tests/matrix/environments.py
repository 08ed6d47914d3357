"""Where the interpreter of each torch is; one that is missing is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version as installed
from pathlib import Path

from tests.matrix.lab import ROOT

VERSIONS = ("2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
"""The last of each minor version that the hooks know; see `backend/inductor/torch/versions.py`."""

OURS = ROOT / ".venv-torches"
"""A folder for each version that is installed here."""

_READY = ".installed"


class NotInstalled(Exception):
    """There is no such torch here; one line says why."""


class TooSlow(NotInstalled):
    """The installation works, and takes longer than it may."""


@dataclass(frozen=True, slots=True)
class Places:
    """`given` is a folder of environments that exist: `FOLDER/2.8.0/bin/python`. They are used as
    they are. `within` is how many seconds an installation may take."""

    given: Path | None = None
    within: float = 3600.0

    def python(self, version: str) -> str:
        """An interpreter that has this torch. Raises NotInstalled."""
        if installed("torch").partition("+")[0] == version:
            return sys.executable
        for folder in [self.given / version] if self.given else []:
            if (folder / "bin" / "python").exists():
                return str(folder / "bin" / "python")
        folder = OURS / version
        if not (folder / _READY).exists():
            self._install(version, folder)
        return str(folder / "bin" / "python")

    def newest(self) -> str:
        """The newest version that pip may install here: a machine's constraints can exclude the
        newest one that is known. Raises NotInstalled."""
        wanted = f"torch<={VERSIONS[-1]}"
        pip = [sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--ignore-installed"]
        end = time.monotonic() + self.within
        report = json.loads(_done([*pip, "--no-deps", "--report", "-", wanted], end))
        return str(report["install"][0]["metadata"]["version"]).partition("+")[0]

    def _install(self, version: str, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        end = time.monotonic() + self.within
        pip = [str(folder / "bin" / "python"), "-m", "pip", "--no-cache-dir", "install", "-q"]
        try:
            _done([sys.executable, "-m", "venv", str(folder)], end)
            _done([*pip, f"torch=={version}", "numpy"], end)
        except NotInstalled:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        (folder / _READY).touch()


def _done(command: list[str], end: float) -> str:
    """Its stdout. Raises NotInstalled where it fails, TooSlow where it is not done in time."""
    env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=end - time.monotonic(), env=env
        )
    except subprocess.TimeoutExpired:
        raise TooSlow("its installation takes longer than it may") from None
    if ended.returncode:
        lines = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
        raise NotInstalled(f"it cannot be installed: {lines[-1][:200]}")
    return ended.stdout
