"""Relative times of products with few rows, by which their configs are ordered.

All of them wait for the memory that has the right factor. Nothing is compiled or measured here.
"""

from __future__ import annotations

from backend.templates.config import GemmConfig, SkinnyConfig
from backend.templates.legality import DeviceLimits
from backend.templates.problem import Sizes
from backend.templates.units import UNITS

_ON_THE_WAY = 48 << 10
"""Bytes that a compute unit must have on their way: 4.8 TB/s for a microsecond by 132 of them are
36 KiB each."""
_HALF_RATE = 2 << 10
"""Bytes on their way with which a compute unit would have half of its share of the memory."""


def plain_cost(config: SkinnyConfig, sizes: Sizes, device: DeviceLimits) -> tuple[float, int, int]:
    """How far the waves are from filling the device (eight a compute unit hide the memory), then
    how often the rows are read again, then the size of a block."""
    waves = -(-sizes.n // config.cols) * config.waves_k * sizes.batch
    wanted = 8 * device.compute_units
    return max(1.0, wanted / waves), -config.cols, config.waves


def unit_cost(config: SkinnyConfig, sizes: Sizes, device: DeviceLimits) -> float:
    """Relative time by counting: how many bytes are on their way, how evenly blocks fill the
    device, how often the rows are read, and what a second kernel costs."""
    unit = UNITS[config.unit]
    blocks = -(-sizes.n // (config.cols * config.waves_n)) * sizes.batch * config.split_k
    each = -(-blocks // device.compute_units)
    waves = min(each * config.waves, 16)
    span = unit.wave // unit.m * unit.lines * 16  # bytes of K of a column that a wave loads at once
    on_the_way = waves * config.unroll * config.cols * span
    even = blocks / (each * device.compute_units)
    rows = 1 + config.rows / config.cols / 16
    short = 1.5 if sizes.k * 2 < config.split_k * config.waves_k * config.unroll * span else 1.0
    second = 1.4 if config.split_k > 1 else 1.0
    return rows * short * second / (min(1.0, on_the_way / _ON_THE_WAY) * even)


def ring_cost(config: SkinnyConfig, item: int, sizes: Sizes, device: DeviceLimits) -> float:
    """As `_stream_cost`."""
    line = 128  # bytes of K of a line in a buffer
    stage = config.waves * (config.rows + config.cols) * line
    ahead = (config.stages - 1) * config.waves * config.cols * line
    k = config.stages * config.waves_k * line // item
    cols = config.cols * config.waves_n
    return _stream_cost(cols, config.split_k, stage * config.stages, ahead, k, sizes, device)


def tiled_cost(config: GemmConfig, item: int, sizes: Sizes, device: DeviceLimits) -> float:
    """As `_stream_cost`; rows that are not there take room and instructions, and a second tile of
    rows reads the right factor again."""
    line = config.block_k * item
    ring = config.stages * (config.block_m + config.block_n) * line
    ahead = (config.stages - (2 if config.unit == "wgmma" else 1)) * config.block_n * line
    k = config.stages * config.block_k
    cost = _stream_cost(config.block_n, config.split_k, ring, ahead, k, sizes, device)
    tall = config.block_m / max(16, sizes.m)
    return cost * (1 + 0.1 * (tall - 1) if tall >= 1 else 1 + 0.4 * (1 / tall - 1))


def _stream_cost(
    cols: int, parts: int, ring: int, ahead: int, k: int, sizes: Sizes, device: DeviceLimits
) -> float:
    """Relative time of a product with few rows, which is that of reading the right factor.

    A block has `cols` columns and a ring of `ring` bytes that holds `k` products of each; `ahead`
    bytes of the right factor are on their way. By what an H200 did: how many compute units have a
    block, how many bytes are on their way to one, how often the rows are read (twice as dear where
    blocks are no longer in step), the rings that further rounds of blocks fill anew, and a second
    kernel that reads the parts' sums.
    """
    blocks = -(-sizes.n // cols) * sizes.batch * parts
    fit = max(1, device.dynamic_lds_bytes // ring)
    rounds = -(-blocks // (fit * device.compute_units))
    on_the_way = min(fit, -(-blocks // device.compute_units)) * ahead
    busy = min(1.0, blocks / device.compute_units) * on_the_way / (on_the_way + _HALF_RATE)
    read = 1 + (0.1 if rounds == 1 else 0.2) * sizes.m / cols
    filled = 1.0 if rounds == 1 else 1.03 + 0.15 * k * parts / max(1, sizes.k)
    second = 1.0 if parts == 1 else 1.08 + 2 * parts * sizes.m / max(1, sizes.k)
    return read * filled * second / busy
