"""Which configs of the direct convolution are offered: candidates by shape, in the order of a
count. Nothing is compiled or measured here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from backend.templates.config import DirectConfig
from backend.templates.convolution import ConvProblem, Window
from backend.templates.direct import SIDE, direct_defect, halo, held, neighbours, run_of, seen_by
from backend.templates.legality import DeviceLimits, device_defect, device_of, lds_bytes
from backend.templates.operand import VECTOR_BYTES
from backend.templates.problem import GemmProblem, Sizes, canonical
from backend.templates.units import UnitName, has_unit, wave_of
from backend.toolchain.target import Target

_FEW = 32
"""Channels and filters of a group up to which a tile of the product would be empty mostly."""
_FMA_CHANNELS = 8
"""Channels of a group up to which plain FMA keeps up with the memory beside a matrix unit."""


def takes_direct(problem: GemmProblem) -> bool:
    """Whether the groups of a joined convolution are so small that the product wastes its tiles."""
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
    """At most `budget` configs for a joined convolution, the most promising first; maybe none.

    `sizes` are those of `problem`, guesses where they are dynamic. Raises ConfigError for an
    architecture that is not known.
    """
    if not takes_direct(problem):
        return ()
    device = device_of(target, compute_units)
    found = [
        config
        for config in dict.fromkeys(_candidates(problem, device))
        if direct_defect(config, problem) is None and device_defect(config, problem, device) is None
    ]
    found.sort(key=lambda config: _cost(config, problem, sizes, device))
    return tuple(_by_turns(found)[:budget])


def _candidates(problem: GemmProblem, device: DeviceLimits) -> Iterator[DirectConfig]:
    window = _window(problem)
    # Only NVIDIA's copies run beside what multiplies.
    streams = device.target.kind == "cuda"
    units: list[UnitName] = ["fma"]
    matrix = _unit(device.target, problem.a.dtype)
    if matrix is not None:
        units = [matrix, "fma"] if window.channels <= _FMA_CHANNELS else [matrix]
    for unit in units:
        for tile_h, tile_w in _tiles(window, device):
            for cols in (16, 32, 64, 128):
                yield from _of_tile(problem, unit, tile_h, tile_w, cols, streams)


def _unit(target: Target, dtype: str) -> UnitName | None:
    """The matrix unit with 16 channels an instruction; None where there is none for the type."""
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
    """Rows and columns of places, most of which are there; fibers of a CPU are dear."""
    high, wide = _places(window)
    if device.target.kind == "cpu":
        yield 4, 8
        return
    for tile_w in (7, 8, 14, 16, 28, 32, 56):
        for tile_h in (4, 7, 8, 14, 16):
            filled = high * wide / (-(-high // tile_h) * tile_h * -(-wide // tile_w) * tile_w)
            if 48 <= tile_h * tile_w <= 512 and filled > 0.6:
                yield tile_h, tile_w


def _of_tile(
    problem: GemmProblem, unit: UnitName, tile_h: int, tile_w: int, cols: int, streams: bool
) -> Iterator[DirectConfig]:
    form, window, item = canonical(problem), _window(problem), problem.a.item_bytes
    places = tile_h * tile_w
    plans: list[tuple[int, int, int]]  # waves, each, run
    if unit == "fma":
        runs = [run for run in (8, 4, 2, 1) if _divides(run, window.filters)]
        plans = [
            (waves, each, run)
            for run in [run for run in runs if run * item <= VECTOR_BYTES][:2]
            for each in (4, 7, 8)
            for waves in (4, 8)
            if tile_w % each == 0 and places * cols // (each * run) >= 32 * waves
        ]
    else:
        tiles = places // SIDE
        plans = [
            (waves, each, 1)
            for waves in (4, 7, 8)
            for each in (1, 2, 4, 7)
            if tiles % each == 0 and tiles // each * (cols // SIDE) % waves == 0
        ]
    for waves, each, run in plans:
        config = DirectConfig(tile_h, tile_w, cols, waves, each, run, unit)
        vec_a, vec_c = min(form.left.vector, VECTOR_BYTES // item), 1
        while held(config, window) % vec_a:
            vec_a //= 2
        while 2 * vec_c <= min(form.out_vector, run_of(config)):
            vec_c *= 2
        vec_b = neighbours(window, form.right.vector)
        config = replace(config, vec_a=vec_a, vec_b=vec_b, vec_c=vec_c)
        yield config
        if streams:
            for tiles in (2, 4):
                if tile_h * tiles <= _places(window)[0] + tile_h // 2:
                    yield replace(config, tiles=tiles)


def _places(window: Window) -> tuple[int, int]:
    """Rows and columns of the result, guesses where they are dynamic."""
    high, wide = (int(n) if isinstance(n, int) or n.is_Integer else 56 for n in window.places)
    return high, wide


def _divides(run: int, filters: int) -> bool:
    return run % filters == 0 or filters % run == 0


def _window(problem: GemmProblem) -> Window:
    assert isinstance(problem, ConvProblem) and problem.window is not None
    return problem.window


def _cost(config: DirectConfig, problem: GemmProblem, sizes: Sizes, device: DeviceLimits) -> float:
    """Relative time: of what is read and computed, and of how many blocks a unit has."""
    window, item = _window(problem), problem.a.item_bytes
    high, wide = halo(config, window)
    places = config.tile_h * config.tile_w
    out = _places(window)
    tiles = -(-out[0] // (config.tile_h * config.tiles)) * -(-out[1] // config.tile_w)
    blocks = sizes.m / (out[0] * out[1]) * tiles * -(-sizes.n // config.cols)
    read = high * wide * held(config, window) * item + places * config.cols * item
    points = window.kernel[0] * window.kernel[1]
    if config.unit == "fma":
        products = points * window.channels * places * config.cols
        clocks = products / 60 * (1 + 1 / config.each + 1 / config.run)
    else:
        steps = max(SIDE, seen_by(SIDE, window)) // SIDE
        fragments = places // SIDE * (config.cols // SIDE) * points * steps
        clocks = fragments * 4 * (1 + 1 / config.each)
    threads = config.waves * wave_of(device.target, config.unit)
    fit = max(1, device.dynamic_lds_bytes // lds_bytes(config, problem))
    fit = min(fit, 2048 // threads)
    rounds = -(-blocks // (fit * device.compute_units))
    longer, shorter = max(clocks, read / 16), min(clocks, read / 16)
    # Some blocks load while others multiply, and so does one of several tiles.
    return float(rounds * fit * (config.tiles * longer + shorter / fit + 300))


def _by_turns(found: list[DirectConfig]) -> list[DirectConfig]:
    """One with a single tile, one with several, and so on: which is faster only a run tells."""
    single = [config for config in found if config.tiles == 1]
    several = [config for config in found if config.tiles > 1]
    pairs = itertools.zip_longest(single, several)
    return [config for pair in pairs for config in pair if config is not None]
