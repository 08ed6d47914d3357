"""What torch is this, and what does it see?"""

from __future__ import annotations

from typing import Any

import torch

from backend.inductor.torch import tuning as torch_api
from backend.inductor.triton import target as rocm_triton_target
from backend.worker import fit
from backend.worker.protocol import Arguments, Progress


def run(arguments: Arguments, progress: Progress) -> dict[str, Any]:
    """The result: versions of torch, HIP, CUDA and Triton; the device's facts. With the argument
    `fit`, which costs seconds, `hooks_off` and `templates_off` say why those do not work; else
    nothing.

    `triton_target` is what our Triton template is made for there; else null, and `triton_off` says
    why, in a line.
    """
    fitting = fit.examine() if arguments.get("fit") else fit.Fit()
    device = torch_api.device_facts()
    gpu = bool(torch.cuda.is_available())
    place = torch.device("cuda", torch.cuda.current_device()) if gpu else torch.device("cpu")
    triton = rocm_triton_target.examine(place)
    off = triton.reason if isinstance(triton, rocm_triton_target.Off) else ""
    return {
        "torch": str(torch.__version__),
        "hip": torch.version.hip,
        "cuda": torch.version.cuda,
        "triton": _triton(),
        "triton_target": None if off else str(triton),
        "triton_off": off,
        "hooks_off": fitting.hooks,
        "templates_off": fitting.templates,
        "gpu": gpu,
        "device": device.name,
        "arch": device.arch,
        "compute_units": device.compute_units,
        "system_hash": torch_api.system_hash(),
    }


def _triton() -> str | None:
    """The version of Triton, if this Python has it."""
    try:
        import triton
    except ImportError:
        return None
    return str(triton.__version__)
