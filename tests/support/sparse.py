"""Tensors whose elements are far apart: memory that is not touched costs nothing."""

from __future__ import annotations

import mmap

import pytest
import torch

_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Linux's number; Python 3.13 names it


def sparse(elements: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    """So many zeros. Skips the test where there are not so many addresses."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
    try:
        memory = mmap.mmap(-1, elements * dtype.itemsize, flags=flags)
    except OSError as error:
        pytest.skip(f"{elements} elements are more than can be mapped: {error}")
    return torch.frombuffer(memory, dtype=dtype)
