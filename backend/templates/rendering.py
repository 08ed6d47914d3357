"""From a problem and a config to C++: one entry, what to call it with, and its workspace."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from backend.templates.config import Config, DirectConfig, GemmConfig, SkinnyConfig
from backend.templates.convolution import one_launch
from backend.templates.direct import direct_defect
from backend.templates.errors import ConfigError
from backend.templates.kernel import CallArg, TemplateKernel
from backend.templates.legality import gemm_defect, lds_bytes, skinny_defect, takes_boxes
from backend.templates.problem import LARGEST_SIZE, ArgInfo, DType, GemmProblem, Sizes, canonical
from backend.templates.units import UNITS

RUNTIME_ARGS = (ArgInfo("split_k", "int64_t"),)
"""What the caller of either template chooses at run time."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A source with the entry `name`. `args` are those of its signature, without the tail.

    Two configs that differ only in runtime arguments have the same source.
    """

    name: str
    source: str
    args: tuple[CallArg, ...]
    problem: GemmProblem
    config: Config

    def workspace_bytes(self, sizes: Sizes, split_k: int | None = None) -> int:
        """What the entry stores in `workspace_size`; `split_k` is the config's if None."""
        split = self.config.split_k if split_k is None else split_k
        return workspace_bytes(self.problem, self.config, sizes, split)


def workspace_bytes(problem: GemmProblem, config: Config, sizes: Sizes, split_k: int) -> int:
    """Bytes of partial sums: none without a split. The entry computes the same."""
    parts = split_parts(config, sizes, split_k)
    if parts == 1:
        return 0
    rows, cols = (sizes.n, sizes.m) if problem.flipped else (sizes.m, sizes.n)
    return problem.acc_bytes * parts * sizes.batch * rows * -(-cols // 8) * 8


def split_parts(config: Config, sizes: Sizes, split_k: int) -> int:
    """Into how many parts K really is split: no more than it has tiles of `block_k`."""
    if isinstance(config, DirectConfig):
        return 1
    block_k = config.block_k if isinstance(config, GemmConfig) else SKINNY_SPLIT_UNIT
    return max(1, min(split_k, -(-sizes.k // block_k)))


SKINNY_SPLIT_UNIT = 256
"""The least K of a part of a skinny product."""


@functools.cache
def environment(folder: Path = Path(__file__).parent) -> jinja2.Environment:
    """The templates of a folder. An undefined name is an error, not an empty text."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def render_gemm(
    problem: GemmProblem,
    config: GemmConfig,
    name: str,
    kernel: TemplateKernel | None = None,
    input_reorder: Sequence[int] | None = None,
) -> Rendered:
    """The tiled product. Raises ConfigError where the config does not fit the problem.

    `kernel` replaces the kernel that is made here, for one that knows more than this does.
    """
    template = "pipeline.hip.jinja" if config.pipelined else "gemm.hip.jinja"
    if config.pipelined and problem.a.dtype == "float64":
        template = "pipeline_f64.hip.jinja"
    if config.unit == "wgmma":
        template = "boxes.hip.jinja" if takes_boxes(config, problem) else "warpgroup.hip.jinja"
    return _render(template, problem, config, name, kernel, input_reorder)


def render_skinny(
    problem: GemmProblem,
    config: SkinnyConfig,
    name: str,
    kernel: TemplateKernel | None = None,
    input_reorder: Sequence[int] | None = None,
) -> Rendered:
    """The product with few rows. Raises ConfigError where the config does not fit the problem."""
    template = "skinny.hip.jinja" if config.unit == "fma" else "skinny_matrix.hip.jinja"
    if config.stages > 1:
        template = "skinny_ring.hip.jinja"
    return _render(template, problem, config, name, kernel, input_reorder)


def _render(
    template: str,
    problem: GemmProblem,
    config: Config,
    name: str,
    kernel: TemplateKernel | None = None,
    input_reorder: Sequence[int] | None = None,
) -> Rendered:
    if isinstance(config, GemmConfig):
        defect = gemm_defect(config, problem)
    elif isinstance(config, DirectConfig):
        defect = direct_defect(config, problem)
    else:
        defect = skinny_defect(config, problem)
    if defect is not None:
        raise ConfigError(f"{config.description}: {defect}")
    kernel = kernel or TemplateKernel(name, RUNTIME_ARGS, (config.split_k,))
    if not isinstance(config, SkinnyConfig) and template in _WHOLE:
        kernel.limit(one_launch(problem, config))
    source = (
        environment()
        .get_template(template)
        .render(
            kernel=kernel,
            problem=problem,
            form=canonical(problem),
            config=config.binary,
            unit=UNITS.get(config.unit),
            lds_bytes=lds_bytes(config, problem),
            boxes=isinstance(config, GemmConfig) and takes_boxes(config, problem),
            input_reorder=input_reorder,
            skinny_split_unit=SKINNY_SPLIT_UNIT,
            largest_size=LARGEST_SIZE,
            wgmma_types=_WGMMA_TYPES,
            literal=functools.partial(literal, problem.acc),
        )
    )
    return Rendered(kernel.name, source, kernel.call_args(), problem, config)


_WHOLE = ("conv.hip.jinja", "grouped.hip.jinja", "direct.hip.jinja")
"""What one launch must have all of."""
render_conv = functools.partial(_render, _WHOLE[0])
"""A convolution, which is a `ConvProblem`. Raises ConfigError."""
render_grouped = functools.partial(_render, _WHOLE[1])
"""Products of groups of rows, which are a `GroupedProblem`. Raises ConfigError."""
render_direct = functools.partial(_render, _WHOLE[2])
"""A convolution of groups of few channels, a joined `ConvProblem`. Raises ConfigError."""

_WGMMA_TYPES = {
    "float16": "f32.f16.f16",
    "bfloat16": "f32.bf16.bf16",
    "int8": "s32.s8.s8",
    "float8_e4m3fn": "f32.e4m3.e4m3",
    "float8_e5m2": "f32.e5m2.e5m2",
}
"""PTX's names of what wgmma sums up in and multiplies."""


def literal(dtype: DType, value: float) -> str:
    """C++ of a factor: with the same bits as `value` rounded to fp32, or to fp64."""
    return float(value).hex() + ("" if dtype == "float64" else "f")
