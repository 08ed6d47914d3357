"""A convolution as a product of matrices: its left factor is gathered from the image while loading,
and is never in memory.

A row of that factor is a position of the result, (image, row, column), and K goes over the points
of the kernel and the channels. The right factor is the weight, in which each filter is contiguous
as one line of K. So everything about products applies, except for the loads on one side.

A direct convolution multiplies from LDS: a block copies the part of the image that its positions
see once, with the weights of its filters. Its rules are also here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import sympy

from backend.errors import UnsupportedProblemError
from backend.model.options import Options, convolution_numbers
from backend.templates.config import UNITS, DirectConfig, GemmConfig
from backend.templates.operand import (
    LARGEST_SIZE,
    VECTOR_BYTES,
    Expr,
    Operand,
    SizeArg,
    is_number,
    vector_width,
)
from backend.templates.problem import Activation, GemmProblem, canonical

Order = Literal["rsc", "crs"]
"""The order of K, slowest first: row `r` and column `s` of the kernel, channel `c`."""


@dataclass(frozen=True, slots=True)
class Window:
    """How the kernel moves over the image: pairs are (rows, columns). `image` is N x C x H x W,
    `channels` and `filters` are those of one group; `places` are the rows and columns of a result.

    With `whole`, a batch of the product is a group, whose rows continue from one image to the next;
    else it is an image. A joined convolution has no batch: columns are the filters of all groups.
    """

    image: Operand
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    channels: int
    filters: int
    places: tuple[Expr, Expr]
    order: Order
    whole: bool

    @property
    def reach(self) -> Expr:
        """The number of elements from the first to the last that a position may see."""
        n, _, h, w = self.image.strides
        high, wide = (
            size + 2 * p for size, p in zip(self.image.sizes[2:], self.padding, strict=True)
        )
        return self.image.sizes[0] * n + high * h + wide * w

    def size_args(self) -> tuple[SizeArg, ...]:
        """The arguments about the image and the result's positions that loads need."""
        image = zip(("image_n", "image_c", "image_h", "image_w"), self.image.strides, strict=True)
        sizes = zip(("height", "width"), self.image.sizes[2:], strict=True)
        places = zip(("out_height", "out_width"), self.places, strict=True)
        return (
            *(SizeArg(name, value) for name, value in image),
            *(SizeArg(name, value, most=LARGEST_SIZE) for name, value in (*sizes, *places)),
        )


@dataclass(frozen=True, slots=True)
class ConvProblem(GemmProblem):
    """The product that a convolution is. The strides of `a` only show which of its dimensions is
    contiguous, and how many elements are loaded at once; `window` has their locations."""

    window: Window | None = None

    def size_args(self) -> tuple[SizeArg, ...]:
        assert self.window is not None
        return (*GemmProblem.size_args(self), *self.window.size_args())


_GRID, _REDUCED = 0xFFFFFFFF, 4
"""The maximum threads of a launch on AMD, and the elements that one thread adds up."""


