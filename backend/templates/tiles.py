"""Lists of tiles by kind of device and shape of the product, the best guess first.

What the numbers of the tiles weigh against each other:
- A tile of M x N reads (M + N) K elements for M N K products: larger ones need less of L2 and LDS.
- A tile needs M N fp32 sums in registers: 64 x 64 a wave of 64 are 64 registers a lane, 128 x 64
  are 128, beyond which the 512 of a CDNA lane hold one wave a SIMD and nothing hides a load.
- A block of 4 waves has one on each SIMD of a compute unit; 8 only for tiles that need them.
- Two LDS buffers need one barrier a step in place of two, and twice the LDS: of 64 KiB a block of
  256 x 256 by 64 bytes of K has room for one.
- A problem with few tiles leaves compute units idle: smaller tiles, or K in parts.
- Matrix instructions of 32 x 32 read fewer LDS bytes a product; those of 16 x 16 fit small tiles
  and leave more independent ones in flight.
- 64 bytes of K a line are four 16-byte loads: half a cache line of CDNA, which has 128 bytes; 128
  bytes are a whole one, and need half of the barriers.
- Without matrix cores (fp32 on RDNA and NVIDIA) a lane has 8 x 8 sums at most: 64 registers, and 16
  LDS reads feed 64 FMA.
- Waves of 32 have twice the registers a sum: 64 x 32 are 64 a lane.
- Hopper's warpgroup of four waves multiplies 64 rows at once, straight from LDS; 64 x 256 sums are
  128 registers a lane, and two such warpgroups fill an SM. A line is 128 bytes of K a step, as its
  LDS layout wants it. Alone on an SM a block needs five buffers or more to hide the memory; of two
  blocks one multiplies while the other waits or stores.
- NVIDIA's copies run on their own: three or four LDS buffers of 24 to 48 KiB hold what is on its
  way. A wave of 64 x 64 has 128 sums a lane and two sets of factors, 230 registers in all, so that
  8 waves fill an SM.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from backend.model.ops import ITEM_BYTES
from backend.templates.config import UnitName, best_unit, has_unit
from backend.templates.problem import Sizes
from backend.toolchain.target import Target

ShapeClass = Literal["decode", "small", "large-k", "tall", "wide", "square"]


@dataclass(frozen=True, slots=True)
class Tile:
    """Block, wave and matrix unit; `k_bytes` is the part of each factor's line in a step."""

    block_m: int
    block_n: int
    wave_m: int
    wave_n: int
    unit: UnitName
    k_bytes: int
    stages: int = 2

    @property
    def pipelined(self) -> bool:
        """Whether tiles are pipelined, as `GemmConfig.pipelined`."""
        return self.stages > 2


def shape_class(sizes: Sizes) -> ShapeClass:
    """Return the shape class, which selects the list of tiles, of the kernel's sizes."""
    if sizes.m <= 16:
        return "decode"
    if sizes.k >= 8 * max(sizes.m, sizes.n) and sizes.m * sizes.n <= 1024 * 1024:
        return "large-k"
    if sizes.m * sizes.n <= 256 * 256:
        return "small"
    if sizes.m >= 4 * sizes.n:
        return "tall"
    if sizes.n >= 4 * sizes.m:
        return "wide"
    return "square"


def _turned(tile: Tile) -> Tile:
    """Return the tile with rows and columns exchanged: a wide product is a tall one turned."""
    rows, cols = tile.block_m, tile.block_n
    return replace(tile, block_m=cols, block_n=rows, wave_m=tile.wave_n, wave_n=tile.wave_m)


