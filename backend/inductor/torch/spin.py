"""Keeping a GPU busy. Loads nothing of Inductor.

Read in torch 2.8 to 2.15 (`torch/cuda/__init__.py`, `torch/csrc/cuda/Module.cpp`).
"""

from __future__ import annotations

import torch


def gpu_spin(cycles: int) -> None:
    """Keep the GPU busy with nothing, so that the host can queue work behind it."""
    torch.cuda._sleep(cycles)
