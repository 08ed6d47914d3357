"""What a process holds of a GPU between two jobs.

Read in torch 2.8 to 2.15 (`torch/_dynamo/__init__.py`, `torch/csrc/cuda/Module.cpp`). What stays is
the context (some hundred MB) and the code of the kernels that were loaded.
"""

from __future__ import annotations

import gc
from typing import Any

import torch
import torch._dynamo


def device_works() -> bool:
    """False after an error that a process cannot get over, such as an illegal memory access."""
    try:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def release() -> None:
    """Forget compiled programs; give back the memory that nobody uses. Raises RuntimeError where
    the device is lost."""
    torch._dynamo.reset()
    gc.collect()
    if torch.cuda.is_initialized():
        clear: Any = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
        if clear is not None:
            clear()
        torch.cuda.empty_cache()
