"""How a template computes a problem: one frozen dataclass for each template.

Products are computed by plain FMA or a matrix unit (`MatrixUnit`), as in `rocm_tui/matrix.h`. An
instruction computes `m` x `n` of the result, `k` products per element; `groups` lanes divide the K
of a line. A lane holds `run` neighbouring columns of the result. The layouts are in that header,
with their sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, TypeVar, cast, get_args

from backend.errors import ConfigError
from backend.model.choice import parse_config
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
    """`cpp` is the type in C++; `k_bytes` is the part of a line that an instruction reads, `most_k`
    the maximum of elements; `arches` are the architectures of the family that have it, all if
    empty; `some` maps further types to the architectures that support them."""

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
        """Return whether a device of the family multiplies this type with it."""
        return dtype in self.dtypes or dtype in self.some

    @property
    def lines(self) -> int:
        """The rows of the left factor of which a lane holds terms; 0 if two lanes hold the same."""
        return self.m * self.groups // self.wave

    def k(self, item_bytes: int) -> int:
        """Return the number of products that an instruction adds up."""
        return min(self.k_bytes // item_bytes, self.most_k)

    def terms(self, item_bytes: int) -> int:
        """Return the elements of a line that a lane passes to an instruction."""
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
_H100 = ("sm_90", "sm_90a")
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
    # Four waves cooperate: an instruction computes all columns of a wave's 16 rows.
    "wgmma": MatrixUnit("mma", "", 16, 64, 32, 4, run=2, arches=("sm_90a",), some=_HOPPER_BYTES),
    "mfma_f64": MatrixUnit(
        "mfma", "rt::mfma<In, 16>", 16, 16, 32, 4, run=1, wave=64, dtypes=("float64",)
    ),
    # Other NVIDIA GPUs have one fp64 multiplier for 64 of fp32, so tensor cores gain nothing.
    "mma_f64": MatrixUnit(
        "mma", "rt::mma_f64<4>", 8, 8, 32, 4, run=2, dtypes=("float64",), arches=("sm_80", *_H100)
    ),
    "mma_f64_wide": MatrixUnit(
        "mma", "rt::mma_f64<16>", 16, 8, 128, 4, run=2, dtypes=("float64",), arches=_H100
    ),
}


def has_unit(target: Target, unit: UnitName, dtype: str) -> bool:
    """Return whether the device has the unit for a type; the CPU emulates all of them."""
    if unit == "fma":
        return True
    own = UNITS[unit]
    if target.kind == "cpu":
        return own.multiplies(dtype)
    supported = dtype in own.dtypes or target.arch in own.some.get(dtype, ())
    return (
        supported and own.family == target.matrix and target.arch in (own.arches or (target.arch,))
    )


_WIDE: Mapping[UnitName, UnitName] = {
    "mfma16": "mfma16_wide",
    "mfma32": "mfma32_wide",
    "mma_f64": "mma_f64_wide",
}


def best_unit(target: Target, dtype: str, unit: UnitName) -> UnitName:
    """Return the unit of the same shape with the device's highest rate for the type."""
    wide = _WIDE.get(unit)
    fits = wide is not None and has_unit(target, wide, dtype)
    return wide if wide is not None and fits and target.kind != "cpu" else unit


def wave_of(target: Target, unit: UnitName) -> int:
    """Return the threads of a wave: the CPU uses as many as the unit has lanes."""
    return target.wave if target.kind != "cpu" or unit == "fma" else UNITS[unit].wave


C = TypeVar("C", bound="_Described")


@dataclass(frozen=True, slots=True)
class _Described:
    """The description of a config, and the part that its source depends on."""

    @property
    def description(self) -> str:
        """`KEY=VALUE, ...`, as Inductor writes the config of a choice."""
        return ", ".join(f"{f.name.upper()}={getattr(self, f.name)}" for f in fields(self))

    @property
    def binary(self: C) -> C:
        """Return the part that the source depends on: the config without its runtime arguments."""
        runtime: dict[str, Any] = {f.name: 1 for f in fields(self) if f.name == "split_k"}
        return replace(self, **runtime)


