"""What plugs into PyTorch's Inductor. Importing it costs nothing and imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backend.inductor.activation import activate

__all__ = ["activate"]


def __getattr__(name: str) -> Any:
    if name == "activate":
        from backend.inductor.activation import activate

        return activate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
