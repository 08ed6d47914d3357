"""Where the border between the table and the choices stands: pure functions of sizes."""

from __future__ import annotations

WIDE = 150
"""Columns from which the choices stand beside the table."""
_BESIDE = 72
"""Columns that the choices keep where there is room for that."""
_FEWEST = 36
_LOWEST = 5
"""Columns and lines that each of the two keeps, wherever a person puts the border."""


def columns_of_table(width: int, wanted: int) -> int:
    """What the table gets beside the choices: what its columns want, as far as the choices keep
    their room; the choices get the rest."""
    return max(_FEWEST, min(wanted, width - 1 - min(_BESIDE, width * 2 // 5)))


def moved(size: int, by: int, whole: int, *, beside: bool) -> int:
    """The table's size with the border moved, as far as both keep something."""
    least = _FEWEST if beside else _LOWEST
    return max(least, min(size + by, whole - least))


def size_of(share: float, whole: int, *, beside: bool) -> int:
    """The table's part of a whole that a person gave it, in cells."""
    return moved(round(share * whole), 0, whole, beside=beside)
