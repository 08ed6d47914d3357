"""What a person may ask of a job, checked: for how long, on which device, what is tried."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from backend.model.choice import Choice
from backend.model.origin import is_own
from backend.model.tuning import Tuning
from rocm_tui.actions.measure import WITHIN, worth_measuring
from rocm_tui.actions.tune import TuneOptions
from rocm_tui.actions.tune import backends as backend_names
from rocm_tui.errors import UsageError
from rocm_tui.session.model import Row

CPU = "cpu"
_VARIABLES = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
_MOST = 1e9


def check_seconds(value: float | str, name: str) -> float:
    """A time that a job may take. Raises UsageError, which calls it by `name`."""
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < _MOST:
        raise UsageError(f"{name} is a number of seconds above 0")
    return seconds


def check_percent(value: float, name: str) -> float:
    """A percentage as a share. Raises UsageError, which calls it by `name`."""
    if not 0 <= value < _MOST:
        raise UsageError(f"{name} is a percentage, 0 or more")
    return value / 100


def choices_to_measure(
    row: Row, wanted: Sequence[Choice] = (), within: float = WITHIN
) -> Sequence[Choice]:
    """The choices that a person named or marked, else those worth it, the pinned one too."""
    pinned = row.pin.pin.hash if row.pin else None
    return wanted or worth_measuring(row.tuning, pinned, within)


def tune_options(
    *,
    backends: str | None,
    search_space: str | None,
    templates: bool,
    budget: float | str | None,
    device: str | None,
    budget_name: str = "the budget",
) -> TuneOptions:
    """What Inductor shall try, from what a person typed. Raises UsageError, for a device too."""
    seconds = None if budget is None else check_seconds(budget, budget_name)
    device_env(os.environ, device)
    return TuneOptions(
        backends=backend_names(backends),
        search_space=search_space,
        templates=templates,
        budget=seconds,
    )


def offers_ours(tuning: Tuning) -> bool:
    """Whether kernels of ours were among the choices, so that tuning again shall offer them."""
    return any(choice.hash and is_own(choice.hash) for choice in tuning.choices)


def device_env(env: Mapping[str, str], device: str | None) -> dict[str, str]:
    """`env` for a worker that shall see only the GPU `device`, an index among those that `env`
    shows; None or `cpu` is as it is.

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
    return {**env, **dict.fromkeys(_VARIABLES, chosen)}


def visible_devices(env: Mapping[str, str]) -> list[str] | None:
    """The GPUs that `env` shows, as it names them; None where it shows all."""
    for name in _VARIABLES:
        if name in env:
            return [part.strip() for part in env[name].split(",") if part.strip()]
    return None


def lane(device: str | None, of: str | None) -> str:
    """What a job takes for itself: the GPU asked for; else that of its tensors, `cpu` or `cuda`."""
    if device is not None:
        return device
    return CPU if of == CPU else "0"
