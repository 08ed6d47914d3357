"""The matrix instructions that `matrix.hip` has an entry for."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from backend.toolchain import code_cache
from tests.support.toolchain_kernels import library


@dataclass(frozen=True)
class Instruction:
    """An entry of `matrix.hip` and its shape; `only` are the GPUs of the family that have it, all
    if empty."""

    name: str
    dtype: torch.dtype
    m: int
    n: int
    k: int
    wave: int = 32
    only: tuple[str, ...] = ()

    @property
    def sums(self) -> torch.dtype:
        return {torch.int8: torch.int32, torch.float64: torch.float64}.get(
            self.dtype, torch.float32
        )

    @property
    def library(self) -> code_cache.Library:
        return library("matrix", RT_WAVE=self.wave)


CDNA = (
    Instruction("mfma_half16", torch.float16, 16, 16, 16, 64),
    Instruction("mfma_half32", torch.float16, 32, 32, 8, 64),
    Instruction("mfma_bf16_16", torch.bfloat16, 16, 16, 16, 64),
    Instruction("mfma_bf16_32", torch.bfloat16, 32, 32, 8, 64),
    Instruction("mfma_float16", torch.float32, 16, 16, 4, 64),
    Instruction("mfma_float32", torch.float32, 32, 32, 2, 64),
)
OTHERS = (
    Instruction("mfma_wide_half16", torch.float16, 16, 16, 32, 64, ("gfx950",)),
    Instruction("mfma_wide_half32", torch.float16, 32, 32, 16, 64, ("gfx950",)),
    Instruction("mfma_wide_bf16_16", torch.bfloat16, 16, 16, 32, 64, ("gfx950",)),
    Instruction("mfma_wide_bf16_32", torch.bfloat16, 32, 32, 16, 64, ("gfx950",)),
    Instruction("wmma_gfx11_half", torch.float16, 16, 16, 16),
    Instruction("wmma_gfx11_bf16", torch.bfloat16, 16, 16, 16),
    Instruction("wmma_gfx12_half", torch.float16, 16, 16, 16),
    Instruction("wmma_gfx12_bf16", torch.bfloat16, 16, 16, 16),
    Instruction("mma_half", torch.float16, 16, 8, 16),
    Instruction("mma_bf16", torch.bfloat16, 16, 8, 16),
    Instruction("mfma_int8_16", torch.int8, 16, 16, 32, 64, ("gfx942", "gfx950")),
    Instruction("mfma_int8_32", torch.int8, 32, 32, 16, 64, ("gfx942", "gfx950")),
    Instruction("mfma_double", torch.float64, 16, 16, 4, 64),
    Instruction("wmma_gfx11_int8", torch.int8, 16, 16, 16),
    Instruction("wmma_gfx12_int8", torch.int8, 16, 16, 16),
    Instruction("wmma_gfx12_e4m3", torch.float8_e4m3fn, 16, 16, 16),
    Instruction("wmma_gfx12_e5m2", torch.float8_e5m2, 16, 16, 16),
    Instruction("mma_int8", torch.int8, 16, 8, 32),
    Instruction("mma_f64_4", torch.float64, 8, 8, 4),
    Instruction("mma_f64_16", torch.float64, 16, 8, 16, only=("sm_90", "sm_90a")),
)
