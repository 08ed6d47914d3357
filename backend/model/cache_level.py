"""A cache of a device: how much fits in it, how fast it gives it back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CacheLevel:
    """`gbs` is 10^9 bytes a second at best, None where that is neither published nor measured."""

    name: str
    bytes: int
    gbs: float | None = None
