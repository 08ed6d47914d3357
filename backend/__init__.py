"""What plugs into PyTorch's Inductor. Importing it costs nothing and imports no torch."""

from __future__ import annotations

__all__ = ["activate"]


def activate(templates: bool = False) -> bool:
    """Record this process's tunings and honour its pins: see `activation` in inductor/hooks."""
    from backend.inductor.hooks import activation  # heavy for those who want another part of us

    return activation.activate(templates)
