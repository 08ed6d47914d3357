"""The offered configs of a problem: a list by device and shape, pruned, ordered, cut.

Nothing is compiled or measured here, and the result depends only on the arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from backend.errors import ConfigError
from backend.templates.config import (
    UNITS,
    GemmConfig,
    MatrixUnit,
    SkinnyConfig,
    UnitName,
    best_unit,
    has_unit,
    wave_of,
)
from backend.templates.convolution import ConvProblem
from backend.templates.legality import (
    DeviceLimits,
    config_defect,
    device_defect,
    device_limits,
    run_length,
    takes_pipeline,
)
from backend.templates.operand import VECTOR_BYTES, Expr
from backend.templates.problem import GemmProblem, Side, Sizes, canonical
from backend.templates.tiles import Tile, shape_class, tiles
from backend.toolchain.target import Target

SKINNY_ROWS, _FMA_ROWS, _FMA_BESIDE_UNIT = 64, 16, 4
"""The maximum rows for the skinny template, and for its plain FMA without and with a matrix unit
beside it: with FMA an H200 takes 1.6 times as long for one row, 5 times for 8, 17 times for 16."""
_LEAST_K_STEPS = 8
"""The minimum steps of the main loop in a part of K, which must pay for its start."""
_MOST_PARTS = 16
_START, _SECOND_KERNEL = 1000, 4400
"""Clocks in which a block of a pipeline fills its ring, and in which the sums' kernel starts."""
_LDS, _DEVICE_BYTES = 227 << 10, 2400
"""LDS of an SM, and bytes per clock that the device reads or writes, as on an H200."""
_TRAFFIC = 64
"""Products of a matrix core while one element comes from L2; only their order matters."""


def gemm_configs(
    problem: GemmProblem,
    target: Target,
    sizes: Sizes,
    budget: int = 8,
    compute_units: int | None = None,
) -> tuple[GemmConfig, ...]:
    """Return at most `budget` configs of the tiled product, most promising first; maybe none.

    `sizes` are those of `problem`, guesses if they are dynamic. Raises ConfigError for an unknown
    architecture.
    """
    device = device_limits(target, compute_units)
    sizes = _as_kernel(problem, sizes)
    configs = [
        config
        for tile in _tiles(problem, target, sizes)
        for config in _splits(_gemm_config(tile, problem, device), sizes, device)
        if config_defect(config, problem) is None and device_defect(config, problem, device) is None
    ]
    if target.kind != "cpu":
        configs.sort(key=lambda config: _gemm_cost(config, problem, sizes, device))
    return tuple(configs[:budget])


def _tiles(problem: GemmProblem, target: Target, sizes: Sizes) -> tuple[Tile, ...]:
    pixels, pipeline = isinstance(problem, ConvProblem), takes_pipeline(problem)
    return tiles(target, problem.a.dtype, shape_class(sizes), pipeline, pixels)


def skinny_configs(
    problem: GemmProblem,
    target: Target,
    sizes: Sizes,
    budget: int = 4,
    compute_units: int | None = None,
) -> tuple[SkinnyConfig, ...]:
    """Return at most `budget` configs of the product with few rows; none for more than 64 rows.
    Raises ConfigError for an unknown architecture."""
    device = device_limits(target, compute_units)
    sizes = _as_kernel(problem, sizes)
    if sizes.m > SKINNY_ROWS:
        return ()

    def legal(candidates: Iterator[SkinnyConfig]) -> list[SkinnyConfig]:
        return [
            c
            for c in dict.fromkeys(candidates)
            if config_defect(c, problem) is None and device_defect(c, problem, device) is None
        ]

    item = problem.a.item_bytes
    matrix = legal(_ring_candidates(problem, sizes, device))
    matrix.sort(key=lambda config: ring_cost(config, item, sizes, device))
    if not matrix:
        matrix = legal(_unit_candidates(problem, sizes, device))
        matrix.sort(key=lambda config: unit_cost(config, sizes, device))
    if sizes.m > _plain_rows(problem, device, bool(matrix)):
        return tuple(matrix[:budget])
    plain = legal(_skinny_candidates(problem, sizes, device))
    plain.sort(key=lambda config: plain_cost(config, sizes, device))
    return tuple([*plain[:3], *matrix[:1], *plain[3:], *matrix[1:]][:budget])


