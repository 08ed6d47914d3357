"""The Python whose torch is the user's, the GPUs that it shall see, and how it finds our hooks: one
folder on its `PYTHONPATH`.

The folder is part of this package: nothing is made at run time, so any number of runs share it
and none has anything to clean up. It holds entry points and a loader, and no package that a
program could meet by accident. Nothing is imported to find out whether a Python has torch.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import takewhile
from pathlib import Path

import backend
from backend import VISIBLE
from rocm_tui.errors import RocmTuiError, UsageError

HOOKS = Path(__file__).parent / "hook_path"
BACKEND = Path(str(backend.__file__)).parent
COMMAND = (sys.executable, str(BACKEND.with_name("rocm_tui_entry.py")))
"""The command of `rocm-tui` as a process of ours."""
RUN = "ROCM_TUI_RUN"
_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"


def hooked(env: Mapping[str, str], run_id: str) -> dict[str, str]:
    """Return `env` for a program whose tunings are recorded as part of the run `run_id`."""
    path = [str(HOOKS), *filter(None, [env.get("PYTHONPATH")])]
    info = json.dumps({"run": run_id, "backend": str(BACKEND), "pid": str(os.getpid())})
    return {**env, "PYTHONPATH": os.pathsep.join(path), RUN: info}


def unhooked(env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` without what `hooked` added: the environment of stock PyTorch."""
    kept = {name: value for name, value in env.items() if name != RUN}
    path = [p for p in env.get("PYTHONPATH", "").split(os.pathsep) if p and p != str(HOOKS)]
    kept.pop("PYTHONPATH", None)
    return {**kept, "PYTHONPATH": os.pathsep.join(path)} if path else kept


def hooks_forbidden(env: Mapping[str, str]) -> str | None:
    """Return why torch will not load the hooks in `env`, or None."""
    if env.get(_AUTOLOAD, "1") != "1":
        return f"{_AUTOLOAD}={env[_AUTOLOAD]} keeps torch from loading the hooks; unset it"
    return None


_HAS_TORCH = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
_PATIENCE = 30.0
"""Seconds that a Python has to say whether it has torch; a cold disk is slow."""


class NoTorchPython(RocmTuiError):
    """No Python with torch was found, or one did not say in time whether it has torch."""


def find_python(given: str | None = None, env: Mapping[str, str] = os.environ) -> str:
    """Return the path of the interpreter for workers and the demo.

    `given` (from `--python`), else the one that runs us if it has torch, else that of
    `$VIRTUAL_ENV`, else `python3` on PATH. Raises NoTorchPython if that one has no torch, or if one
    does not answer: the next one may have another torch.
    """
    if given is not None:
        return _checked(given, env)
    if importlib.util.find_spec("torch") is not None:
        return sys.executable
    tried = []
    for candidate in _candidates(env):
        if _has_torch(candidate, env):
            return candidate
        tried.append(candidate)
    looked = ", ".join((sys.executable, *tried))
    raise NoTorchPython(f"no Python with torch (looked at {looked}); name one with --python")


def _candidates(env: Mapping[str, str]) -> Iterator[str]:
    active = env.get("VIRTUAL_ENV")
    if active:
        yield str(Path(active, "bin", "python"))
    program = _which("python3", env)
    if program:
        yield program


def _which(name: str, env: Mapping[str, str]) -> str | None:
    import shutil  # with its compressors, which `rocm-tui run` does not need

    return shutil.which(name, path=env.get("PATH"))


def _checked(given: str, env: Mapping[str, str]) -> str:
    program = _which(given, env)
    if program is None:
        raise NoTorchPython(f"{given} is no program that can be run; --python takes an interpreter")
    if not _has_torch(program, env):
        raise NoTorchPython(f"{program} has no torch; install it there, or name another --python")
    return program


def _has_torch(python: str, env: Mapping[str, str]) -> bool:
    """Raises NoTorchPython if it does not answer."""
    try:
        done = subprocess.run(
            [python, "-c", _HAS_TORCH],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NoTorchPython(
            f"{python} did not say within {_PATIENCE:.0f} s whether it has torch; try again, or "
            "name another with --python"
        ) from error
    except OSError:
        return False
    return done.returncode == 0


CPU = "cpu"


def device_env(env: Mapping[str, str], device: str | None) -> dict[str, str]:
    """Return `env` for a worker that may see only the GPU `device`, an index among the GPUs that
    `env` shows; it is unchanged for None and `cpu`.

    GPUs stay visible to a job on the CPU: their name is part of the name of PyTorch's cache file,
    also for what is tuned on the CPU. Raises UsageError.
    """
    if device is None or device == CPU:
        return dict(env)
    if not (device.isascii() and device.isdecimal()):
        raise UsageError(f"{device} is no device; give a GPU's index, or cpu")
    shown = visible_devices(env)
    if shown is not None and int(device) >= len(shown):
        raise UsageError(f"there is no GPU {device} among those visible: {','.join(shown)}")
    chosen = device if shown is None else shown[int(device)]
    return {**env, **dict.fromkeys(VISIBLE, chosen)}


def device_to_measure(given: str | None, tuned_on: int | None) -> str | None:
    """Return the GPU on which a tuning is measured: the `given` one, else the one that it was
    `tuned_on`; None is the first."""
    return given if given is not None or not tuned_on else str(tuned_on)


def without_gpus(env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` for a worker that uses no GPU."""
    return {**env, **dict.fromkeys(VISIBLE, "-1")}


def visible_devices(env: Mapping[str, str]) -> list[str] | None:
    """Return the GPUs that `env` shows, by its names; None if it shows all."""
    for name in VISIBLE:
        if name in env:
            parts = filter(None, map(str.strip, env[name].split(",")))
            return list(takewhile(lambda part: part != "-1", parts))  # it hides the rest
    return None


def lane(device: str | None, of: str | None) -> str:
    """Return the device that a job occupies: the given GPU, else the one of its tensors."""
    if device is not None:
        return device
    return CPU if of == CPU else "0"
