"""Instances of Composable Kernel's universal GEMM, a header library of device GEMMs: which of them
fit a product, and a source that calls one.

An instance is a C++ type whose parameters `ck4inductor` lists, one object each: its attributes, in
order, are the parameters. Names and meaning are those of `DeviceGemmMultiD_Xdl_CShuffle_V3`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from backend.counted import counted
from backend.errors import ConfigError
from backend.templates.operand import LARGEST_SIZE, DType, Expr, Operand
from backend.templates.problem import GemmProblem, contiguous_dim, leading_stride
from backend.templates.rendering import RUNTIME_ARGS, Rendered, TemplateKernel, jinja_environment

TYPES: dict[DType, str] = {"float16": "F16", "bfloat16": "BF16", "float32": "F32"}
"""The type of a factor in an instance."""

Field = tuple[str, Any]

_IN_DESCRIPTION = (
    *("block_size", "m_per_block", "n_per_block", "k_per_block", "a_k1", "b_k1"),
    *("m_per_xdl", "n_per_xdl", "m_xdl_per_wave", "n_xdl_per_wave"),
    *("gemm_specialization", "block_gemm_pipeline_scheduler", "block_gemm_pipeline_version"),
)
"""The parameters in a choice's description; the source has all."""


@dataclass(frozen=True, slots=True)
class CkConfig:
    """An instance. It could split K into parts, a runtime argument, but none is offered so."""

    fields: tuple[Field, ...]
    split_k: ClassVar[int] = 1

    @classmethod
    def of(cls, operation: Any) -> CkConfig:
        """Convert one of ck4inductor's operations. Raises ConfigError for other objects."""
        if not dataclasses.is_dataclass(operation):
            raise ConfigError(f"{type(operation).__name__} does not list an instance's parameters")
        names = [field.name for field in dataclasses.fields(operation)]
        values = [getattr(operation, name) for name in names]
        config = cls(tuple(zip(names, map(_frozen, values), strict=True)))
        missing = sorted({*_IN_DESCRIPTION, *_NEEDED} - {*names})
        if missing:
            raise ConfigError(f"an instance without {', '.join(missing)}")
        return config

    def __getitem__(self, name: str) -> Any:
        return dict(self.fields)[name]

    @property
    def description(self) -> str:
        """`KEY=VALUE, ...`; of scoped names, the last part."""
        parts = [f"{name.upper()}={str(self[name]).rpartition(':')[2]}" for name in _IN_DESCRIPTION]
        return ", ".join([*parts, f"SPLIT_K={self.split_k}"])

    @property
    def parameters(self) -> list[str]:
        """The parameters of the C++ type."""
        return [_parameter(name, value) for name, value in self.fields if value is not None]


_NEEDED = (
    *("a_layout", "b_layout", "c_layout", "ds_layouts"),
    *("a_element_dtype", "b_element_dtype", "c_element_dtype"),
    *("a_elementwise_op", "b_elementwise_op", "c_elementwise_op"),
    *("a_block_transfer_src_scalar_per_vector", "b_block_transfer_src_scalar_per_vector"),
    "c_shuffle_block_transfer_scalar_per_vector_n_per_block",
)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


def _parameter(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        kind = "Tuple" if name.startswith("ds_") else "S"
        return f"{kind}<{', '.join(map(str, value))}>"
    return str(value).lower() if isinstance(value, bool) else str(value)


def ck_configs(operations: Iterable[Any], problem: GemmProblem, most: int) -> list[CkConfig]:
    """Return up to `most` of the instances that fit, spread over their list, in which neighbours
    are similar. Raises ConfigError for an operation that lists no parameters."""
    configs = map(CkConfig.of, operations)
    fitting = [config for config in configs if ck_defect(config, problem) is None]
    count = min(most, len(fitting))
    return [fitting[index * len(fitting) // count] for index in range(count)]


def ck_defect(config: CkConfig, problem: GemmProblem) -> str | None:
    """Return why an instance does not compute a problem, in one line; None if it does."""
    return next(_defects(config, problem), None)


def _defects(config: CkConfig, problem: GemmProblem) -> Iterator[str]:
    plain = type(problem) is GemmProblem and problem.epilogue is None and not problem.sources()
    if not plain or problem.batched or problem.bias is not None or problem.activation != "none":
        yield "it multiplies two matrices and does no more"
        return
    if problem.alpha != 1 or problem.scales or problem.second or config["ds_layouts"]:
        yield "it scales nothing and adds nothing"
    if any(config[f"{side}_elementwise_op"] != "PassThrough" for side in "abc"):
        yield "it applies a function"
    padded = str(config["gemm_specialization"]).rpartition(":")[2]
    for dim, size in zip("MNK", (problem.m, problem.n, problem.k), strict=True):
        pads = padded.endswith("Padding") and dim in padded.removesuffix("Padding")
        if not pads and not _divides(config[f"{dim.lower()}_per_block"], size):
            yield f"{dim} = {size} is not a multiple of what a block computes"
    operands = (("a", problem.a), ("b", problem.b), ("c", problem.out))
    for side, operand in operands:
        yield from _operand_defects(config, side, operand)


def _operand_defects(config: CkConfig, side: str, operand: Operand) -> Iterator[str]:
    if config[f"{side}_element_dtype"] != TYPES.get(operand.dtype):
        yield f"{operand.name} is {operand.dtype}"
    if config[f"{side}_layout"] != ck_layout(operand):
        yield f"{operand.name} lies the other way round"
    name = {"c": "c_shuffle_block_transfer_scalar_per_vector_n_per_block"}.get(
        side, f"{side}_block_transfer_src_scalar_per_vector"
    )
    width = config[name][0] if isinstance(config[name], tuple) else config[name]
    places = (operand.sizes[contiguous_dim(operand)], leading_stride(operand), operand.offset)
    aligned = operand.base_bytes % (width * operand.item_bytes) == 0
    if not aligned or not all(_divides(width, place) for place in places):
        yield f"{operand.name} cannot be read {counted(width, 'element')} at once"


def ck_layout(operand: Operand) -> str:
    """Return an instance's name for the layout."""
    return "Row" if contiguous_dim(operand) == -1 else "Col"


def _divides(number: int, expr: Expr) -> bool:
    """Return whether `expr` is certainly a multiple."""
    if isinstance(expr, int):
        return expr % number == 0
    return number == 1 or bool((expr % number).is_zero)


def render_ck(
    identity: str,
    problem: GemmProblem,
    config: CkConfig,
    name: str,
    kernel: TemplateKernel | None = None,
    input_reorder: Sequence[int] | None = None,
) -> Rendered:
    """Render a source that calls an instance. `identity` represents the headers and the language.
    No instance takes a workspace: parts of K are added in the result. Raises ConfigError if the
    instance does not fit the problem."""
    if (defect := ck_defect(config, problem)) is not None:
        raise ConfigError(f"{config.description}: {defect}")
    kernel = kernel or TemplateKernel(name, RUNTIME_ARGS, (config.split_k,))
    source = (
        jinja_environment()
        .get_template("ck.hip.jinja")
        .render(
            kernel=kernel,
            problem=problem,
            config=config,
            identity=identity,
            types=TYPES,
            size_args=[replace(arg, most=LARGEST_SIZE) for arg in problem.size_args()],
            largest_size=LARGEST_SIZE,
            input_reorder=input_reorder,
        )
    )
    return Rendered(kernel.name, source, kernel.call_args(), problem, config)
