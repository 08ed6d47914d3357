"""How many registers a thread of a kernel takes, about: what is known of it before any compile."""

from __future__ import annotations

from backend.templates import direct
from backend.templates.config import Config, DirectConfig, GemmConfig, SkinnyConfig
from backend.templates.convolution import ConvProblem
from backend.templates.problem import VECTOR_BYTES, GemmProblem, canonical
from backend.templates.units import UNITS, MatrixUnit
from backend.toolchain.target import Target

_ADDRESSES = 40
"""Registers for pointers, indices and the loop, as seen in compiled kernels."""


def lane_grid(wave: int) -> tuple[int, int]:
    """How the lanes of a wave share its tile without matrix cores: rows by columns."""
    return (8, 8) if wave == 64 else (4, 8)


def piece(vector: int, item: int) -> int:
    """Elements that a thread copies at once; narrow ones go through registers, 16 bytes each."""
    return vector if vector * item >= 4 else VECTOR_BYTES // item


def registers(config: Config, problem: GemmProblem, wave: int) -> int:
    """Vector registers of a thread, about: sums, what is on its way from memory, addresses."""
    item = problem.a.item_bytes
    if isinstance(config, DirectConfig):
        return direct.values(config, problem, wave) + _ADDRESSES
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
    """Of bytes that RDNA and NVIDIA take apart on their way to LDS, those that are turned or come
    by less than a word: so many registers each, as seen in compiled kernels."""
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
    """Registers more where fp8 is multiplied as fp16, as `mma` does on Hopper: the compiler
    converts all of a step ahead."""
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
    """Terms count as sums, to whose type they are converted; each row has an address of its own."""
    k_fast = canonical(problem).right.k_fast
    lane_cols = config.cols if k_fast else config.vec_b
    lane_k = config.vec_b if k_fast else config.vec_a
    terms = (config.rows + lane_cols) * lane_k
    values = config.rows * lane_cols + config.unroll * terms
    return problem.acc_bytes // 4 * values + 2 * config.rows + _ADDRESSES


def _skinny_unit_registers(config: SkinnyConfig, unit: MatrixUnit, problem: GemmProblem) -> int:
    """Sums, and the terms of all steps as memory has them."""
    item = problem.a.item_bytes
    k_fast = canonical(problem).right.k_fast
    depth = config.vec_b if k_fast else unit.terms(item)
    lines = config.cols // unit.m * unit.lines + config.rows // unit.n
    sums = config.rows * config.cols // unit.wave
    if config.stages > 1:  # the addresses of all lines, and factors of two instructions
        return sums + 3 * (config.rows + config.cols) // 2 + _ADDRESSES
    return sums + config.unroll * lines * depth * item // 4 + 2 * lines + _ADDRESSES
