"""The rules for configs: those of the templates, then the limits of a device.

A kernel's resources, including registers, are estimated before any compile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from backend.errors import ConfigError
from backend.templates import convolution
from backend.templates.config import (
    UNITS,
    Config,
    DirectConfig,
    GemmConfig,
    MatrixUnit,
    SkinnyConfig,
    has_unit,
    wave_of,
)
from backend.templates.convolution import ConvProblem
from backend.templates.operand import VECTOR_BYTES
from backend.templates.problem import GemmProblem, GroupedProblem, Side, canonical
from backend.toolchain.target import GPU_ARCHES, Target

_ADDRESSES = 40
"""Registers for pointers, indices and the loop, as seen in compiled kernels."""


def lane_grid(wave: int) -> tuple[int, int]:
    """Return how the lanes of a wave divide its tile without matrix cores: rows by columns."""
    return (8, 8) if wave == 64 else (4, 8)


def piece(vector: int, item: int) -> int:
    """Return the elements that a thread copies at once; narrow ones by 16 bytes in registers."""
    return vector if vector * item >= 4 else VECTOR_BYTES // item


def registers(config: Config, problem: GemmProblem, wave: int) -> int:
    """Estimate the vector registers of a thread: sums, values in flight from memory, addresses."""
    item = problem.a.item_bytes
    if isinstance(config, DirectConfig):
        return convolution.values(config, problem, wave) + _ADDRESSES
    if isinstance(config, SkinnyConfig):
        if (unit := UNITS.get(config.unit)) is not None:
            return _skinny_unit_registers(config, unit, problem)
        return _skinny_registers(config, problem)
    word = problem.acc_bytes // 4
    sums = word * config.wave_m * config.wave_n // wave
    staged = (config.block_m + config.block_n) * config.block_k // (config.waves * wave)
    if config.pipelined:
        form = canonical(problem)
        sides = ((config.block_m, config.vec_a), (config.block_n, config.vec_b))
        held = sum(lines for lines, vector in sides if vector * item < 4) * config.block_k
        depth = 2 * VECTOR_BYTES // item  # of an instruction; the next one's come meanwhile
        depth = 8 if item == 8 else depth
        factors = 0 if config.unit == "wgmma" else 2 * (config.wave_m + config.wave_n) * depth
        values = factors // wave + held // (config.waves * wave)
        copies = sum(lines for lines, _ in sides) * config.block_k * item // VECTOR_BYTES
        places = min(16, copies // (config.waves * wave)) + (0 if form.left.k_fast else 8)
        if isinstance(problem, ConvProblem):  # where each is, and which rows and columns it has
            lines, vector = sides[problem.flipped]
            places += 2 * lines * config.block_k // (piece(vector, item) * config.waves * wave)
            places += 24 if vector * item < 4 else 0  # eight points of the kernel
        return sums + values * item // 4 + places + _ADDRESSES
    if (unit := UNITS.get(config.unit)) is not None:
        lanes = unit.wave // unit.groups  # each has a line
        values = (config.wave_m + config.wave_n) * config.kpack * unit.terms(item)
        loaded = (staged + values // min(lanes, unit.m)) * item // 4
        return sums + loaded + _unpacked(config, problem, unit, wave) + _ADDRESSES
    rows, cols = lane_grid(wave)
    factors = word * (config.wave_m // rows + config.wave_n // cols)
    return sums + staged * item // 4 + factors + _ADDRESSES


def _unpacked(config: GemmConfig, problem: GemmProblem, unit: MatrixUnit, wave: int) -> int:
    """Return the registers for bytes that RDNA and NVIDIA unpack on their way to LDS, if they are
    transposed or loaded in less than words, as seen in compiled kernels."""
    if problem.a.item_bytes > 1 or unit.family == "mfma":
        return 0
    turned = 2 if unit.family == "mma" else 4
    form = canonical(problem)
    sides = (
        (form.left.k_fast, config.vec_a, config.block_m),
        (form.right.k_fast, config.vec_b, config.block_n),
    )
    each = [
        0 if k_fast and v >= 4 else lines * (turned if v >= 4 else 4) for k_fast, v, lines in sides
    ]
    return sum(each) * config.block_k // (config.waves * wave)


def converted(config: Config, problem: GemmProblem, target: Target) -> int:
    """Return the additional registers if fp8 is multiplied as fp16, as with `mma` on Hopper: the
    compiler converts a whole step ahead."""
    if isinstance(config, DirectConfig) or config.unit != "mma" or config.stages < 3:
        return 0
    if not (target.arch.startswith("sm_90") and problem.a.dtype.startswith("float8")):
        return 0
    if isinstance(config, SkinnyConfig):
        values = (config.rows + config.cols) * 128
    else:
        values = (config.wave_m + config.wave_n) * config.block_k
    return 2 * values // (4 * target.wave)


def _skinny_registers(config: SkinnyConfig, problem: GemmProblem) -> int:
    """Return the registers of a skinny kernel: terms count as sums, to whose type they are
    converted; each row has its own address."""
    k_fast = canonical(problem).right.k_fast
    lane_cols = config.cols if k_fast else config.vec_b
    lane_k = config.vec_b if k_fast else config.vec_a
    terms = (config.rows + lane_cols) * lane_k
    values = config.rows * lane_cols + config.unroll * terms
    return problem.acc_bytes // 4 * values + 2 * config.rows + _ADDRESSES


def _skinny_unit_registers(config: SkinnyConfig, unit: MatrixUnit, problem: GemmProblem) -> int:
    """Return a skinny kernel's registers with a matrix unit: sums, and the terms of all steps."""
    item = problem.a.item_bytes
    k_fast = canonical(problem).right.k_fast
    depth = config.vec_b if k_fast else unit.terms(item)
    lines = config.cols // unit.m * unit.lines + config.rows // unit.n
    sums = config.rows * config.cols // unit.wave
    if config.stages > 1:  # the addresses of all lines, and factors of two instructions
        return sums + 3 * (config.rows + config.cols) // 2 + _ADDRESSES
    return sums + config.unroll * lines * depth * item // 4 + 2 * lines + _ADDRESSES