_MFMA: dict[ShapeClass, tuple[Tile, ...]] = {
    "square": (
        Tile(256, 256, 128, 64, "mfma32", 64, 2),  # all of 64 KiB
        Tile(256, 256, 128, 64, "mfma32", 64, 1),
        Tile(256, 128, 128, 64, "mfma32", 64),
        Tile(128, 256, 64, 128, "mfma32", 64),
        Tile(128, 128, 64, 64, "mfma32", 64),
        Tile(128, 128, 64, 64, "mfma32", 64, 1),  # 20 KiB: three blocks a compute unit
        Tile(128, 128, 64, 64, "mfma16", 64),
        Tile(128, 128, 64, 64, "mfma16", 128, 1),
        Tile(128, 64, 64, 32, "mfma16", 64),
    ),
    "tall": (
        Tile(256, 128, 128, 64, "mfma32", 64),
        Tile(256, 64, 64, 64, "mfma32", 64),
        Tile(128, 128, 64, 64, "mfma16", 64),
        Tile(128, 64, 64, 32, "mfma16", 64),
        Tile(128, 32, 32, 32, "mfma16", 128),
        Tile(64, 32, 32, 16, "mfma16", 128),
    ),
    "small": (
        Tile(64, 64, 32, 32, "mfma32", 128),
        Tile(64, 64, 32, 32, "mfma16", 128),
        Tile(64, 32, 32, 16, "mfma16", 128),
        Tile(32, 64, 16, 32, "mfma16", 128),
        Tile(32, 32, 16, 16, "mfma16", 128),
    ),
    "large-k": (
        Tile(128, 128, 64, 64, "mfma32", 64),
        Tile(128, 128, 64, 64, "mfma16", 128, 1),
        Tile(64, 64, 32, 32, "mfma16", 128),
        Tile(32, 64, 16, 32, "mfma16", 128),
        Tile(32, 32, 16, 16, "mfma16", 128),
    ),
    "decode": (
        Tile(16, 64, 16, 16, "mfma16", 256),
        Tile(16, 128, 16, 32, "mfma16", 128),
        Tile(16, 256, 16, 64, "mfma16", 64),
    ),
}
_MFMA["wide"] = tuple(map(_turned, _MFMA["tall"]))

_WMMA: dict[ShapeClass, tuple[Tile, ...]] = {
    "square": (
        Tile(128, 128, 64, 32, "wmma_gfx11", 64),
        Tile(128, 64, 32, 32, "wmma_gfx11", 64),
        Tile(64, 64, 32, 32, "wmma_gfx11", 64),
    ),
    "tall": (
        Tile(128, 64, 32, 32, "wmma_gfx11", 64),
        Tile(64, 64, 32, 32, "wmma_gfx11", 64),
        Tile(64, 32, 32, 16, "wmma_gfx11", 128),
    ),
    "wide": (
        Tile(64, 128, 32, 32, "wmma_gfx11", 64),
        Tile(64, 64, 32, 32, "wmma_gfx11", 64),
        Tile(32, 64, 16, 32, "wmma_gfx11", 128, 1),
    ),
    "small": (
        Tile(64, 64, 32, 32, "wmma_gfx11", 64),
        Tile(64, 32, 32, 16, "wmma_gfx11", 128),
        Tile(32, 64, 16, 32, "wmma_gfx11", 128, 1),
    ),
    "large-k": (
        Tile(128, 64, 32, 32, "wmma_gfx11", 64),
        Tile(64, 64, 32, 32, "wmma_gfx11", 64),
        Tile(64, 32, 32, 16, "wmma_gfx11", 128),
    ),
    "decode": (
        Tile(16, 64, 16, 16, "wmma_gfx11", 128),
        Tile(32, 64, 16, 32, "wmma_gfx11", 128, 1),
    ),
}
"""As for gfx11; gfx12 has the same tiles, as has mma with copies through registers."""

_MMA: dict[ShapeClass, tuple[Tile, ...]] = {
    "square": (
        Tile(128, 256, 64, 64, "mma", 64, 4),
        Tile(256, 128, 64, 64, "mma", 64, 4),
        Tile(128, 256, 64, 64, "mma", 128, 3),
        Tile(128, 128, 64, 64, "mma", 64, 4),
        Tile(128, 128, 64, 64, "mma", 128, 3),
        Tile(128, 128, 64, 32, "mma", 128, 4),
        Tile(128, 64, 64, 32, "mma", 128, 3),
        Tile(64, 128, 32, 64, "mma", 128, 3),
        Tile(64, 64, 32, 32, "mma", 128, 4),
    ),
    "tall": (
        Tile(256, 128, 64, 64, "mma", 64, 4),
        Tile(128, 128, 64, 64, "mma", 128, 3),
        Tile(128, 64, 64, 32, "mma", 128, 3),
        Tile(64, 64, 32, 32, "mma", 128, 4),
        Tile(64, 32, 32, 16, "mma", 128, 4),
    ),
    "wide": (
        Tile(128, 256, 64, 64, "mma", 64, 4),
        Tile(128, 128, 64, 64, "mma", 128, 3),
        Tile(64, 128, 32, 64, "mma", 128, 3),
        Tile(64, 64, 32, 32, "mma", 128, 4),
        Tile(64, 64, 32, 32, "mma", 256, 3),
        Tile(32, 128, 32, 32, "mma", 128, 4),
        Tile(32, 64, 32, 16, "mma", 256, 3),
        Tile(32, 64, 32, 16, "mma", 128, 5),
    ),
    "small": (
        Tile(64, 64, 32, 32, "mma", 128, 4),
        Tile(64, 32, 32, 16, "mma", 128, 4),
        Tile(32, 64, 16, 32, "mma", 128, 4),
    ),
    "large-k": (
        Tile(128, 128, 64, 64, "mma", 128, 3),
        Tile(128, 64, 64, 32, "mma", 128, 3),
        Tile(64, 64, 32, 32, "mma", 128, 4),
        Tile(32, 64, 16, 32, "mma", 128, 4),
    ),
    "decode": (
        Tile(16, 64, 16, 16, "mma", 256, 4),
        Tile(16, 128, 16, 32, "mma", 128, 4),
    ),
}

