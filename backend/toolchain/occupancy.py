"""How many waves of a kernel a SIMD can hold at once, and what keeps it from more.

Numbers a compute unit, from LLVM's "User Guide for AMDGPU Backend" and its GCNSubtarget and
AMDGPUBaseInfo (register granules and totals, the waves' limits, LDS), AMD's "AMD Instinct MI200"
and "MI300 instruction set architecture" guides (512 registers, unified), AMD's RDNA3 ISA guide, and
for NVIDIA the "CUDA C++ Programming Guide", technical specifications per compute capability.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from backend.toolchain.resources import Resources
from backend.toolchain.target import Target

Limit = Literal["waves", "registers", "scalar registers", "LDS", "block"]


@dataclass(frozen=True, slots=True)
class Occupancy:
    """`limited_by` "waves" means full: no resource of the kernel is the limit.

    "block" means that blocks of this size leave slots of waves empty.
    """

    waves_per_simd: int
    of: int
    limited_by: Limit


@dataclass(frozen=True, slots=True)
class _Unit:
    """What blocks share: a compute unit of CDNA, a work group processor of RDNA, an SM.

    Registers are for one thread of each wave on one SIMD; `scalars` is the most that a wave may
    use to have all slots, or 0 if they never matter.
    """

    waves: int
    registers: int
    register_granule: int
    lds: int
    lds_granule: int
    blocks: int
    simds: int = 4
    wave: int = 64
    lds_reserved: int = 0
    scalars: int = 0


_CDNA = _Unit(8, 512, 8, 64 * 1024, 512, blocks=16, scalars=100)
_CDNA_950 = _Unit(8, 512, 8, 160 * 1024, 1280, blocks=16, scalars=100)
_RDNA_SMALL = _Unit(16, 1024, 16, 128 * 1024, 1024, blocks=32, wave=32)
_RDNA_LARGE = _Unit(16, 1536, 24, 128 * 1024, 1024, blocks=32, wave=32)


def _sm(warps: int, shared: int, blocks: int) -> _Unit:
    """A register file of 16,384 registers a partition: 512 for each of a warp's threads."""
    return _Unit(warps // 4, 512, 8, shared * 1024, 128, blocks, wave=32, lds_reserved=1024)


_UNITS = {
    **dict.fromkeys(("gfx90a", "gfx940", "gfx941", "gfx942"), _CDNA),
    "gfx950": _CDNA_950,
    **dict.fromkeys(
        ("gfx1030", "gfx1031", "gfx1032", "gfx1102", "gfx1103", "gfx1150"), _RDNA_SMALL
    ),
    **dict.fromkeys(("gfx1100", "gfx1101", "gfx1151", "gfx1200", "gfx1201"), _RDNA_LARGE),
    "sm_80": _sm(64, 164, 32),
    **dict.fromkeys(("sm_86", "sm_89"), _sm(48, 100, 16)),
    **dict.fromkeys(("sm_90", "sm_90a"), _sm(64, 228, 32)),
}


def occupancy(
    target: Target, resources: Resources, block_threads: int, dynamic_lds: int = 0
) -> Occupancy | None:
    """Of one kernel in blocks of `block_threads`; None if the architecture or a number is unknown.

    `dynamic_lds` is what the launch asks for besides, in bytes.
    """
    unit = _UNITS.get(target.arch)
    if unit is None or resources.vgprs is None or resources.lds is None or block_threads < 1:
        return None
    block_waves = -(-block_threads // unit.wave)
    by_registers = _by_registers(unit, resources.vgprs)
    by_scalars = _by_scalars(unit, resources.sgprs or 0)
    slots = unit.simds * min(by_registers, by_scalars, unit.waves)
    by_lds = _by_lds(unit, resources.lds + dynamic_lds)
    # A block of one wave takes no barrier, of which a unit has as many as `blocks`.
    by_barriers = unit.blocks if block_waves > 1 or unit.lds_reserved else slots
    blocks = min(slots // block_waves, by_lds, by_barriers)
    waves = min(-(-blocks * block_waves // unit.simds), unit.waves)
    limits: list[tuple[int, Limit]] = [
        (unit.simds * unit.waves // block_waves, "waves"),
        (by_lds, "LDS"),
        (unit.simds * by_registers // block_waves, "registers"),
        (unit.simds * by_scalars // block_waves, "scalar registers"),
        (by_barriers, "block"),
    ]
    limit = min(limits, key=lambda pair: pair[0])[1]
    if limit == "waves" and waves < unit.waves:
        limit = "block"
    return Occupancy(waves, unit.waves, limit)


def _by_registers(unit: _Unit, registers: int) -> int:
    granules = max(1, -(-registers // unit.register_granule))
    return min(unit.waves, unit.registers // (granules * unit.register_granule))


def _by_scalars(unit: _Unit, scalars: int) -> int:
    """CDNA has 800 scalar registers a SIMD: more than 100 a wave leave room for seven."""
    return unit.waves if not unit.scalars or scalars <= unit.scalars else 7


def _by_lds(unit: _Unit, lds: int) -> int:
    if lds == 0 and not unit.lds_reserved:
        return unit.simds * unit.waves
    taken = -(-(lds + unit.lds_reserved) // unit.lds_granule) * unit.lds_granule
    return unit.lds // taken
