"""The configs worth compiling for a problem on an arch.

Three stages, each pure and in a fixed order: the sensible configs that can run without spilling; an
estimate of each one's time; the best few, not all of one tile.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from backend.errors import ConfigError
from backend.model.ops import ITEM_BYTES
from backend.templates.operand import Expr
from backend.templates.triton.choice import TritonGemmConfig
from backend.templates.triton.gemm import TritonGemm
from backend.toolchain.target import GPU_ARCHES, GpuArch


@dataclass(frozen=True, slots=True)
class TritonArch:
    """The capabilities of an architecture under Triton. `macs` are multiply-adds per clock and
    compute unit.

    From AMD's CDNA2, CDNA3 and CDNA4 white papers. The units are those of the largest board:
    smaller products of the same arch only get a slightly worse order.
    """

    gpu: GpuArch
    macs: dict[int, int]
    """Multiply-adds by bytes per element."""
    kpack: int
    """2 if an LDS read of 16 bytes needs it; gfx950's reads are that wide anyway."""
    stages: tuple[int, ...]
    """2 loads the next block while this one is used, 3 also the one after it, if LDS has room."""
    direct_to_lds: bool = False
    """Whether loads go to LDS without passing through registers, so that LDS holds every stage."""


ARCHES = {
    "gfx90a": TritonArch(
        GPU_ARCHES["gfx90a"], {1: 512, 2: 512, 4: 128, 8: 128}, kpack=2, stages=(2,)
    ),
    "gfx942": TritonArch(
        GPU_ARCHES["gfx942"], {1: 2048, 2: 1024, 4: 128, 8: 128}, kpack=2, stages=(2,)
    ),
    "gfx950": TritonArch(
        GPU_ARCHES["gfx950"],
        {1: 4096, 2: 2048, 4: 128, 8: 64},
        kpack=1,
        stages=(2, 3),
        direct_to_lds=True,
    ),
}

WAVE, SIMDS, REGISTERS = 64, 4, 512
"""For every CDNA arch since gfx90a: lanes, SIMDs per unit, registers per lane and SIMD."""

_LAUNCH_CLOCKS = 8_000
_BARRIER_CLOCKS = 200
"""The additional cost of a block of K: two barriers and the latency of the first LDS read."""
_L2_BYTES_A_CLOCK = 32
"""A unit's share when all of them read: half of the link's peak."""
_LDS_BYTES_A_CLOCK = 128
_HBM_BYTES_A_CLOCK = 2_048
_OTHER_REGISTERS = 32
"""Addresses, masks and loop counters, as seen in compiled kernels."""


@dataclass(frozen=True, slots=True)
class ProductShape:
    """Numbers, or guesses if sizes are dynamic."""

    m: int
    n: int
    k: int
    batch: int
    item_bytes: int


def configs(
    problem: TritonGemm,
    arch: str,
    *,
    budget: int = 12,
    hint: Callable[[Expr], int] = int,
) -> tuple[TritonGemmConfig, ...]:
    """Return at most `budget` configs, most promising first; the same for the same arguments.

    `hint` guesses a dynamic size. Empty if the output is. Raises ConfigError for an arch that is
    not in `ARCHES`.
    """
    if arch not in ARCHES:
        raise ConfigError(f"no Triton configs for {arch}; there are some for {', '.join(ARCHES)}")
    m, n = map(hint, problem.out.sizes[-2:])
    k, batch = hint(problem.a.sizes[-1]), hint(problem.batch)
    shape = ProductShape(m, n, k, batch, ITEM_BYTES[problem.a.dtype])
    if m * n * batch == 0:
        return ()
    unit = ARCHES[arch]
    ranked = sorted(_candidates(shape, unit), key=lambda c: (estimated_clocks(c, shape, unit), c))
    return _varied(ranked, budget)