def config_defect(config: Config, problem: GemmProblem) -> str | None:
    """Return the first rule that a config breaks for this problem on any target; None if none."""
    if isinstance(config, DirectConfig):
        return next(convolution.direct_defects(config, problem), None)
    if isinstance(config, SkinnyConfig):
        return next(_skinny_defects(config, problem), None)
    return next(_gemm_defects(config, problem), None)


def _gemm_defects(config: GemmConfig, problem: GemmProblem) -> Iterator[str]:
    form = canonical(problem)
    item = form.left.operand.item_bytes
    yield from _positive(
        config.block_m,
        config.block_n,
        config.block_k,
        config.stages,
        config.group_m,
        config.xcds,
    )
    if isinstance(problem, GroupedProblem) and config.split_k != 1:
        yield "split_k: groups of rows are not known where K would be split"
    if config.block_m % config.wave_m or config.block_n % config.wave_n:
        yield "the block is not a multiple of the wave's tile"
    if (unit := UNITS.get(config.unit)) is not None:
        if not unit.multiplies(problem.a.dtype):
            yield f"{config.unit} does not multiply {problem.a.dtype}"
        if (
            config.unit == "wgmma"
            and problem.a.dtype.startswith("float8")
            and not problem.fast_sums
        ):
            yield "wgmma: its sums of fp8 have some 14 bits"
        yield from _unit_defects(config, unit, item)
    else:
        yield from _fma_defects(config)
    if config.pipelined:
        yield from _pipeline_defects(config, problem)
    elif config.unit == "wgmma":
        yield "stages: a warpgroup multiplies what asynchronous copies bring, 3 or more"
    yield from _vector_defects("vec_a", config.vec_a, form.left.vector)
    yield from _vector_defects("vec_b", config.vec_b, form.right.vector)
    yield from _vector_defects("vec_c", config.vec_c, form.out_vector)
    if config.vec_c > run_length(config, item):
        yield f"vec_c: a lane has runs of {run_length(config, item)} neighbours"
    for side, vector, outer in (
        (form.left, config.vec_a, config.block_m),
        (form.right, config.vec_b, config.block_n),
    ):
        if (config.block_k if side.k_fast else outer) % vector:
            yield "the block is not a multiple of a vector"
    if any(
        lines * item % VECTOR_BYTES for lines in (config.block_m, config.block_n, config.block_k)
    ):
        yield "a line of LDS is not a multiple of 16 bytes"


def _positive(*values: int) -> Iterator[str]:
    if any(value < 1 for value in values):
        yield "a size below 1"


