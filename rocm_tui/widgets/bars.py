"""A thin bar, drawn with half cells."""

from __future__ import annotations


def bar(share: float, width: int) -> str:
    """`share` (0 to 1) of `width` cells, filled up with blanks; never quite empty above zero."""
    share = max(0.0, min(1.0, share))
    halves = round(share * width * 2)
    if share > 0:
        halves = max(1, halves)
    full, rest = divmod(halves, 2)
    return ("━" * full + ("╸" if rest else "")).ljust(width)
