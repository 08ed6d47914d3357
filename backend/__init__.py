"""The part that plugs into PyTorch's Inductor. Importing it is cheap and does not import torch."""

from __future__ import annotations

__all__ = ["activate"]

VISIBLE = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""The environment variables by which a process sees only some GPUs."""


def activate(templates: bool = False, version: str | None = None) -> bool:
    """Record this process's tunings and honour its pins: see `activation` in inductor/hooks."""
    from backend.inductor.hooks import activation  # heavy, and other parts do not need it

    return activation.activate(templates, version)
