"""Where what a choice reads and writes lies, how much of it there is, and the reference kernel."""

from __future__ import annotations

import random
from math import log2
from pathlib import Path

import torch
from torch import Tensor

from backend.inductor.sampling.timer import Run

MOST_COPIED = 1 << 30
"""Bytes of all copies of the operands together."""
FREE_SHARE = 4
"""They take no more than this part of the memory that is free."""

_PAGE, _LINE = 4096, 64
"""Bytes: a tensor begins at any cache line of a page, as torch aligns them on a CPU."""
_GPU_SPREAD, _GPU_ALIGN = 1 << 16, 512
"""Bytes: torch aligns tensors on a GPU to 512."""

_dice = random.Random()


def somewhere(size: int, device: torch.device) -> Tensor:
    """That many bytes, at a place that differs from call to call."""
    cpu = device.type == "cpu"
    spread, align = (_PAGE, _LINE) if cpu else (_GPU_SPREAD, _GPU_ALIGN)
    skipped = align * _dice.randrange(spread // align)
    return torch.empty(size + skipped, dtype=torch.uint8, device=device)[skipped:]


def free_bytes(device: torch.device) -> int:
    """Of memory that we could have; 0 where nobody tells."""
    if device.type == "cpu":
        try:
            lines = Path("/proc/meminfo").read_text().splitlines()
            return next(int(line.split()[1]) << 10 for line in lines if "MemAvailable" in line)
        except (OSError, ValueError, StopIteration):
            return 0
    ours = int(torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    return int(torch.cuda.mem_get_info(device)[0]) + ours


def copies_that_fit(wanted: int, size: int, device: torch.device) -> int:
    """So many copies of `size` bytes as are wanted, as far as there is memory for them; 1 at
    least."""
    room = min(MOST_COPIED, free_bytes(device) // FREE_SHARE)
    return max(1, min(wanted, room // max(1, size)))


def product(operations: float, device: torch.device) -> Run:
    """The reference kernel: a square product of about so many multiplications."""
    size = 1 << min(12, max(4, round(log2(max(operations, 1.0)) / 3)))
    dtype = torch.float32 if device.type == "cpu" else torch.float16
    left = torch.ones(size, size, dtype=dtype, device=device)
    out = torch.empty_like(left)
    return lambda: torch.mm(left, left, out=out)