def one_launch(
    problem: GemmProblem, config: GemmConfig | DirectConfig
) -> tuple[tuple[Expr, int], ...]:
    """Return the limits of a single launch: images are not contiguous like the lines of a
    matrix, so no part can be left for a second launch. A pipeline counts positions of an image
    in vectors."""
    rows, cols = (problem.n, problem.m) if problem.flipped else (problem.m, problem.n)
    if isinstance(config, DirectConfig):
        assert isinstance(problem, ConvProblem) and problem.window is not None
        high, wide = problem.window.places
        block_h = config.tile_h * config.tiles
        edges = (high + block_h - 1, wide + config.tile_w - 1, cols + config.cols - 1)
        covered = math.prod((problem.window.image.sizes[0], *edges))
        most = _GRID // max(256, 64 * config.waves) * block_h * config.tile_w * config.cols
        return (rows, LARGEST_SIZE), (cols, LARGEST_SIZE), (covered, most)
    covered = math.prod((rows + config.block_m - 1, cols + config.block_n - 1, problem.batch))
    threads = max(256, 64 * config.waves)
    most = _GRID // threads * config.block_m * config.block_n
    limits = [(rows, LARGEST_SIZE), (cols, LARGEST_SIZE), (covered * config.split_k, most)]
    if config.pipelined and isinstance(problem, ConvProblem) and problem.window is not None:
        vector = config.vec_b if problem.flipped else config.vec_a
        limits.append((problem.window.reach, LARGEST_SIZE * vector))
    if config.split_k > 1:
        limits.append((math.prod((rows, cols + 3, problem.batch)), _GRID // 256 * 256 * _REDUCED))
    return tuple(limits)


def convolution_problem(
    image: Operand,
    weight: Operand,
    out: Operand,
    bias: Operand | None,
    options: Options,
    activation: Activation = "none",
    joined: bool = False,
) -> ConvProblem:
    """Build `out` (N, O, P, Q) of `image` (N, C, H, W) and `weight` (O, C / groups, R, S).

    With `joined` the filters of all groups are columns of one product, each of which sees the
    channels of its own group, as the direct convolution requires. Raises UnsupportedProblemError
    for other than two spatial dimensions, for weights whose filters are not contiguous, and for
    results that are not matrices.
    """
    values = convolution_numbers(options)
    for name in ("transposed", "output_padding"):
        if any(values.get(name, (0,))):
            raise UnsupportedProblemError(f"a convolution with {name}")
    if not len(image.sizes) == len(weight.sizes) == len(out.sizes) == 4:
        raise UnsupportedProblemError("a convolution of other than two dimensions")
    (groups,) = values.get("groups", (1,))
    filters, channels, *kernel = (_number(weight, size) for size in weight.sizes)
    order, line = _filters(weight)
    whole = _merged(out, (0, 2, 3))
    places = whole if whole is not None else _merged(out, (2, 3))
    if places is None:
        raise UnsupportedProblemError(f"out: its places are not contiguous (strides {out.strides})")
    if whole is None and (joined or groups > 1):
        raise UnsupportedProblemError("groups of several images whose channels are not last")
    window = Window(
        image,
        (kernel[0], kernel[1]),
        _pair(values.get("stride", (1,))),
        _pair(values.get("padding", (0,))),
        _pair(values.get("dilation", (1,))),
        channels,
        filters // groups,
        (out.sizes[2], out.sizes[3]),
        order,
        whole is not None,
    )
    n, _, high, wide = out.sizes
    each = filters // groups
    rows, k, cols = high * wide, channels * kernel[0] * kernel[1], filters if joined else each
    gather = _pixels(image) if joined else _gathered(image, channels, order)
    lead: tuple[Expr, ...]
    leads: tuple[tuple[Expr, ...], ...]
    if whole is None:
        lead, leads = (n,), ((0,), (0,), (out.strides[0],))
    elif groups > 1 and not joined:
        rows, lead = n * rows, (groups,)
        leads = ((0,), (each * line,), (each * out.strides[1],))
    else:
        rows, lead, leads = n * rows, (), ((), (), ())

    def matrix(operand: Operand, shape: tuple[Expr, ...], strides: tuple[Expr, ...]) -> Operand:
        return replace(operand, sizes=(*lead, *shape), strides=strides)

    return ConvProblem(
        matrix(image, (rows, k), (*leads[0], *gather)),
        matrix(weight, (k, cols), (*leads[1], 1, line)),
        matrix(out, (rows, cols), (*leads[2], places, out.strides[1])),
        bias and _bias(bias, lead if whole is not None else (), each),
        activation,
        window=window,
    )


def _bias(bias: Operand, groups: Sequence[Expr], each: int) -> Operand:
    if not groups:
        return bias
    step = bias.strides[0]
    return replace(bias, sizes=(*groups, 1, each), strides=(each * step, 0, step))


def _number(operand: Operand, size: Expr) -> int:
    if isinstance(size, int) or size.is_Integer:
        return int(size)
    raise UnsupportedProblemError(f"{operand.name}: a size that is not known: {size}")


def _pair(numbers: Sequence[int]) -> tuple[int, int]:
    """Return a pair; a single number applies to both dimensions."""
    return numbers[0], numbers[-1]


def _merged(operand: Operand, dims: Sequence[int]) -> Expr | None:
    """Return the stride of these dimensions merged into one; None if they cannot be merged."""
    inner: Expr | None = None
    extent: Expr = 1
    for dim in reversed(dims):
        size, stride = operand.sizes[dim], operand.strides[dim]
        if is_number(size, 1):
            continue
        if inner is None:
            inner, extent = stride, stride * size
        elif is_number(sympy.expand(stride - extent), 0):
            extent = extent * size
        else:
            return None
    return 1 if inner is None else inner


def _filters(weight: Operand) -> tuple[Order, Expr]:
    """Return the order of a filter in memory, and the distance between filters."""
    orders: tuple[tuple[Order, tuple[int, ...]], ...] = (("rsc", (2, 3, 1)), ("crs", (1, 2, 3)))
    for order, dims in orders:
        if (step := _merged(weight, dims)) is not None and is_number(step, 1):
            return order, weight.strides[0]
    raise UnsupportedProblemError(
        f"{weight.name}: its filters are not contiguous (strides {weight.strides})"
    )


def _gathered(image: Operand, channels: int, order: Order) -> tuple[Expr, Expr]:
    """Return strides that represent the gathered factor: along K, with vectors of contiguous
    channels of a pixel, if there are any; else along rows, one element at a time."""
    n, c, h, w = image.strides
    vector = vector_width(image, (n, h, w, channels))
    if order == "rsc" and is_number(c, 1) and vector > 1:
        return vector, 1
    return 1, _ODD


def _pixels(image: Operand) -> tuple[Expr, Expr]:
    """Do what `_gathered` does, for the channels of all groups."""
    n, c, h, w = image.strides
    vector = vector_width(image, (n, h, w)) if is_number(c, 1) else 1
    return (vector, 1) if vector > 1 else (1, _ODD)


_ODD = 3
"""A distance at which no vector is aligned."""


SIDE = 16
"""Positions, filters and channels of a matrix tile."""


def direct_defects(config: DirectConfig, problem: GemmProblem) -> Iterator[str]:
    """Yield the rules that the config breaks for this problem on any target."""
    window, form, item = window_of(problem), canonical(problem), problem.a.item_bytes
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
        yield "a line of the tile is not a multiple of a thread's places"
    elif not whole_groups(config.run, window) or config.cols % config.run:
        yield "a thread's filters are whole groups, or a part of one"
    elif config.run & (config.run - 1):
        yield "run is not a power of two"
    if not whole_groups(config.cols, window):
        yield "a block's filters are whole groups, or a part of one"
    elif held(config, window) % config.vec_a:
        yield "vec_a: a block's channels are not a multiple"
    for name, width, most in (
        ("vec_a", config.vec_a, form.left.vector),
        ("vec_b", config.vec_b, neighbours(window, form.right.vector)),
        ("vec_c", config.vec_c, min(form.out_vector, direct_run(config))),
    ):
        if width < 1 or width & (width - 1) or width > most:
            yield f"{name}: a power of two up to {most}"
    if max(config.vec_a, config.vec_b) * item > VECTOR_BYTES:
        yield "an access has 16 bytes at most"


def _unit_defects(config: DirectConfig, problem: GemmProblem) -> Iterator[str]:
    unit, window, item = UNITS[config.unit], window_of(problem), problem.a.item_bytes
    if not unit.multiplies(problem.a.dtype) or item != 2:
        yield f"{config.unit} does not multiply {problem.a.dtype}"
    if config.unit == "wgmma" or (unit.m, unit.k(item)) != (SIDE, SIDE) or SIDE % unit.n:
        yield f"{config.unit}: matrix tiles have 16 places, 16 filters and 16 channels"
    if config.tile_h * config.tile_w % (SIDE * config.each):
        yield "the tile is not a multiple of a wave's places"
    if config.cols % SIDE or not whole_groups(SIDE, window):
        yield "16 filters are whole groups, or a part of one"
        return
    seen = seen_by(SIDE, window)
    if SIDE % seen and seen % SIDE:
        yield "the channels that 16 filters see are neither a multiple nor a divisor of 16"


def window_of(problem: GemmProblem) -> Window:
    assert isinstance(problem, ConvProblem) and problem.window is not None
    return problem.window


def neighbours(window: Window, vector: int) -> int:
    """Return the channels of a filter's point loaded at once, with `vector` elements per load."""
    while vector > 1 and (window.order != "rsc" or window.channels % vector):
        vector //= 2
    return vector


def whole_groups(filters: int, window: Window) -> bool:
    return filters % window.filters == 0 or window.filters % filters == 0


def seen_by(filters: int, window: Window) -> int:
    """Return the channels that `filters` neighbouring filters see: whole groups, or part of one."""
    return window.channels * max(1, filters // window.filters)


def direct_run(config: DirectConfig) -> int:
    """Return the neighbouring columns of the result that a lane stores."""
    unit = UNITS.get(config.unit)
    return config.run if unit is None else unit.run * (SIDE // unit.n)


def held(config: DirectConfig, window: Window) -> int:
    """Return the channels of a pixel in LDS."""
    seen = seen_by(config.cols, window)
    return seen if config.unit == "fma" else max(SIDE, seen)


def halo(config: DirectConfig, window: Window) -> tuple[int, int]:
    """Return the rows and columns of the image that a block's positions see."""
    tile = (config.tile_h, config.tile_w)
    sizes = zip(tile, window.stride, window.kernel, window.dilation, strict=True)
    high, wide = ((n - 1) * step + (size - 1) * apart + 1 for n, step, size, apart in sizes)
    return high, wide


def direct_lds_bytes(config: DirectConfig, problem: GemmProblem) -> int:
    """Return the exact LDS bytes of a block: the image, then the weights."""
    window, item = window_of(problem), problem.a.item_bytes
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
    """Estimate the registers of a thread without addresses: sums, weights, values of the image."""
    window = window_of(problem)
    if (unit := UNITS.get(config.unit)) is not None:
        sums = config.each * SIDE * SIDE // wave
        lines = config.each * max(1, unit.lines)
        return sums + lines + 4 * unit.terms(problem.a.item_bytes)
    part = config.run <= window.filters
    at_once = 4 if part and window.channels % 4 == 0 else window.channels
    seen = at_once if part else seen_by(config.run, window)
    word = problem.acc_bytes // 4
    return word * (config.each * config.run + window.kernel[1] * at_once * config.run + seen)
