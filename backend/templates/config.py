"""How a template computes a problem: one frozen dataclass a template."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar, cast, get_args

from backend.model.choice import parse_config
from backend.templates.errors import ConfigError
from backend.templates.units import UnitName


def _describe(config: Config) -> str:
    pairs = ((f.name.upper(), getattr(config, f.name)) for f in fields(config))
    return ", ".join(f"{name}={value}" for name, value in pairs)


@dataclass(frozen=True, slots=True)
class GemmConfig:
    """A tiled product through LDS. Tiles are in elements, rows by columns of the result.

    A block computes `block_m` x `block_n`, `block_k` products at a time; each of its waves
    `wave_m` x `wave_n` of that. `unit` is what multiplies. `kpack` is how many of its instructions
    one LDS read feeds. `vec_*` are elements an access of the left factor, the right factor and the
    result. `stages` are LDS buffers: 1, 2, or 3 to 8 for `mma` and `wgmma`, whose copies run
    on their own.
    Blocks go through `group_m` rows of tiles before the next column; `xcds` is how many dies, each
    with its own L2, the hardware deals blocks to in turn. `split_k` parts of K are summed in a
    second kernel; it is a runtime argument, and no part of the source.
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
        """Waves of a block."""
        return (self.block_m // self.wave_m) * (self.block_n // self.wave_n)

    @property
    def pipelined(self) -> bool:
        """Whether tiles come by asynchronous copies, and sums leave through LDS."""
        return self.stages > 2

    @property
    def description(self) -> str:
        """`KEY=VALUE, ...`, as Inductor writes the config of a choice."""
        return _describe(self)

    @property
    def binary(self) -> GemmConfig:
        """What the source depends on: the config without its runtime arguments."""
        return replace(self, split_k=1)


@dataclass(frozen=True, slots=True)
class SkinnyConfig:
    """A product with few rows, straight from memory to registers.

    A wave computes `rows` x `cols` of the result; its lanes share K, and `waves_k` waves of a block
    do too, which then meet in LDS. A block has `waves_n` such groups side by side. `vec_a` and
    `vec_b` are elements a load of each factor. `unroll` steps of K are loaded before they are used.
    `unit` is what multiplies; a matrix unit takes the columns as its rows. With `stages` above 1,
    steps of 128 bytes of K come by asynchronous copies, into a ring of so many buffers a wave.
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
        """Waves of a block."""
        return self.waves_n * self.waves_k

    @property
    def description(self) -> str:
        """`KEY=VALUE, ...`, as Inductor writes the config of a choice."""
        return _describe(self)

    @property
    def binary(self) -> SkinnyConfig:
        """What the source depends on: the config without its runtime arguments."""
        return replace(self, split_k=1)


@dataclass(frozen=True, slots=True)
class DirectConfig:
    """A convolution of groups of few channels, whose image is brought to LDS once.

    A block computes `tile_h` x `tile_w` places of the result for `cols` filters, `tiles` times
    below each other: while one is multiplied, the next one is brought. By FMA a thread has `run`
    filters at `each` places of a line; by a matrix unit a wave has `each` times 16 places of 16
    filters at once. `vec_a`, `vec_b` and `vec_c` are elements an access of the image, the weight
    and the result.
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

    @property
    def description(self) -> str:
        """`KEY=VALUE, ...`, as Inductor writes the config of a choice."""
        return _describe(self)

    @property
    def binary(self) -> DirectConfig:
        """What the source depends on: all of it."""
        return self


Config = GemmConfig | SkinnyConfig | DirectConfig


def config_of(template: str, description: str) -> Config:
    """The config of a choice of a template, from its description; what an older one does not name
    has its default. Raises ConfigError."""
    tiled = dict.fromkeys(("gemm", "conv", "grouped"), GemmConfig)
    kind = {**tiled, "skinny": SkinnyConfig, "direct": DirectConfig}.get(template)
    if kind is None:
        raise ConfigError(f"there is no template {template[:40]}")
    given = parse_config(description)
    try:
        values = {
            f.name: _value(f.name, given[f.name.upper()])
            for f in fields(kind)
            if f.name.upper() in given or f.default is MISSING
        }
    except (KeyError, ValueError):
        raise ConfigError(f"{description[:200]!r} is no config of ours") from None
    return cast("Config", kind(**values))


def _value(name: str, text: str) -> Any:
    """Raises ValueError."""
    if name != "unit":
        return int(text)
    if text not in get_args(UnitName):
        raise ValueError(f"no unit {text[:40]}")
    return text
