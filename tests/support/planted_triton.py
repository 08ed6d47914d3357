# ruff: noqa: ANN001, ANN202
"""Products by a Triton kernel that adds up its blocks of terms as it should, in another order, not
all of them, or in whatever order its programs come to it. Imports Triton; needs a GPU."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64
SPLIT = 8
"""Programs that share an element, where they race."""


@triton.jit
def _product(
    a, b, out, m, n, k, first, last,
    a_batch, a_m, a_k, b_batch, b_k, b_n, out_batch,
    SPLIT: tl.constexpr, HALVES: tl.constexpr, PRECISION: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    batch, part = tl.program_id(2) // SPLIT, tl.program_id(2) % SPLIT
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    terms = tl.arange(0, BLOCK)
    a += batch * a_batch + (rows % m)[:, None] * a_m
    b += batch * b_batch + (columns % n)[None, :] * b_n
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for half in range(HALVES):
        partly = tl.zeros((BLOCK, BLOCK), tl.float32)
        length = (last - first) // (HALVES * SPLIT)
        start = first + (half * SPLIT + part) * length
        for block in range(start, start + length):
            here = block * BLOCK + terms
            x = tl.load(a + here[None, :] * a_k)
            y = tl.load(b + here[:, None] * b_k)
            partly += tl.dot(x, y, input_precision=PRECISION)
        total += partly
    places = out + batch * out_batch + rows[:, None] * n + columns[None, :]
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    if SPLIT == 1:
        tl.store(places, total.to(out.dtype.element_ty), mask=inside)
    else:
        tl.atomic_add(places, total, mask=inside)


def product(a: Tensor, b: Tensor, kernel: str, dtype: torch.dtype, dropped: int = 1) -> Tensor:
    """Of (batch, m, k) and (batch, k, n), by one of `planted_sums.KERNELS`; `dropped` of its blocks
    of 64 terms are left out where some are. k is a multiple of 1,024."""
    (batches, m, k), n = a.shape, b.shape[-1]
    split = SPLIT if kernel == "races" else 1
    kind = torch.float32 if split > 1 else dtype
    out = torch.zeros(batches, m, n, dtype=kind, device=a.device)
    last = k // BLOCK - (dropped if kernel == "dropped" else 0)
    grid: Any = (triton.cdiv(m, BLOCK), triton.cdiv(n, BLOCK), batches * split)
    _product[grid](
        a, b, out, m, n, k, 0, last,
        *a.stride(), *b.stride(), out.stride(0),
        SPLIT=split, HALVES=4 if kernel == "reordered" else 1, PRECISION="ieee", BLOCK=BLOCK,
    )  # fmt: skip
    return out.to(dtype)
