"""What multiplies: plain FMA, or a matrix unit. As `rocm_tui/matrix.h` has them.

An instruction computes `m` x `n` of the result, `k` products an element; `groups` lanes divide the
K of a line. A lane holds `run` neighbouring columns of the result. The layouts stand there, with
their sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from backend.toolchain.target import MatrixFamily, Target

UnitName = Literal[
    "fma",
    "mfma16",
    "mfma32",
    "mfma16_wide",
    "mfma32_wide",
    "wmma_gfx11",
    "wmma_gfx12",
    "mma",
    "wgmma",
    "mfma_f64",
    "mma_f64",
    "mma_f64_wide",
]


@dataclass(frozen=True, slots=True)
class MatrixUnit:
    """`cpp` is the type in C++; `k_bytes` is what an instruction takes of a line, `most_k` the most
    elements; `arches` those of the family that have it, all if empty; `some` those that multiply
    further types."""

    family: MatrixFamily
    cpp: str
    m: int
    n: int
    k_bytes: int
    groups: int
    run: int
    wave: int = 32
    dtypes: tuple[str, ...] = ("float16", "bfloat16")
    arches: tuple[str, ...] = ()
    some: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    most_k: int = 32

    def multiplies(self, dtype: str) -> bool:
        """Whether some device of the family does with it."""
        return dtype in self.dtypes or dtype in self.some

    @property
    def lines(self) -> int:
        """Rows of the left factor of which a lane holds terms; 0 where two lanes hold the same."""
        return self.m * self.groups // self.wave

    def k(self, item_bytes: int) -> int:
        """Products that an instruction adds up."""
        return min(self.k_bytes // item_bytes, self.most_k)

    def terms(self, item_bytes: int) -> int:
        """Elements of a line that a lane gives to an instruction."""
        return self.k(item_bytes) // self.groups


_CDNA = ("float16", "bfloat16", "float32")
_CDNA_BYTES = {
    "int8": ("gfx942", "gfx950"),
    "float8_e4m3fnuz": ("gfx942",),
    "float8_e5m2fnuz": ("gfx942",),
    "float8_e4m3fn": ("gfx950",),
    "float8_e5m2": ("gfx950",),
}
_FP8_FROM = ("sm_89", "sm_90", "sm_90a", "sm_100", "sm_120")
_NVIDIA_BYTES = {
    "int8": ("sm_80", "sm_86", *_FP8_FROM),
    "float8_e4m3fn": _FP8_FROM,
    "float8_e5m2": _FP8_FROM,
}
_RDNA3_BYTES = {"int8": ("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151")}
_RDNA4_BYTES = dict.fromkeys(("int8", "float8_e4m3fn", "float8_e5m2"), ("gfx1200", "gfx1201"))
_HOPPER_BYTES = dict.fromkeys(("int8", "float8_e4m3fn", "float8_e5m2"), ("sm_90a",))

UNITS: Mapping[UnitName, MatrixUnit] = {
    "mfma16": MatrixUnit(
        "mfma", "rt::mfma<In, 16>", 16, 16, 32, 4, run=4, wave=64, dtypes=_CDNA, some=_CDNA_BYTES
    ),
    "mfma32": MatrixUnit(
        "mfma", "rt::mfma<In, 32>", 32, 32, 16, 2, run=4, wave=64, dtypes=_CDNA, some=_CDNA_BYTES
    ),
    "mfma16_wide": MatrixUnit(
        "mfma", "rt::mfma<In, 16, 2>", 16, 16, 64, 4, run=4, wave=64, arches=("gfx950",)
    ),
    "mfma32_wide": MatrixUnit(
        "mfma", "rt::mfma<In, 32, 2>", 32, 32, 32, 2, run=4, wave=64, arches=("gfx950",)
    ),
    "wmma_gfx11": MatrixUnit(
        "wmma_gfx11", "rt::wmma_gfx11<In>", 16, 16, 32, 1, run=1, some=_RDNA3_BYTES, most_k=16
    ),
    "wmma_gfx12": MatrixUnit(
        "wmma_gfx12", "rt::wmma_gfx12<In>", 16, 16, 32, 2, run=8, some=_RDNA4_BYTES, most_k=16
    ),
    "mma": MatrixUnit("mma", "rt::mma<In>", 16, 8, 32, 4, run=2, some=_NVIDIA_BYTES),
    # Four waves together: of a wave's 16 rows an instruction computes all columns.
    "wgmma": MatrixUnit("mma", "", 16, 64, 32, 4, run=2, arches=("sm_90a",), some=_HOPPER_BYTES),
    "mfma_f64": MatrixUnit(
        "mfma", "rt::mfma<In, 16>", 16, 16, 32, 4, run=1, wave=64, dtypes=("float64",)
    ),
    # Other NVIDIA GPUs have one fp64 multiplier for 64 of fp32: their tensor cores gain nothing.
    "mma_f64": MatrixUnit(
        "mma",
        "rt::mma_f64<4>",
        8,
        8,
        32,
        4,
        run=2,
        dtypes=("float64",),
        arches=("sm_80", "sm_90", "sm_90a"),
    ),
    "mma_f64_wide": MatrixUnit(
        "mma",
        "rt::mma_f64<16>",
        16,
        8,
        128,
        4,
        run=2,
        dtypes=("float64",),
        arches=("sm_90", "sm_90a"),
    ),
}


def has_unit(target: Target, unit: UnitName, dtype: str) -> bool:
    """Whether the device has it for a type; the CPU emulates all of them."""
    if unit == "fma":
        return True
    own = UNITS[unit]
    if target.kind == "cpu":
        return own.multiplies(dtype)
    known = dtype in own.dtypes or target.arch in own.some.get(dtype, ())
    return known and own.family == target.matrix and target.arch in (own.arches or (target.arch,))


_WIDE: Mapping[UnitName, UnitName] = {
    "mfma16": "mfma16_wide",
    "mfma32": "mfma32_wide",
    "mma_f64": "mma_f64_wide",
}


def best_unit(target: Target, dtype: str, unit: UnitName) -> UnitName:
    """The unit of the same shape with the highest rate that the device has for the type."""
    wide = _WIDE.get(unit)
    fits = wide is not None and has_unit(target, wide, dtype)
    return wide if wide is not None and fits and target.kind != "cpu" else unit


def wave_of(target: Target, unit: UnitName) -> int:
    """Threads of a wave: the CPU takes as many as the unit has lanes."""
    return target.wave if target.kind != "cpu" or unit == "fma" else UNITS[unit].wave
