"""The offered configs of the direct convolution: candidates by shape, ordered by an estimate.
Nothing is compiled or measured here."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from backend.templates.config import DirectConfig, UnitName, has_unit, wave_of
from backend.templates.convolution import (
    SIDE,
    ConvProblem,
    Window,
    direct_run,
    halo,
    held,
    neighbours,
    seen_by,
    whole_groups,
    window_of,
)
from backend.templates.legality import (
    DeviceLimits,
    config_defect,
    device_defect,
    device_limits,
    lds_bytes,
)
from backend.templates.operand import VECTOR_BYTES
from backend.templates.problem import GemmProblem, Sizes, canonical
from backend.toolchain.target import Target

_FEW = 32
"""The maximum channels and filters of a group that leave a product's tile mostly empty."""
_FMA_CHANNELS = 8
"""The maximum channels of a group for which plain FMA keeps up with memory."""

_NEAR = 2.0
"""The maximum estimated time, relative to the best, of kinds that are among the first."""
_FMA = 50
"""Products per clock of a unit of the device, beside a thread's reads for them."""


def takes_direct(problem: GemmProblem) -> bool:
    """Return whether the groups of a joined convolution are too small for the product's tiles."""
    window = problem.window if isinstance(problem, ConvProblem) else None
    if window is None or problem.batched or problem.flipped:
        return False
    return window.channels <= _FEW and window.filters <= _FEW and window.filters < int(problem.n)


def direct_configs(
    problem: GemmProblem,
    target: Target,
    sizes: Sizes,
    budget: int = 8,
    compute_units: int | None = None,
) -> tuple[DirectConfig, ...]:
    """Return at most `budget` configs for a joined convolution, most promising first; maybe none.

    `sizes` are those of `problem`, guesses if they are dynamic. Raises ConfigError for an unknown
    architecture.
    """
    if not takes_direct(problem):
        return ()
    device = device_limits(target, compute_units)
    kinds: dict[tuple[str, bool], list[_Plan]] = {}
    for plan in sorted(_plans(problem, sizes, device), key=lambda plan: plan.cost):
        kinds.setdefault((plan.block.unit, plan.tiles > 1), []).append(plan)
    least = min((plans[0].cost for plans in kinds.values()), default=0.0)
    near = [kind for kind, plans in kinds.items() if plans[0].cost <= _NEAR * least]
    far = [plan for kind, plans in kinds.items() if kind not in near for plan in plans]
    near.sort(key=lambda kind: kind[1])
    # Near ones alternate: only a run shows which is faster.
    turns = itertools.zip_longest(*(_legal(kinds[kind], problem, device) for kind in near))
    alternating = (config for turn in turns for config in turn if config is not None)
    return tuple(
        itertools.islice(itertools.chain(alternating, _legal(far, problem, device)), budget)
    )


def _legal(
    plans: Iterable[_Plan], problem: GemmProblem, device: DeviceLimits
) -> Iterator[DirectConfig]:
    """Yield the legal configs in order; few are checked, since that costs more than estimating."""
    for plan in plans:
        config = _config(plan, problem)
        if not (config_defect(config, problem) or device_defect(config, problem, device)):
            yield config


class _Plan(NamedTuple):
    """A config without vector widths, and its relative time."""

    cost: float
    block: DirectConfig
    waves: int
    each: int
    run: int
    tiles: int


def _plans(problem: GemmProblem, sizes: Sizes, device: DeviceLimits) -> Iterator[_Plan]:
    window = window_of(problem)
    # Only NVIDIA's copies overlap with the products.
    streams = device.target.kind == "cuda"
    units: list[UnitName] = ["fma"]
    matrix = _unit(device.target, problem.a.dtype)
    if matrix is not None:
        units = [matrix, "fma"] if window.channels <= _FMA_CHANNELS else [matrix]
    for unit in units:
        for tile_h, tile_w in _tiles(window, device):
            for cols in (16, 32, 64, 128):
                block = DirectConfig(tile_h, tile_w, cols, 1, 1, 1, unit)
                yield from _of_block(block, problem, sizes, device, streams)


def _unit(target: Target, dtype: str) -> UnitName | None:
    """Return the matrix unit with 16 channels per instruction for the type, or None."""
    if target.kind == "cpu":
        return "mfma16"
    names: dict[str, UnitName] = {
        "mma": "mma",
        "mfma": "mfma16",
        "wmma_gfx11": "wmma_gfx11",
        "wmma_gfx12": "wmma_gfx12",
    }
    unit = names.get(target.matrix)
    return unit if unit is not None and has_unit(target, unit, dtype) else None


