"""What torch is this, and what does it see?"""

from __future__ import annotations

from typing import Any

import torch

from backend.inductor import torch_api
from backend.worker.protocol import Arguments, Progress


def run(arguments: Arguments, progress: Progress) -> dict[str, Any]:
    """No arguments. The result: versions of torch, HIP, CUDA and Triton; the device's facts."""
    device = torch_api.device_facts()
    return {
        "torch": str(torch.__version__),
        "hip": torch.version.hip,
        "cuda": torch.version.cuda,
        "triton": _triton(),
        "gpu": bool(torch.cuda.is_available()),
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
