"""Which GPU a job runs on: an index among those that our own environment shows."""

from __future__ import annotations

from collections.abc import Mapping

from rocm_tui.errors import UsageError

CPU = "cpu"
_VARIABLES = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def device_env(env: Mapping[str, str], device: str | None) -> dict[str, str]:
    """`env` for a worker that shall see only the GPU `device`, an index; None or `cpu` is as it is.

    GPUs stay visible to a job on the CPU: their name is part of the name of PyTorch's cache file,
    also for what is tuned on the CPU. Raises UsageError.
    """
    if device is None or device == CPU:
        return dict(env)
    if not (device.isascii() and device.isdecimal()):
        raise UsageError(f"{device} is no device; give a GPU's index, or cpu")
    shown = visible(env)
    if shown is not None and int(device) >= len(shown):
        raise UsageError(f"there is no GPU {device} among those visible: {','.join(shown)}")
    chosen = device if shown is None else shown[int(device)]
    return {**env, **dict.fromkeys(_VARIABLES, chosen)}


def visible(env: Mapping[str, str]) -> list[str] | None:
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