@dataclass(frozen=True, slots=True)
class GemmConfig(_Described):
    """A tiled product through LDS. Tiles are in elements, rows by columns of the result.

    A block computes `block_m` x `block_n`, `block_k` products at a time; each of its waves `wave_m`
    x `wave_n` of that. `unit` multiplies. `kpack` is the number of its instructions fed by one LDS
    read. `vec_*` are elements per access of the left factor, the right factor and the result.
    `stages` are LDS buffers: 1, 2, or 3 to 8 for `mma` and `wgmma`, whose copies are asynchronous.
    Blocks traverse `group_m` rows of tiles before the next column; the hardware deals blocks
    round-robin to `xcds` dies, each with its own L2. `split_k` parts of K are summed in a second
    kernel; it is a runtime argument, and not part of the source.
    """

    block_m: int
    block_n: int
    block_k: int
    wave_m: int
    wave_n: int
    unit: UnitName = "fma"
    kpack: int = 1
    vec_a: int = 1
    vec_b: int = 1
    vec_c: int = 1
    stages: int = 2
    group_m: int = 8
    xcds: int = 1
    split_k: int = 1

    @property
    def waves(self) -> int:
        """The number of waves of a block."""
        return (self.block_m // self.wave_m) * (self.block_n // self.wave_n)

    @property
    def pipelined(self) -> bool:
        """Whether tiles come by asynchronous copies, and sums leave through LDS."""
        return self.stages > 2


@dataclass(frozen=True, slots=True)
class SkinnyConfig(_Described):
    """A product with few rows, straight from memory to registers.

    A wave computes `rows` x `cols` of the result; its lanes share K, as do `waves_k` waves of a
    block, which then combine their sums in LDS. A block has `waves_n` such groups side by side.
    `vec_a` and `vec_b` are elements per load of each factor. `unroll` steps of K are loaded before
    they are used. `unit` multiplies; a matrix unit treats the columns as its rows. With `stages`
    above 1, steps of 128 bytes of K come by asynchronous copies, into a ring of `stages` buffers
    per wave.
    """

    rows: int
    cols: int
    waves_n: int = 4
    waves_k: int = 1
    vec_a: int = 1
    vec_b: int = 1
    unroll: int = 1
    unit: UnitName = "fma"
    stages: int = 1
    split_k: int = 1

    @property
    def waves(self) -> int:
        """The number of waves of a block."""
        return self.waves_n * self.waves_k


@dataclass(frozen=True, slots=True)
class DirectConfig(_Described):
    """A convolution of groups of few channels, whose image is copied to LDS once.

    A block computes `tile_h` x `tile_w` positions of the result for `cols` filters, in `tiles`
    tiles one below the other: while one is multiplied, the next is copied. With FMA a thread has
    `run` filters at `each` positions of a line; with a matrix unit a wave has `each` times 16
    positions of 16 filters at once. `vec_a`, `vec_b` and `vec_c` are elements per access of the
    image, the weight and the result.
    """

    tile_h: int
    tile_w: int
    cols: int
    waves: int
    each: int
    run: int = 1
    unit: UnitName = "fma"
    tiles: int = 1
    vec_a: int = 1
    vec_b: int = 1
    vec_c: int = 1

    split_k: ClassVar[int] = 1


Config = GemmConfig | SkinnyConfig | DirectConfig


def parse_template_config(template: str, description: str) -> Config:
    """Return the config of a template's choice from its description; values that older descriptions
    lack get their defaults. Raises ConfigError."""
    tiled = dict.fromkeys(("gemm", "conv", "grouped"), GemmConfig)
    kind = {**tiled, "skinny": SkinnyConfig, "direct": DirectConfig}.get(template)
    if kind is None:
        raise ConfigError(f"there is no template {template[:40]}")
    texts = parse_config(description)
    try:
        values = {
            f.name: _value(f.name, texts[f.name.upper()])
            for f in fields(kind)
            if f.name.upper() in texts or f.default is MISSING
        }
    except (KeyError, ValueError):
        raise ConfigError(f"{description[:200]!r} is not a config of ours") from None
    return cast("Config", kind(**values))


def _value(name: str, text: str) -> Any:
    """Parse a value. Raises ValueError."""
    if name != "unit":
        return int(text)
    if text not in get_args(UnitName):
        raise ValueError(f"no unit {text[:40]}")
    return text
