"""One way to cut a matrix product into programs, and what Triton is told to do with it."""

from __future__ import annotations

from dataclasses import dataclass

from backend.templates.errors import ConfigError


@dataclass(frozen=True, slots=True, order=True)
class TritonGemmConfig:
    """Block sizes are in elements, `group_m` in rows of blocks.

    `matrix_instr_nonkdim` is the side of the matrix-core tile (0: Triton decides), `waves_per_eu` a
    hint for how many waves a SIMD shall hold (0: none), `kpack` how many k-vectors one LDS read
    brings. `xcds` is over how many dies the programs are dealt out by the hardware (1: no remap).
    `split_k` programs share one output block; a second kernel adds what they found.
    """

    block_m: int
    block_n: int
    block_k: int
    group_m: int = 8
    num_warps: int = 4
    num_stages: int = 2
    matrix_instr_nonkdim: int = 16
    waves_per_eu: int = 0
    kpack: int = 1
    xcds: int = 1
    split_k: int = 1

    def __post_init__(self) -> None:
        for name in ("block_m", "block_n", "block_k"):
            if not _power_of_two(getattr(self, name)) or getattr(self, name) < 16:
                raise ConfigError(f"{name} is {getattr(self, name)}: a power of two from 16 on")
        if not _power_of_two(self.num_warps) or self.num_warps > 16:
            raise ConfigError(f"num_warps is {self.num_warps}: a power of two up to 16")
        if self.matrix_instr_nonkdim not in (0, 16, 32):
            raise ConfigError(f"matrix_instr_nonkdim is {self.matrix_instr_nonkdim}: 0, 16 or 32")
        if self.matrix_instr_nonkdim > min(self.block_m, self.block_n):
            raise ConfigError(
                f"a {self.matrix_instr_nonkdim} wide matrix tile is wider than the block"
            )
        if self.kpack not in (1, 2):
            raise ConfigError(f"kpack is {self.kpack}: 1 or 2")
        for name in ("group_m", "num_stages", "xcds", "split_k"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}: 1 or more")
        if self.waves_per_eu < 0:
            raise ConfigError(f"waves_per_eu is {self.waves_per_eu}: 0 or more")

    def options(self, arch: str) -> dict[str, int]:
        """What Triton compiles and launches with; AMD's knobs only where it knows them."""
        common = {"num_warps": self.num_warps, "num_stages": self.num_stages}
        if not arch.startswith("gfx"):
            return common
        return common | {
            "matrix_instr_nonkdim": self.matrix_instr_nonkdim,
            "waves_per_eu": self.waves_per_eu,
            "kpack": self.kpack,
        }

    def defines(self) -> dict[str, int]:
        """The compile-time constants of the kernel's text."""
        return {
            "BLOCK_M": self.block_m,
            "BLOCK_N": self.block_n,
            "BLOCK_K": self.block_k,
            "GROUP_M": self.group_m,
            "NUM_XCDS": self.xcds,
            "SPLIT_K": self.split_k,
        }


def _power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0
