"""How a Python that has none of our packages finds the hooks: one folder on its `PYTHONPATH`.

The folder is part of this package: nothing is made at run time, so any number of runs share it
and none has anything to clean up. It holds entry points and a loader, and no package that a
program could meet by accident.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import backend

FOLDER = Path(__file__).parent / "hook_path"
BACKEND = Path(str(backend.__file__)).parent
RUN = "ROCM_TUI_RUN"
_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"


def hooked(env: Mapping[str, str], run_id: str) -> dict[str, str]:
    """`env` for a program whose tunings shall be recorded as part of the run `run_id`."""
    path = [str(FOLDER), *filter(None, [env.get("PYTHONPATH")])]
    info = json.dumps({"run": run_id, "backend": str(BACKEND)})
    return {**env, "PYTHONPATH": os.pathsep.join(path), RUN: info}


def unhooked(env: Mapping[str, str]) -> dict[str, str]:
    """`env` without what `hooked` added: the environment of stock PyTorch."""
    kept = {name: value for name, value in env.items() if name != RUN}
    path = [p for p in env.get("PYTHONPATH", "").split(os.pathsep) if p and p != str(FOLDER)]
    kept.pop("PYTHONPATH", None)
    return {**kept, "PYTHONPATH": os.pathsep.join(path)} if path else kept


def hooks_forbidden(env: Mapping[str, str]) -> str | None:
    """Why torch will not load the hooks in `env`, if it will not."""
    if env.get(_AUTOLOAD, "1") != "1":
        return f"{_AUTOLOAD}={env[_AUTOLOAD]} keeps torch from loading the hooks; unset it"
    return None
