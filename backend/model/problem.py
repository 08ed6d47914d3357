"""What is tuned: an op on inputs of given sizes, in a precision; and Inductor's keys for it."""

from __future__ import annotations

from dataclasses import dataclass

Shape = tuple[int, ...]
"""Sizes or strides of one operand; `()` is a 0-dim tensor."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input of an inputs key. `strides` has the length of `sizes`; all in elements."""

    device: str
    dtype: str
    sizes: Shape
    strides: Shape
    offset: int


@dataclass(frozen=True, slots=True)
class TuningKey:
    """The three keys of Inductor's persistent autotune cache, as text, suffixes included."""

    op: str
    inputs: str
    precision: str