_WARPGROUP = (
    Tile(128, 256, 16, 256, "wgmma", 128, 4),
    Tile(256, 128, 32, 128, "wgmma", 128, 4),
    Tile(128, 192, 16, 192, "wgmma", 128, 5),
    Tile(192, 128, 16, 128, "wgmma", 128, 5),
    Tile(128, 128, 16, 128, "wgmma", 128, 3),  # 96 KiB: two blocks an SM
    Tile(128, 128, 16, 128, "wgmma", 128, 5),
    Tile(64, 256, 16, 256, "wgmma", 128, 5),
    Tile(64, 128, 16, 128, "wgmma", 128, 4),
    Tile(64, 128, 16, 128, "wgmma", 128, 8),
    Tile(128, 64, 16, 64, "wgmma", 128, 8),
    Tile(64, 64, 16, 64, "wgmma", 128, 6),
)
"""For any shape but decode, before those of `_MMA`, if the device has it."""

_PIXELS = (
    Tile(128, 128, 16, 128, "wgmma", 128, 3),
    Tile(128, 128, 16, 128, "wgmma", 128, 6),
    Tile(256, 128, 32, 128, "wgmma", 128, 4),
    Tile(128, 64, 16, 64, "wgmma", 128, 3),
    Tile(64, 128, 16, 128, "wgmma", 128, 4),
    Tile(64, 64, 16, 64, "wgmma", 128, 6),
)
"""In place of `_WARPGROUP` for convolutions, most of which have more rows than columns."""

_VALUES = (Tile(128, 64, 64, 32, "mma", 64, 4), Tile(64, 64, 32, 32, "mma", 64, 4))
"""Before those of `_MMA` for convolutions, whose K is small when single values are gathered."""

_FMA: dict[ShapeClass, tuple[Tile, ...]] = {
    "square": (
        Tile(128, 128, 32, 64, "fma", 32),
        Tile(128, 64, 32, 64, "fma", 32),
        Tile(64, 128, 32, 64, "fma", 32),
        Tile(64, 64, 32, 32, "fma", 32),
        Tile(64, 64, 32, 32, "fma", 64, 1),
    ),
    "tall": (
        Tile(256, 64, 32, 64, "fma", 32),
        Tile(128, 64, 32, 64, "fma", 32),
        Tile(128, 32, 32, 32, "fma", 32),
        Tile(64, 32, 32, 16, "fma", 64),
    ),
    "wide": (
        Tile(64, 256, 32, 64, "fma", 32),
        Tile(64, 128, 32, 64, "fma", 32),
        Tile(32, 128, 32, 32, "fma", 32),
        Tile(32, 64, 16, 32, "fma", 64),
    ),
    "small": (
        Tile(64, 64, 32, 32, "fma", 32),
        Tile(32, 64, 16, 32, "fma", 64),
        Tile(64, 32, 32, 16, "fma", 64),
        Tile(32, 32, 16, 16, "fma", 64),
    ),
    "large-k": (
        Tile(128, 64, 32, 64, "fma", 32),
        Tile(64, 64, 32, 32, "fma", 32),
        Tile(32, 32, 16, 16, "fma", 64),
    ),
    "decode": (
        Tile(16, 64, 16, 16, "fma", 64),
        Tile(16, 128, 16, 32, "fma", 64),
    ),
}

