"""The GPU architectures that are known here, a row each: what a unit holds, what a kernel may take.

Numbers a compute unit, from LLVM's "User Guide for AMDGPU Backend" and its GCNSubtarget and
AMDGPUBaseInfo (register granules and totals, the waves' limits, LDS), AMD's "AMD Instinct MI200"
and "MI300 instruction set architecture" guides (512 registers, unified), AMD's RDNA3 ISA guide, and
for NVIDIA the "CUDA C++ Programming Guide", technical specifications per compute capability; the
number of units from AMD's and NVIDIA's data sheets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ComputeUnit:
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


@dataclass(frozen=True, slots=True)
class GpuArch:
    """`compute_units` is how many the largest board has, 0 where our templates have no configs for
    the architecture. `registers` is the most that a thread may have. `xcds` are dies with an L2
    each; `mfma` tells whether `rt::mfma` works.
    """

    unit: ComputeUnit
    compute_units: int = 0
    registers: int = 0
    xcds: int = 1
    mfma: bool = False


_CDNA = ComputeUnit(8, 512, 8, 64 * 1024, 512, blocks=16, scalars=100)
_CDNA_950 = ComputeUnit(8, 512, 8, 160 * 1024, 1280, blocks=16, scalars=100)
_RDNA_SMALL = ComputeUnit(16, 1024, 16, 128 * 1024, 1024, blocks=32, wave=32)
_RDNA_LARGE = ComputeUnit(16, 1536, 24, 128 * 1024, 1024, blocks=32, wave=32)


def _sm(warps: int, shared: int, blocks: int) -> ComputeUnit:
    """A register file of 16,384 registers a partition: 512 for each of a warp's threads."""
    return ComputeUnit(warps // 4, 512, 8, shared * 1024, 128, blocks, wave=32, lds_reserved=1024)


GPU_ARCHES: Mapping[str, GpuArch] = {
    "gfx90a": GpuArch(_CDNA, 110, 512, mfma=True),
    **dict.fromkeys(("gfx940", "gfx941"), GpuArch(_CDNA)),
    "gfx942": GpuArch(_CDNA, 304, 512, xcds=8, mfma=True),
    "gfx950": GpuArch(_CDNA_950, 256, 512, xcds=8, mfma=True),
    **dict.fromkeys(
        ("gfx1030", "gfx1031", "gfx1032", "gfx1102", "gfx1103", "gfx1150"), GpuArch(_RDNA_SMALL)
    ),
    "gfx1100": GpuArch(_RDNA_LARGE, 96, 256),
    **dict.fromkeys(("gfx1101", "gfx1151", "gfx1200"), GpuArch(_RDNA_LARGE)),
    "gfx1201": GpuArch(_RDNA_LARGE, 64, 256),
    "sm_80": GpuArch(_sm(64, 164, 32)),
    **dict.fromkeys(("sm_86", "sm_89"), GpuArch(_sm(48, 100, 16))),
    "sm_90": GpuArch(_sm(64, 228, 32), 132, 168),  # three blocks of 128 threads
    "sm_90a": GpuArch(_sm(64, 228, 32)),
}