def _unit_defects(config: GemmConfig, unit: MatrixUnit, item: int) -> Iterator[str]:
    if config.wave_m % unit.m or config.wave_n % unit.n:
        yield "the wave's tile is not a multiple of the matrix instruction"
    if config.kpack > 1 and config.kpack * unit.terms(item) * item > VECTOR_BYTES:
        yield "kpack: an LDS read has 16 bytes at most"
    if config.block_k % (config.kpack * unit.k(item)):
        yield "block_k is not a multiple of what one LDS read feeds"


def takes_pipeline(problem: GemmProblem) -> bool:
    """Return whether asynchronous copies can load the factors, beside single values: nothing is
    converted or looked up; a gathered position has a bit for each row and column."""
    plain = problem.a_prologue is None and problem.b_prologue is None and problem.second is None
    form, item = canonical(problem), problem.a.item_bytes
    # As fragments are loaded; bytes come in pairs, so along K.
    along_k = form.left.k_fast and form.right.k_fast
    words = min(form.left.vector, form.right.vector) >= 4
    wide = item == 2 or (item == 1 and along_k and words) or problem.a.dtype == "float64"
    if isinstance(problem, ConvProblem) and problem.window is not None:
        plain &= sum(problem.window.kernel) < 32 and item < 8
    return plain and wide and not isinstance(problem, GroupedProblem)


def _gathered(problem: ConvProblem) -> Side:
    form = canonical(problem)
    return form.right if problem.flipped else form.left


def takes_boxes(config: GemmConfig, problem: GemmProblem) -> bool:
    """Return whether bulk tensor copies load the tiles of a warpgroup: lines are whole 16-byte
    pieces, and a convolution's step is one pixel of each position."""
    least = VECTOR_BYTES // problem.a.item_bytes
    if isinstance(problem, ConvProblem) and not _takes_pixels(config, problem):
        return False
    return config.unit == "wgmma" and min(config.vec_a, config.vec_b) >= least


def _takes_pixels(config: GemmConfig, problem: ConvProblem) -> bool:
    """Return whether the descriptors of such copies can describe the window."""
    window = problem.window
    assert window is not None
    dims = zip(window.kernel, window.dilation, window.padding, window.stride, strict=True)
    seen = [((size - 1) * apart, pad, step) for size, apart, pad, step in dims]
    return (
        window.channels % config.block_k == 0
        and config.block_k * problem.a.item_bytes == 128
        and _gathered(problem).k_fast
        and all(s < 128 and pad <= 128 and s - pad <= 128 and step <= 8 for s, pad, step in seen)
    )


def _pipeline_defects(config: GemmConfig, problem: GemmProblem) -> Iterator[str]:
    item = problem.a.item_bytes
    if config.unit not in ("mma", "mma_f64_wide", "wgmma") or config.stages > 8:
        yield "stages: 1 or 2, or 3 to 8 with the asynchronous copies of mma and wgmma"
    if not takes_pipeline(problem):
        yield "asynchronous copies convert nothing, and gather from small windows, not fp64"
    if config.kpack != 1:
        yield "kpack: its fragments are loaded for one instruction each"
    if config.wave_m % 16 or config.wave_n % 16 or config.block_k * item % 64:
        yield "fragments are of 16 lines, and come in pairs along K"
    if not takes_boxes(config, problem):
        yield from _copy_defects(config, item)
    if config.unit == "wgmma":
        yield from _warpgroup_defects(config, problem)


def _warpgroup_defects(config: GemmConfig, problem: GemmProblem) -> Iterator[str]:
    form, panel = canonical(problem), 128 // problem.a.item_bytes
    if config.wave_n not in (64, 128, 192, 256) or config.block_m // config.wave_m % 4:
        yield "a warpgroup has four waves below each other and 64, 128, 192 or 256 columns"
    for side, outer in ((form.left, config.block_m), (form.right, config.block_n)):
        if (config.block_k if side.k_fast else outer) % panel:
            yield "a line of LDS is cut into panels of 128 bytes"
    if min(config.vec_a, config.vec_b) * problem.a.item_bytes < 4:
        yield "asynchronous copies have 4 bytes at least"


def _copy_defects(config: GemmConfig, item: int) -> Iterator[str]:
    if any(lines & (lines - 1) for lines in (config.block_m, config.block_n, config.block_k)):
        yield "a line of LDS that is not a power of two"
    lines = max(config.block_m, config.block_n, config.block_k)
    if lines > 32 * config.waves * min(piece(v, item) for v in (config.vec_a, config.vec_b)):
        yield "a line of LDS is more than one copy of each thread"


