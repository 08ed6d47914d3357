"""Text of a file made harmless, once, where it enters."""

from __future__ import annotations

from rocm_tui.harmless import clean as clean


def clean_bytes(data: bytes) -> str:
    """Bytes of a file as clean text; what is no UTF-8 becomes U+FFFD."""
    return clean(data.decode("utf-8", "replace"))