_MFMA_F64: dict[ShapeClass, tuple[Tile, ...]] = {
    "square": (
        Tile(128, 128, 64, 64, "mfma_f64", 64),
        Tile(128, 128, 64, 64, "mfma_f64", 64, 1),
        Tile(128, 128, 64, 32, "mfma_f64", 64),
        Tile(128, 64, 64, 32, "mfma_f64", 128),
        Tile(64, 64, 32, 32, "mfma_f64", 128),
    ),
    "tall": (
        Tile(128, 64, 64, 32, "mfma_f64", 128),
        Tile(64, 64, 32, 32, "mfma_f64", 128),
        Tile(64, 32, 32, 16, "mfma_f64", 128),
    ),
    "small": (
        Tile(64, 64, 32, 32, "mfma_f64", 128),
        Tile(64, 32, 32, 16, "mfma_f64", 128),
        Tile(32, 32, 16, 16, "mfma_f64", 128),
    ),
    "large-k": (
        Tile(64, 64, 32, 32, "mfma_f64", 128),
        Tile(32, 64, 16, 32, "mfma_f64", 128),
        Tile(32, 32, 16, 16, "mfma_f64", 128),
    ),
    "decode": (Tile(16, 64, 16, 16, "mfma_f64", 128),),
}
_MFMA_F64["wide"] = tuple(map(_turned, _MFMA_F64["tall"]))

_MMA_F64: dict[ShapeClass, tuple[Tile, ...]] = {
    shape: tuple(
        replace(tile, unit="mma_f64", wave_m=min(tile.wave_m, 32), wave_n=min(tile.wave_n, 32))
        for tile in tiles
    )
    for shape, tiles in _MFMA_F64.items()
}
_MMA_F64["square"] = (
    Tile(128, 64, 32, 32, "mma_f64", 128),
    Tile(64, 128, 32, 32, "mma_f64", 128),
    Tile(64, 64, 32, 32, "mma_f64", 128),
    Tile(64, 64, 32, 16, "mma_f64", 128),
)
"""Sums and factors of fp64 take twice the registers of fp32: no wave has more than 32 x 32."""

_RING_F64: dict[ShapeClass, tuple[Tile, ...]] = {
    shape: tuple(replace(tile, stages=4) for tile in tiles) for shape, tiles in _MMA_F64.items()
}
"""The same with asynchronous copies of the factors, for the unit of `sm_90`."""

_CPU = (
    # One fiber per thread: few threads with much work; one has matrix instructions, so that tests
    # and the demo run that path too.
    Tile(64, 64, 64, 64, "fma", 128, 1),
    Tile(64, 64, 32, 32, "mfma16", 64, 2),
    Tile(32, 32, 32, 32, "fma", 128, 2),
)


def tiles(
    target: Target, dtype: str, shape: ShapeClass, pipeline: bool, pixels: bool = False
) -> tuple[Tile, ...]:
    """Return the tiles, best guess first; those of a matrix unit if the device has one for the
    type.

    `pipeline` is whether the problem supports asynchronous copies, `pixels` whether it is a
    convolution.
    """
    if target.kind == "cpu":
        return tuple(tile for tile in _CPU if has_unit(target, tile.unit, dtype))
    lists = {"": _FMA, "mfma": _MFMA}.get(target.matrix, _WMMA)
    if dtype == "float64" and target.matrix in ("mfma", "mma"):
        ring = pipeline and has_unit(target, "mma_f64_wide", dtype)
        lists = _MFMA_F64 if target.matrix == "mfma" else _RING_F64 if ring else _MMA_F64
    elif target.matrix == "mma" and pipeline:
        lists = _MMA
    selected = tuple(replace(tile, unit=_own(tile.unit, target, dtype)) for tile in lists[shape])
    if not has_unit(target, selected[0].unit, dtype):
        selected = _FMA[shape]
    elif selected[0].unit in ("mma", "wmma_gfx11", "wmma_gfx12") and ITEM_BYTES[dtype] == 1:
        # Transposed or converted bytes take registers: half the K if the whole is too much.
        selected = (*selected, *(replace(tile, k_bytes=tile.k_bytes // 2) for tile in selected))
    if pixels and lists is _MMA:
        selected = (*_VALUES, *selected)
    if not has_unit(target, "wgmma", dtype):
        return selected
    return (*(_PIXELS if pixels else () if shape == "decode" else _WARPGROUP), *selected)


def _own(unit: UnitName, target: Target, dtype: str) -> UnitName:
    """Return the device's unit: those of 32 lanes share a list, as do CDNA's."""
    if target.matrix in ("wmma_gfx11", "wmma_gfx12", "mma") and dtype != "float64":
        return target.matrix
    return best_unit(target, dtype, unit)
