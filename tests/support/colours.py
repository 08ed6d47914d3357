"""How far a colour differs from what is behind it."""

from __future__ import annotations


def luminance(red: int, green: int, blue: int) -> float:
    """WCAG 2.1, relative luminance of an sRGB colour."""
    parts = [one / 255 for one in (red, green, blue)]
    low = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * low[0] + 0.7152 * low[1] + 0.0722 * low[2]


def contrast(front: str, back: str) -> float:
    """WCAG 2.1, contrast ratio of two colours as `#rrggbb`."""
    shown = [luminance(*bytes.fromhex(one.removeprefix("#"))) for one in (front, back)]
    return (max(shown) + 0.05) / (min(shown) + 0.05)
