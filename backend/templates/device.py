"""What a kernel may take of each architecture, and how it is estimated before any compile.

Sources: LLVM's "User Guide for AMDGPU Backend"; AMD's CDNA 2, CDNA 3 and RDNA 3 instruction set
guides; AMD's and NVIDIA's data sheets for the number of compute units; NVIDIA's "CUDA C++
Programming Guide".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from backend.templates.config import GemmConfig, SkinnyConfig
from backend.templates.errors import ConfigError
from backend.templates.legality import lane_grid
from backend.templates.problem import GemmProblem, canonical
from backend.toolchain.target import Target

_SIMDS = 4
_MAX_THREADS = 1024
_ADDRESSES = 40
"""Registers for pointers, indices and the loop, as seen in compiled kernels."""

_MARGIN = 16
"""What the estimate of a skinny kernel may be short by: one that spills is never worth a try."""


@dataclass(frozen=True, slots=True)
class Device:
    """`compute_units` is that of the largest board (SMs on NVIDIA); a caller who knows says so.

    `registers` is the most that a thread may have, `register_file` what a SIMD has for one thread
    of each of its waves. `xcds` are dies with an L2 each. `lds_bytes` is what a block may declare.
    """

    target: Target
    compute_units: int
    registers: int
    register_file: int
    lds_bytes: int
    xcds: int = 1


def device_of(target: Target, compute_units: int | None = None) -> Device:
    """Raises ConfigError for an architecture without a list of configs."""
    known = _DEVICES.get(target.arch)
    if known is None:
        raise ConfigError(f"no configs for {target}; known: {', '.join(filter(None, _DEVICES))}")
    units, registers, register_file, xcds = known
    device = Device(target, units, registers, register_file, target.lds_bytes, xcds)
    return device if compute_units is None else replace(device, compute_units=compute_units)


_DEVICES = {
    "": (1, 1024, 4096, 1),
    "gfx90a": (110, 512, 512, 1),
    "gfx942": (304, 512, 512, 8),
    "gfx950": (256, 512, 512, 8),
    "gfx1100": (96, 256, 1536, 1),
    "gfx1201": (64, 256, 1536, 1),
    "sm_90": (132, 168, 512, 1),  # three blocks of 128 threads
}


def device_defect(
    config: GemmConfig | SkinnyConfig, problem: GemmProblem, on: Device
) -> str | None:
    """Why the config should not be compiled for this device; None if nothing speaks against it."""
    threads = config.waves * on.target.wave
    if threads > _MAX_THREADS:
        return f"{threads} threads a block, {_MAX_THREADS} are allowed"
    if isinstance(config, GemmConfig) and config.mfma and not on.target.has_mfma:
        return f"{on.target} has no matrix instructions of this kind"
    # A skinny kernel waits for memory: two waves a SIMD at least, so that one loads meanwhile.
    together = 2 if isinstance(config, SkinnyConfig) else 1
    if (lds := lds_bytes(config, problem)) * together > on.lds_bytes:
        return f"{lds} bytes of LDS, a block may have {on.lds_bytes // together}"
    waves = max(-(-config.waves // _SIMDS), together)
    most = min(on.registers, on.register_file // waves) - _MARGIN * (together - 1)
    if (count := registers(config, problem, on.target.wave)) > most:
        return f"about {count} registers a thread, at most {most} for {config.waves} waves a block"
    return None


def lds_bytes(config: GemmConfig | SkinnyConfig, problem: GemmProblem) -> int:
    """LDS of a block, exactly."""
    if isinstance(config, SkinnyConfig):
        return 4 * config.waves * config.rows * config.cols if config.waves_k > 1 else 0
    item = problem.a.item_bytes
    pad, outers = 16 // item, (config.block_m, config.block_n)
    if config.mfma:
        values = sum(outer * (config.block_k + pad) for outer in outers)
    else:
        values = sum((outer + pad) * config.block_k for outer in outers)
    return values * config.stages * item


def registers(config: GemmConfig | SkinnyConfig, problem: GemmProblem, wave: int) -> int:
    """Vector registers of a thread, about: sums, what is on its way from memory, addresses."""
    item = problem.a.item_bytes
    if isinstance(config, SkinnyConfig):
        return _skinny_registers(config, problem)
    sums = config.wave_m * config.wave_n // wave
    staged = (config.block_m + config.block_n) * config.block_k // (config.waves * wave)
    if config.mfma:
        lines = (config.wave_m + config.wave_n) // config.mfma
        return sums + staged * item // 4 + lines * 4 + _ADDRESSES
    rows, cols = lane_grid(wave)
    return sums + staged * item // 4 + config.wave_m // rows + config.wave_n // cols + _ADDRESSES


def _skinny_registers(config: SkinnyConfig, problem: GemmProblem) -> int:
    """Terms count as fp32, to which they are converted; each row has an address of its own."""
    k_fast = canonical(problem).right.k_fast
    lane_cols = config.cols if k_fast else config.vec_b
    lane_k = config.vec_b if k_fast else config.vec_a
    terms = (config.rows + lane_cols) * lane_k
    return config.rows * lane_cols + config.unroll * terms + 2 * config.rows + _ADDRESSES
