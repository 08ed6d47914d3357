"""What the config of a direct convolution must obey, and what its kernel takes of a device.

A block brings what its places see of the image to LDS once, with the weights of its filters, and
multiplies from there.
"""

from __future__ import annotations

from collections.abc import Iterator

from backend.templates.config import DirectConfig
from backend.templates.convolution import ConvProblem, Window
from backend.templates.operand import VECTOR_BYTES
from backend.templates.problem import GemmProblem, canonical
from backend.templates.units import UNITS

SIDE = 16
"""Places, filters and channels of a matrix tile."""


def direct_defect(config: DirectConfig, problem: GemmProblem) -> str | None:
    """The first rule that the config breaks for this problem on any target; None if none."""
    return next(_defects(config, problem), None)


def _defects(config: DirectConfig, problem: GemmProblem) -> Iterator[str]:
    window, form, item = _window(problem), canonical(problem), problem.a.item_bytes
    tile = (config.tile_h, config.tile_w, config.tiles, config.cols)
    numbers = (*tile, config.waves, config.each, config.run)
    if any(number < 1 for number in numbers):
        yield "a size below 1"
        return
    if problem.batched or problem.flipped or not window.whole:
        yield "columns are the filters of all groups, side by side"
    if problem.alpha != 1 or problem.a_prologue is not None or problem.b_prologue is not None:
        yield "its factors are read as they are"
    if config.unit != "fma":
        yield from _unit_defects(config, problem)
    elif config.tile_w % config.each:
        yield "a line of the tile is no multiple of a thread's places"
    elif not _whole_groups(config.run, window) or config.cols % config.run:
        yield "a thread's filters are whole groups, or a part of one"
    elif config.run & (config.run - 1):
        yield "run is no power of two"
    if not _whole_groups(config.cols, window):
        yield "a block's filters are whole groups, or a part of one"
    elif held(config, window) % config.vec_a:
        yield "vec_a: a block's channels are no multiple of it"
    for name, width, most in (
        ("vec_a", config.vec_a, form.left.vector),
        ("vec_b", config.vec_b, neighbours(window, form.right.vector)),
        ("vec_c", config.vec_c, min(form.out_vector, run_of(config))),
    ):
        if width < 1 or width & (width - 1) or width > most:
            yield f"{name}: a power of two up to {most}"
    if max(config.vec_a, config.vec_b) * item > VECTOR_BYTES:
        yield "an access has 16 bytes at most"


def _unit_defects(config: DirectConfig, problem: GemmProblem) -> Iterator[str]:
    unit, window, item = UNITS[config.unit], _window(problem), problem.a.item_bytes
    if not unit.multiplies(problem.a.dtype) or item != 2:
        yield f"{config.unit} does not multiply {problem.a.dtype}"
    if config.unit == "wgmma" or (unit.m, unit.k(item)) != (SIDE, SIDE) or SIDE % unit.n:
        yield f"{config.unit}: matrix tiles have 16 places, 16 filters and 16 channels"
    if config.tile_h * config.tile_w % (SIDE * config.each):
        yield "the tile is no multiple of a wave's places"
    if config.cols % SIDE or not _whole_groups(SIDE, window):
        yield "16 filters are whole groups, or a part of one"
        return
    seen = seen_by(SIDE, window)
    if SIDE % seen and seen % SIDE:
        yield "the channels that 16 filters see are no multiple of 16, nor a divisor"


def _window(problem: GemmProblem) -> Window:
    assert isinstance(problem, ConvProblem) and problem.window is not None
    return problem.window


def neighbours(window: Window, vector: int) -> int:
    """Channels of a point of a filter that are loaded at once, where `vector` elements are."""
    while vector > 1 and (window.order != "rsc" or window.channels % vector):
        vector //= 2
    return vector


def _whole_groups(filters: int, window: Window) -> bool:
    return filters % window.filters == 0 or window.filters % filters == 0


def seen_by(filters: int, window: Window) -> int:
    """Channels that so many neighbouring filters see, which are whole groups or a part of one."""
    return window.channels * max(1, filters // window.filters)


def run_of(config: DirectConfig) -> int:
    """Neighbouring columns of the result that a lane stores."""
    unit = UNITS.get(config.unit)
    return config.run if unit is None else unit.run * (SIDE // unit.n)


def held(config: DirectConfig, window: Window) -> int:
    """Channels of a pixel in LDS."""
    seen = seen_by(config.cols, window)
    return seen if config.unit == "fma" else max(SIDE, seen)


def halo(config: DirectConfig, window: Window) -> tuple[int, int]:
    """Rows and columns of the image that a block's places see."""
    tile = (config.tile_h, config.tile_w)
    sizes = zip(tile, window.stride, window.kernel, window.dilation, strict=True)
    high, wide = ((n - 1) * step + (size - 1) * apart + 1 for n, step, size, apart in sizes)
    return high, wide


def lds_bytes(config: DirectConfig, problem: GemmProblem) -> int:
    """Of a block, exactly: the image, then the weights."""
    window, item = _window(problem), problem.a.item_bytes
    points, (high, wide) = window.kernel[0] * window.kernel[1], halo(config, window)
    pixel = held(config, window)
    if config.unit == "fma":
        weights = problem.acc_bytes * config.cols * points * window.channels
    else:
        steps = max(SIDE, seen_by(SIDE, window)) // SIDE
        pixel += SIDE // 2
        weights = item * config.cols * points * steps * SIDE
    image = -(-high * wide * pixel * item // VECTOR_BYTES) * VECTOR_BYTES
    return min(2, config.tiles) * image + weights


def values(config: DirectConfig, problem: GemmProblem, wave: int) -> int:
    """Registers of a thread, about, but for addresses: sums, weights, what is read of the image."""
    window = _window(problem)
    if (unit := UNITS.get(config.unit)) is not None:
        sums = config.each * SIDE * SIDE // wave
        lines = config.each * max(1, unit.lines)
        return sums + lines + 4 * unit.terms(problem.a.item_bytes)
    part = config.run <= window.filters
    at_once = 4 if part and window.channels % 4 == 0 else window.channels
    seen = at_once if part else seen_by(config.run, window)
    word = problem.acc_bytes // 4
    return word * (config.each * config.run + window.kernel[1] * at_once * config.run + seen)