def _tiles(window: Window, device: DeviceLimits) -> Iterator[tuple[int, int]]:
    """Yield rows and columns of positions, most of which exist; a CPU's fibers are expensive."""
    high, wide = _places(window)
    if device.target.kind == "cpu":
        yield 4, 8
        return
    for tile_w in (7, 8, 14, 16, 28, 32, 56):
        for tile_h in (4, 7, 8, 14, 16):
            filled = high * wide / (-(-high // tile_h) * tile_h * -(-wide // tile_w) * tile_w)
            if 48 <= tile_h * tile_w <= 512 and filled > 0.6:
                yield tile_h, tile_w


def _of_block(
    block: DirectConfig, problem: GemmProblem, sizes: Sizes, device: DeviceLimits, streams: bool
) -> Iterator[_Plan]:
    window = window_of(problem)
    most = _places(window)[0] + block.tile_h // 2
    many = [
        tiles for tiles in (1, 2, 4) if tiles == 1 or (streams and block.tile_h * tiles <= most)
    ]
    lds = [lds_bytes(replace(block, tiles=tiles), problem) for tiles in (1, 2)[: len(many)]]
    work = _work(block, problem)
    blocks = [_blocks(block, tiles, window, sizes) for tiles in many]
    for waves, each, run in _shares(block, problem):
        threads = waves * wave_of(device.target, block.unit)
        clocks, read = work.clocks(threads, each, run), work.read / 16
        longer, shorter = max(clocks, read), min(clocks, read)
        for tiles, count in zip(many, blocks, strict=True):
            fit = min(max(1, device.dynamic_lds_bytes // lds[tiles > 1]), 2048 // threads)
            rounds = -(-count // (fit * device.compute_units))
            # Some blocks load while others multiply, as do the tiles of one block.
            cost = float(rounds * fit * (tiles * longer + shorter / fit + 300))
            yield _Plan(cost, block, waves, each, run, tiles)


def _shares(block: DirectConfig, problem: GemmProblem) -> Iterator[tuple[int, int, int]]:
    """Yield the number of waves, and the `each` and `run` of a thread or wave."""
    window, places = window_of(problem), block.tile_h * block.tile_w
    if block.unit != "fma":
        tiles = places // SIDE
        for waves, each in itertools.product((4, 7, 8), (1, 2, 4, 7)):
            if tiles % each == 0 and tiles // each * (block.cols // SIDE) % waves == 0:
                yield waves, each, 1
        return
    most = VECTOR_BYTES // problem.a.item_bytes
    runs = [run for run in (8, 4, 2, 1) if whole_groups(run, window) and run <= most][:2]
    for run, each, waves in itertools.product(runs, (4, 7, 8), (4, 8)):
        if block.tile_w % each == 0 and places * block.cols // (each * run) >= 32 * waves:
            yield waves, each, run


def _config(plan: _Plan, problem: GemmProblem) -> DirectConfig:
    """Return the config with the widest possible accesses."""
    form, window, item = canonical(problem), window_of(problem), problem.a.item_bytes
    _, block, waves, each, run, tiles = plan
    config = replace(block, waves=waves, each=each, run=run, tiles=tiles)
    vec_a, vec_c = min(form.left.vector, VECTOR_BYTES // item), 1
    while held(config, window) % vec_a:
        vec_a //= 2
    while 2 * vec_c <= min(form.out_vector, direct_run(config)):
        vec_c *= 2
    vec_b = neighbours(window, form.right.vector)
    return replace(config, vec_a=vec_a, vec_b=vec_b, vec_c=vec_c)


def _places(window: Window) -> tuple[int, int]:
    """Return rows and columns of the result, guesses if they are dynamic."""
    high, wide = (int(n) if isinstance(n, int) or n.is_Integer else 56 for n in window.places)
    return high, wide


class _Work(NamedTuple):
    """The work of a tile: bytes read and written, and products: individual ones with FMA, else
    products of fragments. `items` have one position and one filter."""

    read: int
    multiplied: int
    items: int
    unit: UnitName

    def clocks(self, threads: int, each: int, run: int) -> float:
        if self.unit != "fma":
            return self.multiplied * 4 * (1 + 1 / each)
        shares = self.items / (each * run)
        idle = -(-shares // threads) * threads / shares  # in the last round some are idle
        return self.multiplied / _FMA * (1 + 1 / each + 1 / run) * idle


def _work(block: DirectConfig, problem: GemmProblem) -> _Work:
    window, item = window_of(problem), problem.a.item_bytes
    (high, wide), places = halo(block, window), block.tile_h * block.tile_w
    read = high * wide * held(block, window) * item + places * block.cols * item
    points = window.kernel[0] * window.kernel[1]
    if block.unit == "fma":
        products = points * window.channels * places * block.cols
        return _Work(read, products, places * block.cols, block.unit)
    steps = max(SIDE, seen_by(SIDE, window)) // SIDE
    fragments = places // SIDE * (block.cols // SIDE) * points * steps
    return _Work(read, fragments, places * block.cols, block.unit)


def _blocks(block: DirectConfig, tiles: int, window: Window, sizes: Sizes) -> float:
    """Return the number of blocks for the whole result."""
    out = _places(window)
    each = -(-out[0] // (block.tile_h * tiles)) * -(-out[1] // block.tile_w)
    return sizes.m / (out[0] * out[1]) * each * -(-sizes.n // block.cols)