def _plain_rows(problem: GemmProblem, device: DeviceLimits, by_unit: bool) -> int:
    """Return the maximum rows with which plain FMA may keep up with memory, as CDNA's does for a
    few; beside tensor cores there are none."""
    if _skinny_unit(device.target, problem.a.dtype) is None and not by_unit:
        return _FMA_ROWS
    return 0 if by_unit and device.target.kind == "cuda" else _FMA_BESIDE_UNIT


def _as_kernel(problem: GemmProblem, sizes: Sizes) -> Sizes:
    return replace(sizes, m=sizes.n, n=sizes.m) if problem.flipped else sizes


def _gemm_config(tile: Tile, problem: GemmProblem, device: DeviceLimits) -> GemmConfig:
    form, item = canonical(problem), problem.a.item_bytes
    block_k = tile.k_bytes // item
    config = GemmConfig(
        block_m=tile.block_m,
        block_n=tile.block_n,
        block_k=block_k,
        wave_m=tile.wave_m,
        wave_n=tile.wave_n,
        unit=tile.unit,
        kpack=1 if tile.pipelined else _kpack(tile.unit, item),
        stages=tile.stages,
        group_m=max(1, 1024 // tile.block_m),
        xcds=device.xcds,
    )
    threads = config.waves * wave_of(device.target, config.unit)
    share = VECTOR_BYTES * threads if tile.pipelined else block_k
    return replace(
        config,
        vec_a=_vector(form.left, tile.block_m * share // threads),
        vec_b=_vector(form.right, tile.block_n * share // threads),
        vec_c=min(form.out_vector, run_length(config, item)),
    )


def _kpack(unit: UnitName, item: int) -> int:
    """Return the number of instructions that one LDS read of 16 bytes feeds."""
    return 1 if unit == "fma" else max(1, VECTOR_BYTES // (UNITS[unit].terms(item) * item))


def _vector(side: Side, elements_per_thread: int) -> int:
    """Return the widest vector that alignment permits while every thread has something to load."""
    return min(side.vector, 1 << max(0, elements_per_thread.bit_length() - 1))


def _splits(config: GemmConfig, sizes: Sizes, device: DeviceLimits) -> Iterator[GemmConfig]:
    """Yield the config, and with K in as many parts as still fit the device at once."""
    yield config
    if device.target.kind == "cpu":
        return
    blocks = _blocks(config, sizes)
    steps = -(-sizes.k // config.block_k)
    parts = 1
    while 2 * blocks * parts <= device.compute_units and parts < _MOST_PARTS:
        parts *= 2
    while parts > 1 and steps // parts < _LEAST_K_STEPS:
        parts //= 2
    if parts > 1:
        yield replace(config, split_k=parts)


def _blocks(config: GemmConfig, sizes: Sizes) -> int:
    return -(-sizes.m // config.block_m) * -(-sizes.n // config.block_n) * sizes.batch


def _gemm_cost(
    config: GemmConfig, problem: GemmProblem, sizes: Sizes, device: DeviceLimits
) -> float:
    """Estimate the relative time: rounds of blocks over the compute units, each one's computation
    and reads, and the sums that a split writes and reads again."""
    few = sizes.m <= SKINNY_ROWS and not isinstance(problem, ConvProblem)
    if config.pipelined and few:
        return tiled_cost(config, problem.a.item_bytes, sizes, device)
    if config.pipelined:
        return _pipeline_cost(config, problem.a.item_bytes, sizes, device)
    rounds = -(-_blocks(config, sizes) * config.split_k // device.compute_units)
    area = config.block_m * config.block_n
    step = area + _TRAFFIC * (config.block_m + config.block_n)
    main = rounds * step * sizes.k / config.split_k
    if config.split_k == 1:
        return main
    sums = 2 * config.split_k * sizes.m * sizes.n * sizes.batch
    return main + _TRAFFIC * sums / device.compute_units


def _pipeline_cost(config: GemmConfig, item: int, sizes: Sizes, device: DeviceLimits) -> float:
    """Estimate the time of the SM with the most blocks, in its clocks."""
    blocks = -(-_blocks(config, sizes) * config.split_k // device.compute_units)
    if config.unit == "wgmma":
        main = _warpgroup_clocks(config, sizes, blocks, device)
    else:
        main = _mma_clocks(config, item, sizes, blocks)
    factors = item * (sizes.m + sizes.n) * sizes.k * sizes.batch
    main = max(main, factors / _DEVICE_BYTES + _START)
    if config.split_k == 1:
        return main
    moved = 2 * 4 * config.split_k * sizes.m * sizes.n * sizes.batch
    return main + _SECOND_KERNEL + moved / _DEVICE_BYTES


def _mma_clocks(config: GemmConfig, item: int, sizes: Sizes, blocks: int) -> float:
    """Estimate clocks of tensor cores: about 1,024 fp16 products per clock with eight waves or
    more, or twice as many of bytes; meanwhile 64 bytes come from L2 and 128 from LDS, of which half
    is assumed hidden behind the products.

    With fp64 the 128 clocks hide every load. There registers leave room for eight waves, and the
    waves of a block wait for each other at each step, as in `_warpgroup_clocks`.
    """
    area, lines = config.block_m * config.block_n, config.block_m + config.block_n
    at_once = min(blocks, 8 // config.waves or 1)
    read = 8 * config.waves * (config.wave_m + config.wave_n)
    busy = min(1.0, (at_once * config.waves + 4) / 12)
    step = item / 2 * (area + 16 * lines + read) / 1024
    if config.unit == "mma_f64_wide":
        wait = (120 if at_once == 1 else 60) / (at_once * config.block_k)
        step = max(area / 128, item / 2 * (16 * lines + read) / 1024) + wait
    return blocks * (step * sizes.k / config.split_k / busy + _START)


def _warpgroup_clocks(config: GemmConfig, sizes: Sizes, blocks: int, device: DeviceLimits) -> float:
    """Estimate clocks of warpgroups: 2,048 fp16 products per clock; a step is 128 bytes of each
    line.

    Fitted to an H200: a single block waits some 120 clocks per step, and at least 430; a tile
    arrives 1,700 clocks after its request; an SM receives 65 bytes per clock. A line that does not
    begin at 128 bytes is two requests, and neighbours' requests are not merged: then L2 gives all
    SMs 26 bytes each.
    """
    lines = config.block_m + config.block_n
    at_once = min(blocks, _LDS // (128 * lines * config.stages), 16 // config.waves) or 1
    products = at_once * config.block_m * config.block_n / 32
    active = min(device.compute_units, _blocks(config, sizes) * config.split_k) or 1
    even = sizes.k % 64 == sizes.n % 64 == 0
    rate = 65 if even else min(65, 26 * device.compute_units / active)
    step = max(
        products + (120 if at_once == 1 else 60),
        430,
        128 * at_once * lines / rate,
        1700 / (config.stages - 1),
    )
    steps = -(-sizes.k // (config.block_k * config.split_k))
    return -(-blocks // at_once) * (steps * step + 700 + config.block_m * config.block_n / 8)


def _skinny_candidates(
    problem: GemmProblem, sizes: Sizes, device: DeviceLimits
) -> Iterator[SkinnyConfig]:
    """Yield, for each arrangement of lanes and waves, as many steps at once as registers permit."""
    for most_unrolled in _skinny_arrangements(problem, sizes, device):
        unroll = most_unrolled.unroll
        while unroll > 1 and device_defect(most_unrolled, problem, device) is not None:
            unroll //= 2
            most_unrolled = replace(most_unrolled, unroll=unroll)
        yield most_unrolled


def _skinny_arrangements(
    problem: GemmProblem, sizes: Sizes, device: DeviceLimits
) -> Iterator[SkinnyConfig]:
    form = canonical(problem)
    rows = 1 << (max(1, sizes.m) - 1).bit_length()
    vec_a, vec_b = form.left.vector if form.left.k_fast else 1, form.right.vector
    if form.right.k_fast:
        # Few columns give more waves to fill the device; many reuse a loaded row more often.
        vec = min(vec_a, vec_b) if form.left.k_fast else vec_b
        for waves_n, waves_k, cols in _waves(device, ((4, 1, 4), (1, 4, 4), (2, 4, 2), (1, 8, 1))):
            vec_left = vec if form.left.k_fast else 1
            yield SkinnyConfig(rows, cols, waves_n, waves_k, vec_left, vec, 4 // cols)
    else:
        # A line of 8 to 32 lanes is 128 to 512 bytes, if aligned.
        vec = min(vec_b, 4 if rows > 8 else 8)
        for waves_n, waves_k, lanes in _waves(
            device, ((4, 1, 16), (1, 4, 16), (1, 8, 8), (1, 8, 32))
        ):
            yield SkinnyConfig(rows, vec * lanes, waves_n, waves_k, min(vec_a, 4), vec, 2)


_Waves = tuple[tuple[int, int, int], ...]


def _waves(device: DeviceLimits, lists: _Waves) -> _Waves:
    """Return waves along columns and along K, and columns or lanes of a wave. One fiber per thread
    is expensive: the CPU gets the two with four waves in all."""
    return lists[:2] if device.target.kind == "cpu" else lists


_RINGS = ((16, 8, 4), (16, 4, 8), (16, 4, 4), (32, 4, 6), (32, 4, 4), (64, 2, 4))
"""Columns, waves along K, and buffers of each ring."""


def _ring_candidates(
    problem: GemmProblem, sizes: Sizes, device: DeviceLimits
) -> Iterator[SkinnyConfig]:
    """Yield configs for few rows with tensor cores and a ring of copies per wave."""
    if not has_unit(device.target, "mma", problem.a.dtype) or device.target.kind == "cpu":
        return
    unit, vector = UNITS["mma"], VECTOR_BYTES // problem.a.item_bytes
    rows = max(unit.n, 1 << (sizes.m - 1).bit_length())
    for cols, waves, stages in _RINGS:
        ring = SkinnyConfig(rows, cols, 1, waves, vector, vector, unit="mma", stages=stages)
        yield ring
        blocks = -(-sizes.n // cols) * sizes.batch
        if 2 * blocks <= device.compute_units:
            yield replace(ring, split_k=min(4, device.compute_units // blocks))


def _unit_candidates(
    problem: GemmProblem, sizes: Sizes, device: DeviceLimits
) -> Iterator[SkinnyConfig]:
    """Yield configs for few rows with a matrix unit, and as many steps as registers permit."""
    target, form = device.target, canonical(problem)
    name = _skinny_unit(target, problem.a.dtype)
    if name is None:
        return
    unit, item = UNITS[name], problem.a.item_bytes
    rows = max(unit.n, 1 << (sizes.m - 1).bit_length())
    for config in _unit_arrangements(unit, name, form.right, rows):
        depth = config.vec_b if form.right.k_fast else unit.terms(item)
        vec_a = min(form.left.vector, depth) if form.left.k_fast else 1
        fitting = replace(config, vec_a=vec_a)
        while fitting.unroll > 1 and device_defect(fitting, problem, device) is not None:
            fitting = replace(fitting, unroll=fitting.unroll // 2)
        yield fitting
        blocks = -(-sizes.n // (config.cols * config.waves_n)) * sizes.batch
        if 2 * blocks <= device.compute_units:
            yield replace(fitting, split_k=min(4, device.compute_units // blocks))


def _skinny_unit(target: Target, dtype: str) -> UnitName | None:
    """Return the unit that reads each value once without a ring; None if the type has none."""
    family: dict[str, UnitName] = {"mma": "mma", "mfma": "mfma16", "wmma_gfx12": "wmma_gfx12"}
    unit = family.get(target.matrix)
    if unit is None or dtype not in ("float16", "bfloat16"):
        return None
    return best_unit(target, dtype, unit)


def _unit_arrangements(
    unit: MatrixUnit, name: UnitName, right: Side, rows: int
) -> Iterator[SkinnyConfig]:
    if right.k_fast:
        for waves_n, waves_k, tiles, unroll in ((1, 8, 1, 4), (1, 4, 1, 8), (1, 8, 2, 2)):
            cols = tiles * unit.m
            yield SkinnyConfig(rows, cols, waves_n, waves_k, 1, right.vector, unroll, name)
        return
    for waves_k, vector, unroll in ((8, 8, 2), (8, 4, 4), (4, 4, 4)):
        cols = vector // unit.lines * unit.m
        if vector <= right.vector:
            yield SkinnyConfig(rows, cols, 1, waves_k, 1, vector, unroll, name)


_ON_THE_WAY = 48 << 10
"""Bytes in flight for a compute unit: 4.8 TB/s for a microsecond over 132 are 36 KiB each."""
_HALF_RATE = 2 << 10
"""Bytes in flight with which a compute unit would have half of its share of the bandwidth."""


def plain_cost(config: SkinnyConfig, sizes: Sizes, device: DeviceLimits) -> tuple[float, int, int]:
    """Return how far the waves are from filling the device (eight per compute unit hide the memory
    latency), then how often the rows are read again, then the size of a block."""
    waves = -(-sizes.n // config.cols) * config.waves_k * sizes.batch
    target = 8 * device.compute_units
    return max(1.0, target / waves), -config.cols, config.waves


def unit_cost(config: SkinnyConfig, sizes: Sizes, device: DeviceLimits) -> float:
    """Estimate the relative time: the bytes in flight, how evenly blocks fill the device, how often
    the rows are read, and the cost of a second kernel."""
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
    """Estimate the time as `_stream_cost` does."""
    line = 128  # bytes of K of a line in a buffer
    stage = config.waves * (config.rows + config.cols) * line
    ahead = (config.stages - 1) * config.waves * config.cols * line
    k = config.stages * config.waves_k * line // item
    cols = config.cols * config.waves_n
    return _stream_cost(cols, config.split_k, stage * config.stages, ahead, k, sizes, device)


def tiled_cost(config: GemmConfig, item: int, sizes: Sizes, device: DeviceLimits) -> float:
    """Estimate the time as `_stream_cost` does; missing rows still take room and instructions, and
    a second tile of rows reads the right factor again."""
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
    """Estimate the relative time of a product with few rows, which is that of reading the right
    factor.

    A block has `cols` columns and a ring of `ring` bytes that holds `k` products of each; `ahead`
    bytes of the right factor are in flight. Fitted to an H200: the number of compute units with a
    block, the bytes in flight to each, how often the rows are read (twice as expensive when blocks
    are no longer in step), the rings that further rounds of blocks refill, and a second kernel that
    reads the parts' sums.
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


_CACHE = 4
"""The approximate bandwidth of L2 over memory; only the order of magnitude matters."""
_LAUNCH_BYTES = 4 << 20
"""Bytes from memory in the time of an unnecessary kernel launch: some 2 us."""


def refitted(
    config: GemmConfig | SkinnyConfig, problem: GemmProblem, offered: GemmProblem
) -> GemmConfig | SkinnyConfig:
    """Return a config chosen for `offered` with the vectors that `problem` permits, which loads its
    factors differently. Raises ConfigError if another arrangement would be needed."""
    form, old = canonical(problem), canonical(offered)
    vec_a, vec_b = min(config.vec_a, form.left.vector), min(config.vec_b, form.right.vector)
    if isinstance(config, GemmConfig):
        return replace(config, vec_a=vec_a, vec_b=vec_b)
    if (form.left.k_fast, form.right.k_fast) != (old.left.k_fast, old.right.k_fast):
        raise ConfigError("the factors lie the other way round")
    if not form.right.k_fast:  # as many lanes side by side
        cols = config.cols // config.vec_b * vec_b
        return replace(config, vec_a=vec_a, vec_b=vec_b, cols=cols)
    if form.left.k_fast:
        vec_a = vec_b = min(vec_a, vec_b)
    return replace(config, vec_a=vec_a, vec_b=vec_b)


def pays(config: Any, problem: GemmProblem, hint: Callable[[Expr], int] = int) -> bool:
    """Return whether loading a factor's sources, again for each tile, costs less than writing the
    factor once. `config` is one of ours, in any language; `hint` guesses dynamic sizes."""
    sizes = problem.sizes(hint)
    return all(
        (times - 1) * (stored - plain) / _CACHE <= stored + plain + _LAUNCH_BYTES
        for stored, plain, times in _traffic(config, problem, sizes, hint)
    )


def _traffic(
    config: Any,
    problem: GemmProblem,
    sizes: Sizes,
    hint: Callable[[Expr], int],
) -> list[tuple[int, int, int]]:
    """Return for each computed factor: its sources' bytes, its own bytes, and its loads."""
    rows, cols = (sizes.n, sizes.m) if problem.flipped else (sizes.m, sizes.n)
    tall, wide = _block(config)
    form = canonical(problem)
    factors = []
    for side, lines, times in (
        (form.left, rows, -(-cols // wide)),
        (form.right, cols, -(-rows // tall)),
    ):
        if side.prologue is not None:
            operands = [source.operand for source in side.prologue.sources]
            stored = sum(math.prod(map(hint, x.sizes)) * x.item_bytes for x in operands)
            own = sizes.batch * lines * sizes.k * side.operand.item_bytes
            factors.append((stored, own, times))
    return factors


def _block(config: Any) -> tuple[int, int]:
    """Return the rows and columns of the result that a block computes."""
    if isinstance(config, SkinnyConfig):
        return config.rows, config.cols * config.waves_n
    return config.block_m, config.block_n