def fits(config: TritonGemmConfig, shape: ProductShape, arch: TritonArch) -> bool:
    """Return whether LDS and registers suffice, with no spill expected."""
    allowed = REGISTERS // max(1, config.num_warps // SIMDS)
    # Sums that fill half of the registers (256 x 256 on eight waves) spill now and then. The other
    # half is enough for any epilogue: the longest, such as gelu, keeps three values an element.
    needed = max(
        registers(config, shape.item_bytes, narrow=True),
        words(shape.item_bytes) * _sums(config) * 8 // 3,
    )
    return lds_bytes(config, shape.item_bytes, arch) <= arch.gpu.unit.lds and needed <= allowed


def lds_bytes(config: TritonGemmConfig, item_bytes: int, arch: TritonArch) -> int:
    """Return the loop's LDS bytes: all stages but the one in registers, or all, with padding."""
    stage = (config.block_m + config.block_n) * config.block_k * item_bytes
    if arch.direct_to_lds:
        return stage * config.num_stages * 17 // 16
    return stage * max(1, config.num_stages - 1)


def registers(config: TritonGemmConfig, item_bytes: int, *, narrow: bool = False) -> int:
    """Return the registers of a lane in the loop: the sums, the next block on its way to LDS, and
    values read from LDS.

    Triton 3.9 uses about as many. Unaligned rows are loaded with one element per register:
    `narrow`.
    """
    waves_m, waves_n = _waves(config)
    line = config.block_k * item_bytes // 4
    wide = (config.block_m + config.block_n) * line // _lanes(config)
    coming = wide * 4 // item_bytes if narrow else wide
    read = (config.block_m // waves_m + config.block_n // waves_n) * line // WAVE
    return _sums(config) * words(item_bytes) + coming + read + _OTHER_REGISTERS


def words(item_bytes: int) -> int:
    """Return the registers of a sum: only fp64 needs more than one."""
    return 2 if item_bytes == 8 else 1


def estimated_clocks(config: TritonGemmConfig, shape: ProductShape, arch: TritonArch) -> float:
    """Estimate clocks, only good for an order: rounds of programs, bound by sums, L2 or LDS."""
    programs = _programs(config, shape) * config.split_k
    fit = min(
        8 // config.num_warps or 1, arch.gpu.unit.lds // lds_bytes(config, shape.item_bytes, arch)
    )
    resident = max(1, min(fit, -(-programs // arch.gpu.compute_units)))
    rounds = -(-programs // (arch.gpu.compute_units * resident))
    k_blocks = -(-_blocks(shape.k, config.block_k) // config.split_k)
    busy = min(1.0, config.num_warps * resident / SIMDS)
    waves_m, waves_n = _waves(config)
    lines = config.block_m + config.block_n
    per_k = resident * max(
        config.block_m * config.block_n / (arch.macs[shape.item_bytes] * busy),
        lines * shape.item_bytes / _L2_BYTES_A_CLOCK,
        # Each wave reads its own rows and columns, so waves side by side read the same again.
        (config.block_m * waves_n + config.block_n * waves_m)
        * shape.item_bytes
        / _LDS_BYTES_A_CLOCK,
    )
    clocks = rounds * k_blocks * (config.block_k * per_k + _BARRIER_CLOCKS)
    if config.split_k > 1:
        sums = shape.batch * shape.m * shape.n * 4 * words(shape.item_bytes)
        partials = sums * (config.split_k + 1)
        clocks += _LAUNCH_CLOCKS + partials / _HBM_BYTES_A_CLOCK
    return clocks


def _lanes(config: TritonGemmConfig) -> int:
    return config.num_warps * WAVE


def _sums(config: TritonGemmConfig) -> int:
    return config.block_m * config.block_n // _lanes(config)


def _waves(config: TritonGemmConfig) -> tuple[int, int]:
    """Return how a program's waves are arranged over its rows and columns."""
    down = 2 ** (int(math.log2(config.num_warps)) // 2)
    return down, config.num_warps // down


def _candidates(shape: ProductShape, arch: TritonArch) -> Iterator[TritonGemmConfig]:
    for block_m, block_n in itertools.product(_sides(shape.m), _sides(shape.n)):
        for k_bytes in (64, 128, 256):
            # Half a cache line, a line, two: the last only where small tiles starve without it.
            block_k = max(16, k_bytes // shape.item_bytes)
            if k_bytes > 128 and block_m * block_n > 64 * 64:
                continue
            for warps, stages in itertools.product(_warps(block_m, block_n), arch.stages):
                base = TritonGemmConfig(
                    block_m,
                    block_n,
                    block_k,
                    num_warps=warps,
                    num_stages=stages,
                    kpack=arch.kpack if shape.item_bytes <= 2 else 1,
                )
                if fits(base, shape, arch):
                    yield from _tuned(base, shape, arch)


def _tuned(
    base: TritonGemmConfig, shape: ProductShape, arch: TritonArch
) -> Iterator[TritonGemmConfig]:
    """Yield the knobs that follow from the tile, and both values of those worth trying."""
    rows = _blocks(shape.m, base.block_m)
    # The programs that run on one die at once cover roughly a square of blocks: 6 x 6 on 38
    # units, 10 x 10 on 110.
    group = min(8, 2 ** int(math.log2(rows)))
    # With room for two waves a SIMD, one computes while the other waits for LDS.
    waves = 2 if base.num_warps >= 4 and registers(base, shape.item_bytes) <= 200 else 0
    for split in _splits(base, shape, arch):
        programs = _programs(base, shape) * split
        xcds = arch.gpu.xcds if programs >= 2 * arch.gpu.xcds else 1
        config = replace(base, group_m=group, waves_per_eu=waves, split_k=split, xcds=xcds)
        yield config
        # 32 wide tiles halve the matrix instructions, at a longer latency: for waves with many of
        # them, but registers to spare, since each tile's sums must lie side by side.
        if min(base.block_m, base.block_n) >= 128 and _sums(base) <= 64:
            yield replace(config, matrix_instr_nonkdim=32)


def _sides(size: int) -> tuple[int, ...]:
    """Return block sides that waste less than half; no strips of 16 for a bigger product."""
    whole = 2 ** max(4, math.ceil(math.log2(max(1, size))))
    return tuple(side for side in (16, 32, 64, 128, 256) if min(whole, 256) // 8 <= side <= whole)


def _warps(block_m: int, block_n: int) -> tuple[int, ...]:
    """Return wave counts with 1,024 to 4,096 sums each: with fewer sums, LDS reads are reused too
    little; with more, registers leave no room for a second wave."""
    sums = block_m * block_n
    fitting = [w for w in (1, 2, 4, 8) if 1024 <= sums // w <= 4096]
    return tuple(fitting) or ((1,) if sums < 1024 else (8,))


def _splits(base: TritonGemmConfig, shape: ProductShape, arch: TritonArch) -> tuple[int, ...]:
    """Return 1, and if blocks are too few for the units, the split that fills them. Each split
    keeps four blocks of K or more, or the second kernel costs more than it saves."""
    programs = _programs(base, shape)
    k_blocks = _blocks(shape.k, base.block_k)
    most = min(16, arch.gpu.compute_units // programs, k_blocks // 4)
    return (1,) if most < 2 else (1, 2 ** int(math.log2(most)))


def _programs(config: TritonGemmConfig, shape: ProductShape) -> int:
    return _blocks(shape.m, config.block_m) * _blocks(shape.n, config.block_n) * shape.batch


def _blocks(size: int, block: int) -> int:
    return -(-size // block)


def _varied(ranked: list[TritonGemmConfig], budget: int) -> tuple[TritonGemmConfig, ...]:
    """Return the first `budget`, with at most two of one tile: the estimate is not that precise."""
    tiles: Counter[tuple[int, int]] = Counter()
    kept: list[TritonGemmConfig] = []
    for config in ranked:
        tile = config.block_m, config.block_n
        if len(kept) < budget and tiles[tile] < 2:
            tiles[tile] += 1
            kept.append(config)
    return tuple(kept)