def _fma_defects(config: GemmConfig) -> Iterator[str]:
    if config.kpack != 1:
        yield "kpack is for matrix instructions"
    for wave in (32, 64):
        rows, cols = lane_grid(wave)
        if config.wave_m % rows or config.wave_n % cols:
            yield f"the wave's tile is not a multiple of {rows} x {cols} lanes"


def _vector_defects(name: str, width: int, most: int) -> Iterator[str]:
    if width < 1 or width & (width - 1):
        yield f"{name} is not a power of two"
    elif width > most:
        yield f"{name}: the operand's alignment allows {most}"


def run_length(config: GemmConfig, item_bytes: int) -> int:
    """Return the neighbouring columns of the result that a lane stores."""
    if config.pipelined:
        return 8
    if (unit := UNITS.get(config.unit)) is not None:
        return unit.run
    return run_of(config.wave_n // 8, item_bytes)


def run_of(per_lane: int, item_bytes: int) -> int:
    """Return the largest power of two that divides a lane's columns and fits one LDS read."""
    run = VECTOR_BYTES // item_bytes
    while per_lane % run:
        run //= 2
    return run


def _skinny_defects(config: SkinnyConfig, problem: GemmProblem) -> Iterator[str]:
    form = canonical(problem)
    yield from _positive(config.rows, config.cols, config.waves_n, config.waves_k, config.unroll)
    if config.stages > 1:
        yield from _skinny_ring_defects(config, problem)
    if (unit := UNITS.get(config.unit)) is not None:
        yield from _skinny_unit_defects(config, unit, problem)
        return
    if config.rows > 16 or config.rows & (config.rows - 1) or config.cols & (config.cols - 1):
        yield "rows and cols are powers of two, rows up to 16"
    yield from _vector_defects("vec_a", config.vec_a, form.left.vector)
    yield from _vector_defects("vec_b", config.vec_b, form.right.vector)
    if not form.left.k_fast and config.vec_a != 1:
        yield "vec_a: a left factor whose rows are not contiguous is loaded one by one"
    if form.right.k_fast:
        if config.vec_a != (config.vec_b if form.left.k_fast else 1):
            yield "vec_a and vec_b must be equal where K is contiguous in both"
    elif not 1 <= config.cols // config.vec_b <= 32 or config.cols % config.vec_b:
        yield "cols: 1 to 32 lanes side by side"


def _skinny_unit_defects(
    config: SkinnyConfig, unit: MatrixUnit, problem: GemmProblem
) -> Iterator[str]:
    form, terms = canonical(problem), unit.terms(problem.a.item_bytes)
    if not (unit if config.stages > 1 else replace(unit, some={})).multiplies(problem.a.dtype):
        yield f"{config.unit} does not multiply {problem.a.dtype}"
    if not unit.lines or config.unit == "wgmma":
        yield f"{config.unit} wants each value twice, or in LDS"
        return
    if config.rows % unit.n or config.rows > 64 or config.cols % unit.m:
        yield f"rows are a multiple of {unit.n} up to 64, cols one of {unit.m}"
    yield from _vector_defects("vec_a", config.vec_a, form.left.vector)
    yield from _vector_defects("vec_b", config.vec_b, form.right.vector)
    depth = config.vec_b if form.right.k_fast else terms
    if depth % terms or depth % config.vec_a:
        yield "a lane's products are whole instructions and whole loads"
    if not form.right.k_fast and config.vec_b != config.cols // unit.m * unit.lines:
        yield "vec_b: where K is not contiguous a vector is a lane's columns"
    if not form.left.k_fast and config.vec_a != 1:
        yield "vec_a: a left factor whose rows are not contiguous is loaded one by one"


def _skinny_ring_defects(config: SkinnyConfig, problem: GemmProblem) -> Iterator[str]:
    form, item = canonical(problem), problem.a.item_bytes
    if config.unit != "mma" or not takes_pipeline(problem):
        yield "stages: asynchronous copies are for mma, and convert and gather nothing"
    if not (form.left.k_fast and form.right.k_fast):
        yield "stages: a line of LDS is 128 bytes along K"
    if config.stages * (config.rows + config.cols) * 32 % config.cols:
        yield "stages: a wave's ring is not a multiple of a line of its sums"
    if config.unroll != 1 or min(config.vec_a, config.vec_b) * item < VECTOR_BYTES:
        yield "stages: the ring takes the place of unroll, and copies have 16 bytes"


_SIMDS = 4
_MAX_THREADS = 1024

_MARGIN = 16
"""The error margin of a skinny kernel's estimate: one that spills is never worth a try."""


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """The limits of a device. `compute_units` is that of the largest board (SMs on NVIDIA), unless
    the caller gives it.

    `registers` is the maximum of a thread, `register_file` a SIMD's capacity for one thread of each
    of its waves. `xcds` are dies with an L2 each. `lds_bytes` is the maximum that a block may
    declare, `dynamic_lds_bytes` that of a launch.
    """

    target: Target
    compute_units: int
    registers: int
    register_file: int
    lds_bytes: int
    dynamic_lds_bytes: int
    xcds: int = 1


def device_limits(target: Target, compute_units: int | None = None) -> DeviceLimits:
    """Return the limits. Raises ConfigError for an architecture without a list of configs."""
    arch = target.facts
    if target.kind == "cpu":
        device = DeviceLimits(target, 1, 1024, 4096, target.lds_bytes, target.lds_bytes)
    elif arch is None or not arch.compute_units:
        names = ", ".join(name for name, other in GPU_ARCHES.items() if other.compute_units)
        raise ConfigError(f"no configs for {target}; known: {names}")
    else:
        device = DeviceLimits(
            target,
            arch.compute_units,
            arch.registers,
            arch.unit.registers,
            target.lds_bytes,
            target.dynamic_lds_bytes,
            arch.xcds,
        )
    return device if compute_units is None else replace(device, compute_units=compute_units)


def device_defect(config: Config, problem: GemmProblem, on: DeviceLimits) -> str | None:
    """Return why the config should not be compiled for this device, or None."""
    wave = wave_of(on.target, config.unit)
    threads = config.waves * wave
    if threads > _MAX_THREADS:
        return f"{threads} threads a block, {_MAX_THREADS} are allowed"
    if not has_unit(on.target, config.unit, problem.a.dtype):
        return f"{on.target} has no {config.unit}"
    # A skinny kernel waits for memory, so a SIMD needs two waves, of which one loads.
    together = 2 if isinstance(config, SkinnyConfig) and config.unit == "fma" else 1
    is_dynamic = isinstance(config, DirectConfig) or (
        config.pipelined if isinstance(config, GemmConfig) else config.stages > 1
    )
    most_lds = on.dynamic_lds_bytes if is_dynamic else on.lds_bytes
    if (lds := lds_bytes(config, problem)) * together > most_lds:
        return f"{lds} bytes of LDS, a block may have {most_lds // together}"
    waves = max(-(-config.waves // _SIMDS), together)
    most = min(on.registers, on.register_file // waves) - _MARGIN * (together - 1)
    if isinstance(config, SkinnyConfig) and config.unit != "fma" and config.stages == 1:
        most = min(most, 128 if config.rows <= 16 else 255)  # as its launch bounds say
    count = registers(config, problem, wave) + converted(config, problem, on.target)
    if count > most:
        return f"about {count} registers a thread, at most {most} for {config.waves} waves a block"
    return None


def lds_bytes(config: Config, problem: GemmProblem) -> int:
    """Return the exact LDS bytes of a block."""
    if isinstance(config, DirectConfig):
        return convolution.direct_lds_bytes(config, problem)
    if isinstance(config, SkinnyConfig):
        if config.stages > 1:
            return config.waves * config.stages * (config.rows + config.cols) * 128
        sums = config.waves * config.rows * config.cols
        return problem.acc_bytes * sums if config.waves_k > 1 or config.unit != "fma" else 0
    item = problem.a.item_bytes
    if config.pipelined:
        lines = config.block_m + config.block_n
        staged = problem.acc_bytes * config.waves * 16 * staged_line(config.wave_n)
        arrivals = 8 * config.stages if takes_boxes(config, problem) else 0
        return max(lines * config.block_k * config.stages * item + arrivals, staged)
    pad = 16 // item if config.unit == "fma" else 0
    lines = config.block_m + config.block_n + 2 * pad
    return lines * config.block_k * config.stages * item


def staged_line(wave_n: int) -> int:
    """Return the sums of a line on their way through LDS, as `Product::LINE` of the pipeline."""
    columns = wave_n + wave_n // 32 * 4
    return columns + (24 - columns % 16) % 16
